//! x
pub mod affinity_guard;
pub mod body;
pub mod clock;
pub mod instance;
pub mod mcp;
pub mod rejection;
pub mod session;
pub mod store;
