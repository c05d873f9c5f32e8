//! The recipes of `examples/edge`, as they are there: the real nginx and HAProxy in front of three guarded rmcp servers.
//!
//! `cargo test --all-features --test edge -- --nocapture` prints where second requests went.

#![cfg(feature = "forward")]
#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../rmcp/client.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod client;
mod edge;
mod endings;
mod homes;
mod manners;
#[path = "../rmcp/notebook.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod notebook;
mod pods;
#[path = "../support/port.rs"]
mod port;

use std::time::{Duration, Instant};

/// How long anything may take that has to happen.
const DEADLINE: Duration = Duration::from_secs(30);

/// Looks until it is there.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "it did not come to {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
