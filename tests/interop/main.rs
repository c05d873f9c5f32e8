//! The official SDKs of other languages, for real and over sockets, against guarded rmcp servers.
//!
//! | part | what it is |
//! | --- | --- |
//! | `clients/` | pinned versions, which `tests/peers/setup` installs, and a driver for each: does what it is told on its standard input, and says what its caller sees |
//! | `client`, `driver` | which clients there are, and one of them under way; `rmcp_client` is the one in this process |
//! | `rig` | a guarded server in this process, behind a proxy that cuts connections |
//! | `server`, `edge`, `wire`, `log` | its parts: the MCP server, what errs in front of it, what passed over its socket, what its streams recorded |
//! | `resumption` | clients that lose their connection |
//! | `refusals` | clients that are refused, for each reason: `results.json` |

#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../support/mod.rs"]
mod support;

mod client;
mod driver;
mod edge;
mod log;
mod refusals;
mod resumption;
mod rig;
mod rmcp_client;
mod server;
mod wire;

use std::{fmt, time::Duration};

use tokio::{sync::watch, time::timeout};

/// How long anything may take that has to happen. Below the TypeScript SDKs' own limit for a request, so that a call
/// which hangs is seen to hang.
const DEADLINE: Duration = Duration::from_secs(45);

/// Waits for something to become true of what is watched.
async fn until<T: Clone + fmt::Debug>(
    watched: &watch::Sender<T>,
    what: &str,
    holds: impl FnMut(&T) -> bool,
) -> T {
    let mut watching = watched.subscribe();
    let held = timeout(DEADLINE, watching.wait_for(holds)).await;
    match held {
        Ok(Ok(now)) => now.clone(),
        Ok(Err(_)) => unreachable!("the sender is borrowed"),
        Err(_) => panic!("it did not come to {what}: {:#?}", *watched.borrow()),
    }
}
