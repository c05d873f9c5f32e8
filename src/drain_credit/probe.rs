//! Proof that the whole way to a client drains, proxies included: an MCP `ping` down the stream, and the client's answer.

use std::sync::Weak;

use bytes::Bytes;

use super::{account::FlowId, accounts::Slot};
use crate::{clock::Timestamp, mcp::RequestId, outbox::Lever};

/// What the ids of this layer's pings begin with.
const PREFIX: &str = "mcp-session-guard/ping/";

/// Drawn, so that a client cannot answer what it has not read.
fn nonce() -> Option<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// The number of the ping that this id is one of.
pub(super) fn ping_of(id: &RequestId) -> Option<u64> {
    let text = id.as_json().strip_prefix('"')?.strip_suffix('"')?;
    u64::from_str_radix(text.strip_prefix(PREFIX)?, 16).ok()
}

/// The ping as an event without an id of its own: nobody can come back to it.
fn ping(nonce: u64) -> Bytes {
    let text = format!(
        "data: {{\"jsonrpc\":\"2.0\",\"id\":\"{PREFIX}{nonce:016x}\",\"method\":\"ping\"}}\n\n"
    );
    text.into()
}

/// Pings to be sent.
#[derive(Default)]
pub(super) struct Probes(Vec<(Weak<dyn Lever>, u64)>);

impl Probes {
    /// Takes down a ping for each flow that has something to prove and was not asked yet.
    pub(super) fn collect(&mut self, slot: &mut Slot, now: Timestamp) {
        for index in 0..slot.levers.len() {
            let flow = FlowId::of(index);
            let Some(lever) = &slot.levers[index] else {
                continue;
            };
            if slot.account.wants_probe(flow)
                && let Some(nonce) = nonce()
            {
                self.0.push((Weak::clone(lever), nonce));
                slot.account.probe(flow, now);
                slot.asked.push((flow, nonce));
            }
        }
    }

    /// Sends them, under no lock.
    pub(super) fn send(self) {
        for (lever, nonce) in self.0 {
            if let Some(lever) = lever.upgrade() {
                lever.ask(ping(nonce));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::Subject;

    #[test]
    fn a_ping_is_known_by_its_answer() {
        let event = ping(0xab);
        let text = std::str::from_utf8(&event).unwrap();
        let message = text.strip_prefix("data: ").unwrap().trim_end();
        let Subject::Question(id) = Subject::of(message.as_bytes()) else {
            panic!("{message}");
        };
        assert_eq!(ping_of(&id), Some(0xab));
        let other = RequestId::from_json("\"mcp-session-guard/ping/xyz\"").unwrap();
        assert_eq!(ping_of(&other), None);
    }
}
