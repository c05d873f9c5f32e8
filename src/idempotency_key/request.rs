//! What a POST is, as far as keys are concerned.

use std::{borrow::Cow, sync::LazyLock};

use memchr::memmem;

use super::{
    canonical::{self, Members},
    fingerprint::fingerprint,
    key::{Found, text},
};
use crate::{
    mcp::{Envelope, MessageKind, is_modern_version, members, plain_id},
    store::Fingerprint,
};

/// What a body was read as.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read<'a> {
    /// No `tools/call`.
    Other,
    /// A `tools/call` without an id, which is owed no answer.
    Notification,
    /// A `tools/call` with the id null, which MCP forbids.
    NullId,
    Call(Call<'a>),
    /// Several messages, or one in brackets.
    Batch {
        /// Whether there is a `tools/call` among them.
        calls: bool,
        /// Whether one of those has a key.
        keyed: bool,
    },
    /// Not a message, or one that could be read in two ways.
    Unreadable,
}

/// One `tools/call`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call<'a> {
    /// The id, as JSON text.
    pub(super) id: &'a str,
    pub(super) tool: Option<Cow<'a, str>>,
    pub(super) key: Found<'a>,
    pub(super) fingerprint: Fingerprint,
    /// Whether `_meta` names a version without sessions.
    pub(super) modern: bool,
    /// What it goes on from, when it is a later round of a call.
    pub(super) leg: Option<&'a str>,
}

static KEY: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new("idempotencyKey"));
static ESCAPE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\\u"));

/// Whether a body may have a key in it, at a glance.
pub(super) fn may_be_keyed(body: &[u8]) -> bool {
    // Its name has no character that JSON lets stand behind a lone backslash.
    KEY.find(body).is_some() || ESCAPE.find(body).is_some()
}

impl<'a> Read<'a> {
    pub(super) fn of(body: &'a [u8]) -> Self {
        let Ok(text) = std::str::from_utf8(body) else {
            return Self::Unreadable;
        };
        match Plain::of(text) {
            Some(Plain::Other) => Self::Other,
            Some(Plain::Call { id, params }) => Call::read(id, params),
            None => Self::in_full(text),
        }
    }

    fn in_full(text: &'a str) -> Self {
        let Ok(envelope) = Envelope::parse(text.as_bytes()) else {
            return Self::Unreadable;
        };
        let calls = |kind: &MessageKind<'_>| match kind {
            MessageKind::Request { method, .. } => method == "tools/call",
            _ => false,
        };
        if envelope.is_batch() {
            let mut calls = envelope.messages().iter().filter(|one| calls(one.kind()));
            let first = calls.next();
            let keyed = |message: &crate::mcp::Message<'_>| {
                let params = message.params().unwrap_or("{}");
                canonical::read(params).is_ok_and(|(members, _)| found(&members) != Found::Nothing)
            };
            return Self::Batch {
                calls: first.is_some(),
                keyed: first.into_iter().chain(calls).any(keyed),
            };
        }
        let message = &envelope.messages()[0];
        match message.kind() {
            MessageKind::Request { id, method } if method == "tools/call" => {
                Call::read(id.as_json(), message.params())
            }
            MessageKind::Notification { method } if method == "tools/call" => Self::Notification,
            _ => Self::Other,
        }
    }
}

/// The top of a message that has nothing out of the ordinary.
enum Plain<'a> {
    Other,
    Call {
        id: &'a str,
        params: Option<&'a str>,
    },
}

impl<'a> Plain<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (mut version, mut id, mut method, mut params) = (None, None, None, None);
        members(text.as_bytes(), |name, value| {
            let place = match name {
                b"jsonrpc" => &mut version,
                b"id" => &mut id,
                b"method" => &mut method,
                b"params" => &mut params,
                // A response, or something that the envelope has to judge.
                _ => return None,
            };
            place.replace(value).is_none().then_some(())
        })?;
        if version != Some(b"\"2.0\"") {
            return None;
        }
        match method? {
            b"\"tools/call\"" => {
                let params = match params {
                    Some(params) => Some(std::str::from_utf8(params).ok()?),
                    None => None,
                };
                let id = plain_id(id?)?;
                Some(Self::Call { id, params })
            }
            method => memchr::memchr(b'\\', method)
                .is_none()
                .then_some(Self::Other),
        }
    }
}

