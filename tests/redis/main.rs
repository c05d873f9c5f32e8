//! The stores on a real server that each test starts for itself.

#![allow(dead_code, unreachable_pub, reason = "a test has no outside")]

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "redis-cluster")]
mod cluster;
mod contract;
mod faults;
mod field;
mod history;
mod model;
mod model_log;
mod proxy;
mod round_trips;
mod runtimes;
mod server;
mod strange;
