//! `examples/sidecar` in front of servers that know nothing of the guards: one on the TypeScript SDK, one on the Python SDK, and
//! some that fail. `tests/peers/setup` installs the first two.

#![cfg(feature = "forward")]
#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../rmcp/client.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod client;
#[path = "../../examples/sidecar/failure.rs"]
mod failure;
mod failures;
#[path = "../../examples/sidecar/options.rs"]
#[allow(dead_code, reason = "the command line is the example's")]
mod options;
mod peers;
#[path = "../support/port.rs"]
mod port;
#[cfg(feature = "redis")]
#[path = "../redis/server.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod redis;
mod rig;
#[path = "../../examples/sidecar/serve.rs"]
mod serve;
mod sessions;
#[path = "../../examples/sidecar/unread.rs"]
mod unread;
#[path = "../../examples/sidecar/upstream.rs"]
mod upstream;

use std::time::Duration;

/// How long anything may take that has to happen.
const DEADLINE: Duration = Duration::from_secs(45);
