//! The JSON-RPC envelope of an MCP message, borrowed from the bytes it came in.
//!
//! Stricter than JSON-RPC asks, because a guard and the service behind it must read a message alike: a member
//! that stands twice in any object is refused (RFC 8259 leaves it open which one counts), and so are ids that are
//! neither string nor number nor null, and nesting deeper than the limit.

mod error;
mod strict;

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

pub use self::error::{EnvelopeError, EnvelopeErrorKind};
use self::strict::check_strictly;

use super::is_modern_version;

/// One POST body: a message, or a batch of them (MCP 2025-03-26 only).
#[derive(Debug)]
pub struct Envelope<'a> {
    messages: Vec<Message<'a>>,
    batch: bool,
}

/// One JSON-RPC message.
#[derive(Debug)]
pub struct Message<'a> {
    kind: MessageKind<'a>,
    raw_params: Option<&'a RawValue>,
    params: Params<'a>,
}

/// What a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageKind<'a> {
    /// Has a method and an id: it is owed an answer.
    Request {
        /// Its id.
        id: Id<'a>,
        /// Its method.
        method: Cow<'a, str>,
    },
    /// Has a method and no id.
    Notification {
        /// Its method.
        method: Cow<'a, str>,
    },
    /// Has a result or an error: the client's answer to a request of the server's.
    Response {
        /// The id it answers; null when the peer could not read one.
        id: Id<'a>,
        /// Whether it is an error.
        error: bool,
    },
}

/// A JSON-RPC id with its type: `1` and `"1"` differ. Kept and echoed as it was written.
#[derive(Clone, Copy)]
pub struct Id<'a>(&'a RawValue);

impl<'a> Id<'a> {
    /// The id as JSON text.
    #[must_use]
    pub fn as_json(&self) -> &'a str {
        self.0.get()
    }

    /// Whether it is `null`, which MCP forbids in requests.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.0.get() == "null"
    }

    pub(crate) fn as_raw(&self) -> &'a RawValue {
        self.0
    }
}

impl PartialEq for Id<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

impl Eq for Id<'_> {}

impl fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.0.get())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Params<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow, rename = "protocolVersion")]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// How many messages a batch may have.
    pub const MAX_BATCH: usize = 1000;
    /// How deep arrays and objects may nest, the message itself included.
    pub const MAX_DEPTH: usize = 100;

    /// Reads one POST body.
    ///
    /// # Errors
    ///
    /// [`EnvelopeError`] when the body is not JSON, not JSON-RPC 2.0, or hostile. Never panics.
    pub fn parse(body: &'a [u8]) -> Result<Self, EnvelopeError> {
        let text = std::str::from_utf8(body).map_err(|_| EnvelopeErrorKind::NotJson)?;
        check_strictly(text)?;
        let text = text.trim_start_matches([' ', '\t', '\r', '\n']);
        let batch = text.starts_with('[');
        let messages = if batch {
            let raw: Vec<&RawValue> = from_text(text)?;
            if raw.is_empty() || raw.len() > Self::MAX_BATCH {
                return Err(EnvelopeErrorKind::BatchSize.into());
            }
            raw.into_iter()
                .map(|raw| Message::parse(raw.get()))
                .collect::<Result<_, _>>()?
        } else {
            vec![Message::parse(text)?]
        };
        Ok(Self { messages, batch })
    }

    /// The messages, at least one.
    #[must_use]
    pub fn messages(&self) -> &[Message<'a>] {
        &self.messages
    }

    /// Whether it was written as an array, even of one.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        self.batch
    }

    /// The first request of this method.
    #[must_use]
    pub fn find_request(&self, wanted: &str) -> Option<&Message<'a>> {
        self.messages.iter().find(
            |message| matches!(message.kind(), MessageKind::Request { method, .. } if method == wanted),
        )
    }

    /// Whether the messages' own `_meta` names a version without sessions. A message that is or travels with an
    /// `initialize` never is modern, and one message without such a version makes the whole batch legacy.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.messages.iter().all(|message| {
            message.method() != Some("initialize")
                && message
                    .meta_version()
                    .is_some_and(|version| is_modern_version(version.as_bytes()))
        })
    }
}

