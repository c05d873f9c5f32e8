//! The gateway: sends a call, waits for so long, and sends it again to the next branch, as gateways do.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use reqwest::header;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{Error, caller::PATIENCE};

/// After which the gateway gives a branch up.
pub(super) const TIMEOUT: Duration = Duration::from_millis(150);
const BACKOFF: Duration = Duration::from_millis(50);

pub(super) struct Gateway {
    http: reqwest::Client,
    branches: Vec<SocketAddr>,
    attempts: AtomicUsize,
}

/// How many time-outs it takes before it gives a call up.
const TIMEOUTS: usize = 4;

/// What came of one attempt.
pub(super) enum Heard {
    Result,
    Error(Value),
    /// Nothing, in time.
    TimedOut,
    /// The connection broke, or there was none.
    Broken,
}

/// How a call ended for whoever made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Paid,
    /// It was told that nobody knows.
    Unknown,
    /// It was refused for another reason, or never answered.
    Refused,
}

/// A payment, as often as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) order: String,
    pub(super) takes: Duration,
}

impl Gateway {
    pub(super) fn before(branches: impl IntoIterator<Item = SocketAddr>) -> Result<Self, Error> {
        Ok(Self {
            http: reqwest::Client::builder().no_proxy().build()?,
            branches: branches.into_iter().collect(),
            attempts: AtomicUsize::new(0),
        })
    }

    /// How many requests were sent.
    pub(super) fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }

    /// One attempt at one branch.
    pub(super) async fn attempt(&self, call: &Call, branch: usize) -> Heard {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let address = self.branches[branch % self.branches.len()];
        let arguments = json!({"order": call.order, "takes_ms": call.takes.as_millis() as u64});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "pay", "arguments": arguments}});
        let request = self
            .http
            .post(format!("http://{address}/mcp"))
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
            .header("x-customer", "customer-1")
            .header("idempotency-key", &call.order)
            .json(&message);
        let answered = async {
            let text = request.send().await.ok()?.text().await.ok()?;
            let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
            std::iter::once(text.as_str())
                .chain(events)
                .find_map(|text| serde_json::from_str::<Value>(text).ok())
        };
        match timeout(TIMEOUT, answered).await {
            Err(_) => Heard::TimedOut,
            Ok(None) => Heard::Broken,
            Ok(Some(mut message)) => match message.get_mut("error") {
                Some(error) => Heard::Error(error.take()),
                None => Heard::Result,
            },
        }
    }

    /// Sends a call until it is known how it ended, beginning at one of the branches.
    pub(super) async fn send(&self, call: &Call, first: usize) -> End {
        let deadline = Instant::now() + PATIENCE;
        let mut timeouts = 0;
        for branch in first.. {
            match self.attempt(call, branch).await {
                Heard::Result => return End::Paid,
                Heard::Error(error) => {
                    let data = &error["data"];
                    if data["reason"] == "idempotency_outcome_unknown" {
                        return End::Unknown;
                    }
                    if data["retryable"] != true {
                        return End::Refused;
                    }
                }
                Heard::TimedOut => timeouts += 1,
                Heard::Broken => {}
            }
            if timeouts == TIMEOUTS {
                break;
            }
            if Instant::now() > deadline {
                break;
            }
            sleep(BACKOFF).await;
        }
        End::Refused
    }
}
