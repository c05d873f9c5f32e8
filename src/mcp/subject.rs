//! What a message that the server sends is about: an answer, a question of its own, or neither.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use memchr::memmem;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::{Envelope, Id, MessageKind, scan::Head};

/// A JSON-RPC id that outlives its message: JSON text, so that `1` and `"1"` differ and it is echoed as written. Cloning
/// shares the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(Arc<str>);

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

/// Several, nearly always one.
pub(crate) type RequestIds = SmallVec<[RequestId; 1]>;

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
        // Most messages of a stream are notifications, and have no id: told at a fraction of what a look at each of its
        // bytes costs. The name may be written with escapes.
        if ID.find(message).is_none() && UNICODE.find(message).is_none() {
            return Self::Nothing;
        }
        match Head::of(message) {
            Some(head) => Self::of_head(&head),
            None => Self::read(message).unwrap_or_default(),
        }
    }

    fn read(message: &[u8]) -> Option<Self> {
        if !message.trim_ascii_start().starts_with(b"[") {
            let members: Members<'_> = serde_json::from_slice(message).ok()?;
            return Some(Self::of_head(&members.head()));
        }
        let batch: Vec<Members<'_>> = serde_json::from_slice(message).ok()?;
        let parts = batch.iter().map(|members| Self::of_head(&members.head()));
        Some(Self::Batch(parts.collect()))
    }

    fn of_head(head: &Head<'_>) -> Self {
        let Some(id) = head.id.filter(|id| is_id(id)) else {
            return Self::Nothing;
        };
        if head.method {
            Self::Question(RequestId(id.into()))
        } else if head.result || head.error {
            Self::Answer(RequestId(id.into()))
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

/// The same as a [`Head`], read in full.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "present")]
    method: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "present")]
    result: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "present")]
    error: Option<IgnoredAny>,
}

impl<'a> Members<'a> {
    fn head(&self) -> Head<'a> {
        Head {
            id: self.id.map(RawValue::get),
            method: self.method.is_some(),
            result: self.result.is_some(),
            error: self.error.is_some(),
        }
    }
}

/// What a POST carries, as far as streams are concerned.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// The requests that it makes.
    pub(crate) requests: RequestIds,
    /// The questions that it answers.
    pub(crate) answers: RequestIds,
    /// Whether it is of the era without sessions.
    pub(crate) modern: bool,
}

impl Carried {
    /// Never fails: of what cannot be read nothing is known, and the inner service says what is wrong with it.
    pub(crate) fn of(body: &[u8]) -> Self {
        // A version in `_meta` makes it modern. Its name may be written with escapes.
        let plain = memchr::memchr(b'\\', body).is_none() && VERSION.find(body).is_none();
        let mut carried = Self::default();
        match Head::of(body) {
            Some(head) if plain => carried.add(&Subject::of_head(&head)),
            _ => {
                if let Ok(envelope) = Envelope::parse(body) {
                    carried.modern = envelope.is_modern();
                    for message in envelope.messages() {
                        match message.kind() {
                            MessageKind::Request { id, .. } => carried.requests.push((*id).into()),
                            MessageKind::Response { id, .. } => carried.answers.push((*id).into()),
                            MessageKind::Notification { .. } => {}
                        }
                    }
                }
            }
        }
        carried
    }

    fn add(&mut self, subject: &Subject) {
        match subject {
            // What a server asks with, a client calls with.
            Subject::Question(id) => self.requests.push(id.clone()),
            Subject::Answer(id) => self.answers.push(id.clone()),
            Subject::Nothing | Subject::Batch(_) => {}
        }
    }
}

static ID: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\"id\""));
static UNICODE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\\u"));
static VERSION: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new("io.modelcontextprotocol/protocolVersion"));

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
    fn what_a_post_carries() {
        let of = |body: &str| Carried::of(body.as_bytes());
        let carried = |requests: &[&str], answers: &[&str], modern| Carried {
            requests: requests.iter().map(|json| id(json)).collect(),
            answers: answers.iter().map(|json| id(json)).collect(),
            modern,
        };
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let answer = r#"{"jsonrpc":"2.0","id":"q","result":{}}"#;
        let note =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        assert_eq!(of(ping), carried(&["1"], &[], false));
        assert_eq!(of(answer), carried(&[], &["\"q\""], false));
        assert_eq!(of(note), carried(&[], &[], false));
        assert_eq!(
            of(&format!("[{ping},{answer},{note}]")),
            carried(&["1"], &["\"q\""], false)
        );
        assert_eq!(of("not json"), Carried::default());
        for name in [
            "io.modelcontextprotocol/protocolVersion",
            "io.modelcontextprotocol\\/protocol\\u0056ersion",
        ] {
            let modern = format!(
                r#"{{"jsonrpc":"2.0","id":2,"method":"ping","params":{{"_meta":{{"{name}":"2026-07-28"}}}}}}"#
            );
            assert_eq!(of(&modern), carried(&["2"], &[], true), "{name}");
        }
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