impl<'a> Call<'a> {
    fn read(id: &'a str, params: Option<&'a str>) -> Read<'a> {
        let Ok((members, canonical)) = canonical::read(params.unwrap_or("{}")) else {
            return Read::Unreadable;
        };
        if id == "null" {
            return Read::NullId;
        }
        Read::Call(Self {
            id,
            tool: members.name.and_then(text),
            key: found(&members),
            fingerprint: fingerprint(&canonical),
            modern: (members.version.and_then(text))
                .is_some_and(|version| is_modern_version(version.as_bytes())),
            leg: members.state.or(members.responses.map(|_| "")),
        })
    }
}

fn found<'a>(members: &Members<'a>) -> Found<'a> {
    Found::of_json(members.meta_key).and(Found::of_json(members.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(body: &str) -> Call<'_> {
        match Read::of(body.as_bytes()) {
            Read::Call(call) => call,
            other => panic!("{body}: {other:?}"),
        }
    }

    const PAY: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{"amount":1}}}"#;

    #[test]
    fn the_fingerprint_is_of_what_is_asked_and_not_of_who_asks_when() {
        let first = call(PAY).fingerprint;
        for same in [
            r#"{"id":"x","jsonrpc":"2.0","params":{"arguments":{"amount":1},"name":"pay"},"method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools\/call","params":{"name":"p\u0061y","arguments":{"amount":1},"_meta":{"progressToken":9}}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{"amount":1},"idempotencyKey":"k"}}"#,
        ] {
            assert_eq!(call(same).fingerprint, first, "{same}");
        }
        for other in [
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay2","arguments":{"amount":1}}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{"amount":1.0}}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{"amount":1,"_meta":1}}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{"amount":1},"task":{}}}"#,
        ] {
            assert_ne!(call(other).fingerprint, first, "{other}");
        }
    }

    #[test]
    fn the_key_stands_in_two_places() {
        let key = |params: &str| {
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            format!("{:?}", call(&body).key)
        };
        assert_eq!(key(r#"{"name":"a"}"#), "Nothing");
        assert_eq!(key(r#"{"idempotencyKey":"k"}"#), r#"Key("k")"#);
        assert_eq!(
            key(r#"{"_meta":{"mcp-session-guard/idempotencyKey":"k"},"idempotencyKey":"k"}"#),
            r#"Key("k")"#
        );
        assert_eq!(
            key(r#"{"_meta":{"mcp-session-guard\/idempotency\u004bey":"m"},"idempotencyKey":"k"}"#),
            "Differing"
        );
        assert_eq!(key(r#"{"idempotencyKey":null}"#), "Malformed");
        assert_eq!(key(r#"{"arguments":{"idempotencyKey":"k"}}"#), "Nothing");
    }

    #[test]
    fn what_is_no_call() {
        let read = |body: &'static str| Read::of(body.as_bytes());
        for other in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1,"b":"tools/call"}}"#,
        ] {
            assert_eq!(read(other), Read::Other, "{other}");
        }
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","method":"tools/call","params":{}}"#),
            Read::Notification
        );
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":null,"method":"tools/call"}"#),
            Read::NullId
        );
        for odd in [
            "",
            "{",
            r#"{"jsonrpc":"1.0","id":1,"method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":1,"a":2}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"tools/call"}"#,
        ] {
            assert_eq!(read(odd), Read::Unreadable, "{odd}");
        }
        assert_eq!(Read::of(b"\xff"), Read::Unreadable);
    }

    #[test]
    fn a_batch_is_classified_element_by_element() {
        let batch = |parts: &[&str]| {
            let body = format!("[{}]", parts.join(","));
            match Read::of(body.as_bytes()) {
                Read::Batch { calls, keyed } => (calls, keyed),
                other => panic!("{body}: {other:?}"),
            }
        };
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let initialize = r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}"#;
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let keyed =
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"idempotencyKey":"k"}}"#;
        assert_eq!(batch(&[list, initialize, note]), (false, false));
        assert_eq!(batch(&[PAY]), (true, false));
        assert_eq!(batch(&[PAY, initialize, note]), (true, false));
        assert_eq!(batch(&[note, keyed]), (true, true));
        assert_eq!(batch(&[PAY, keyed]), (true, true));
    }

    #[test]
    fn a_key_cannot_hide_from_the_glance() {
        assert!(!may_be_keyed(PAY.as_bytes()));
        for body in [
            r#"{"idempotencyKey":1}"#,
            r#"{"\u0069dempotencyKey":1}"#,
            r#"{"idempotency\u004bey":1}"#,
            r#"{"mcp-session-guard\/idempotencyKey":1}"#,
        ] {
            assert!(may_be_keyed(body.as_bytes()), "{body}");
        }
    }
}