impl<'a> Message<'a> {
    fn parse(text: &'a str) -> Result<Self, EnvelopeError> {
        #[derive(Deserialize)]
        struct Fields<'a> {
            #[serde(borrow)]
            jsonrpc: Option<Cow<'a, str>>,
            #[serde(borrow, default, deserialize_with = "present")]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            method: Option<Cow<'a, str>>,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
            #[serde(borrow, default, deserialize_with = "present")]
            result: Option<&'a RawValue>,
            #[serde(borrow, default, deserialize_with = "present")]
            error: Option<&'a RawValue>,
        }
        // `null` counts as a member that is there.
        fn present<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<&'de RawValue>, D::Error> {
            <&RawValue>::deserialize(deserializer).map(Some)
        }

        if !text.starts_with('{') {
            return Err(EnvelopeErrorKind::NotJsonRpc.into());
        }
        let fields: Fields<'a> = from_text(text).map_err(|_| EnvelopeErrorKind::NotJsonRpc)?;
        if fields.jsonrpc.as_deref() != Some("2.0") {
            return Err(EnvelopeErrorKind::NotJsonRpc.into());
        }
        let id = match fields.id.map(RawValue::get) {
            Some(id) if !matches!(id.as_bytes()[0], b'"' | b'-' | b'0'..=b'9' | b'n') => {
                return Err(EnvelopeErrorKind::Id.into());
            }
            _ => fields.id.map(Id),
        };
        let answers = fields.result.is_some() || fields.error.is_some();
        let kind = match (fields.method, id) {
            (Some(_), _) if answers => return Err(EnvelopeErrorKind::NotJsonRpc.into()),
            (Some(method), Some(id)) => MessageKind::Request { id, method },
            (Some(method), None) => MessageKind::Notification { method },
            (None, Some(id)) if fields.result.is_some() != fields.error.is_some() => {
                MessageKind::Response {
                    id,
                    error: fields.error.is_some(),
                }
            }
            (None, _) => return Err(EnvelopeErrorKind::NotJsonRpc.into()),
        };
        let params = match fields.params {
            Some(raw) if raw.get().starts_with('{') => {
                from_text(raw.get()).map_err(|_| EnvelopeErrorKind::NotJsonRpc)?
            }
            _ => Params::default(),
        };
        Ok(Self {
            kind,
            raw_params: fields.params,
            params,
        })
    }

    /// Request, notification or response.
    #[must_use]
    pub fn kind(&self) -> &MessageKind<'a> {
        &self.kind
    }

    /// The method of a request or notification.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        match &self.kind {
            MessageKind::Request { method, .. } | MessageKind::Notification { method } => {
                Some(method)
            }
            MessageKind::Response { .. } => None,
        }
    }

    /// The id of a request.
    #[must_use]
    pub fn request_id(&self) -> Option<Id<'a>> {
        match &self.kind {
            MessageKind::Request { id, .. } => Some(*id),
            _ => None,
        }
    }

    /// `params`, as JSON text.
    #[must_use]
    pub fn params(&self) -> Option<&'a str> {
        self.raw_params.map(RawValue::get)
    }

    /// `params.name`: the tool of a `tools/call`.
    #[must_use]
    pub fn name(&self) -> Option<Cow<'a, str>> {
        string(self.params.name?)
    }

    /// `params.protocolVersion`: what an `initialize` asks for.
    #[must_use]
    pub fn protocol_version(&self) -> Option<Cow<'a, str>> {
        string(self.params.protocol_version?)
    }

    /// `params.capabilities`, as JSON text: what the client of an `initialize` can do.
    #[must_use]
    pub fn capabilities(&self) -> Option<&'a str> {
        self.params.capabilities.map(RawValue::get)
    }

    /// `params._meta["io.modelcontextprotocol/protocolVersion"]`, MCP 2026-07-28.
    #[must_use]
    pub fn meta_version(&self) -> Option<Cow<'a, str>> {
        #[derive(Deserialize)]
        struct Meta<'a> {
            #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
            version: Option<&'a RawValue>,
        }
        let meta: Meta<'a> = serde_json::from_str(self.params.meta?.get()).ok()?;
        string(meta.version?)
    }
}

fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    // A plain `Cow` would always copy; this borrows where nothing is escaped.
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(raw.get())
        .ok()
        .map(|text| text.0)
}

fn from_text<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, EnvelopeError> {
    serde_json::from_str(text).map_err(|_| EnvelopeErrorKind::NotJson.into())
}

#[cfg(test)]
mod tests;
