//! What a message that the server sends is about: an answer, a question of its own, or neither.

use std::fmt;

use memchr::memmem;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

use super::Id;

/// A JSON-RPC id that outlives its message: JSON text, so that `1` and `"1"` differ and it is echoed as written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// The id with this JSON text; for back ends that read one back from a store.
    ///
    /// `None` when the text is not a JSON string, number or null.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        is_id(raw.get()).then(|| Self(raw.get().into()))
    }

    /// The id as JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl From<Id<'_>> for RequestId {
    fn from(id: Id<'_>) -> Self {
        Self(id.as_json().into())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({})", self.0)
    }
}

/// What one event's message is about. Events and their subjects are stored together, so that a replay can be held
/// against the requests that opened the stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Subject {
    /// Neither answers nor asks: a notification, or nothing that could be read.
    #[default]
    Nothing,
    /// Answers this request of the client's.
    Answer(RequestId),
    /// Asks the client something under this id: sampling, elicitation, roots, ping.
    Question(RequestId),
    /// A batch of them (MCP 2025-03-26).
    Batch(Box<[Subject]>),
}

impl Subject {
    /// What a message is about. Never fails: a text that is no JSON-RPC message is about nothing.
    ///
    /// ```
    /// use mcp_session_guard::mcp::{RequestId, Subject};
    ///
    /// let id = RequestId::from_json("7").unwrap();
    /// assert_eq!(Subject::of(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#), Subject::Answer(id));
    /// assert_eq!(Subject::of(br#"{"jsonrpc":"2.0","method":"notifications/message"}"#), Subject::Nothing);
    /// ```
    #[must_use]
    pub fn of(message: &[u8]) -> Self {
        // Most messages on a long stream are notifications. A member `id` is written as such, or with an escape.
        if memmem::find(message, b"\"id\"").is_none() && memchr::memchr(b'\\', message).is_none() {
            return Self::Nothing;
        }
        Self::read(message).unwrap_or_default()
    }

    fn read(message: &[u8]) -> Option<Self> {
        if !message.trim_ascii_start().starts_with(b"[") {
            return Some(Self::of_head(&serde_json::from_slice(message).ok()?));
        }
        let batch: Vec<Head<'_>> = serde_json::from_slice(message).ok()?;
        Some(Self::Batch(batch.iter().map(Self::of_head).collect()))
    }

    fn of_head(head: &Head<'_>) -> Self {
        let Some(id) = head.id.map(RawValue::get).filter(|id| is_id(id)) else {
            return Self::Nothing;
        };
        let id = RequestId(id.into());
        if head.method.is_some() {
            Self::Question(id)
        } else if head.result.is_some() || head.error.is_some() {
            Self::Answer(id)
        } else {
            Self::Nothing
        }
    }

    /// Calls `each` with every part that is not a batch.
    pub fn visit(&self, each: &mut impl FnMut(&Self)) {
        match self {
            Self::Batch(parts) => parts.iter().for_each(|part| part.visit(each)),
            part => each(part),
        }
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "present")]
    method: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "present")]
    result: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "present")]
    error: Option<IgnoredAny>,
}

/// `null` counts as a member that is there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IgnoredAny>, D::Error> {
    IgnoredAny::deserialize(deserializer).map(Some)
}

fn is_id(json: &str) -> bool {
    matches!(
        json.as_bytes().first(),
        Some(b'"' | b'-' | b'0'..=b'9' | b'n')
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(json: &str) -> RequestId {
        RequestId::from_json(json).unwrap()
    }

    fn of(message: &str) -> Subject {
        Subject::of(message.as_bytes())
    }

    #[test]
    fn answers_questions_and_the_rest() {
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":"1","result":{"id":2}}"#),
            Subject::Answer(id("\"1\""))
        );
        assert_eq!(
            of(r#"{"error":{"code":1,"message":""},"id":1}"#),
            Subject::Answer(id("1"))
        );
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":1,"result":null}"#),
            Subject::Answer(id("1"))
        );
        assert_eq!(
            of(
                r#"{"jsonrpc":"2.0","id":3,"method":"sampling/createMessage","params":{"result":1}}"#
            ),
            Subject::Question(id("3"))
        );
        for nothing in [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"id":1,"result":2}}"#,
            r#"{"jsonrpc":"2.0","id":{},"result":2}"#,
            r#"{"id":1}"#,
            r#"{"id":1,"id":2,"result":3}"#,
            "not json \"id\"",
            "",
        ] {
            assert_eq!(of(nothing), Subject::Nothing, "{nothing}");
        }
    }

    #[test]
    fn an_escaped_member_is_the_same_member() {
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","\u0069d":1,"result":{}}"#),
            Subject::Answer(id("1"))
        );
    }

    #[test]
    fn a_batch_is_about_each_of_its_parts() {
        let batch = of(r#" [{"id":1,"result":{}},{"method":"n"},{"id":2,"method":"ping"}]"#);
        let mut parts = Vec::new();
        batch.visit(&mut |part| parts.push(part.clone()));
        assert_eq!(
            parts,
            [
                Subject::Answer(id("1")),
                Subject::Nothing,
                Subject::Question(id("2"))
            ]
        );
    }
}
