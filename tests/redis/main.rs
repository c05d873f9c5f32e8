//! The stores on a real server that each test starts for itself.

mod contract;
mod server;
