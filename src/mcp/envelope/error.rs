//! Why a body is no JSON-RPC envelope.

use std::fmt;

/// Why a body is no JSON-RPC envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvelopeError {
    kind: EnvelopeErrorKind,
}

/// The kinds of [`EnvelopeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnvelopeErrorKind {
    /// Not JSON in UTF-8.
    NotJson,
    /// JSON, but no JSON-RPC 2.0 message.
    NotJsonRpc,
    /// An id that is neither string nor number nor null.
    Id,
    /// A batch that is empty or larger than [`Envelope::MAX_BATCH`](super::Envelope::MAX_BATCH).
    BatchSize,
    /// A member that stands twice in one object.
    DuplicateMember,
    /// Nested deeper than [`Envelope::MAX_DEPTH`](super::Envelope::MAX_DEPTH).
    TooDeep,
}

impl EnvelopeError {
    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> EnvelopeErrorKind {
        self.kind
    }
}

impl From<EnvelopeErrorKind> for EnvelopeError {
    fn from(kind: EnvelopeErrorKind) -> Self {
        Self { kind }
    }
}

impl fmt::Display for EnvelopeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotJson => "the body is not JSON",
            Self::NotJsonRpc => "the body is not a JSON-RPC 2.0 message",
            Self::Id => "the id is neither a string nor a number",
            Self::BatchSize => "the batch is empty or too large",
            Self::DuplicateMember => "an object has a member twice",
            Self::TooDeep => "the body is nested too deeply",
        })
    }
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for EnvelopeError {}
