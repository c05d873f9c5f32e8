//! Why a store could not answer.

use std::{error::Error, fmt};

/// A store that does not know, or could not say.
///
/// Opaque, with a [`kind`](Self::kind). Every kind means *unknown*: nothing may be concluded from it about a
/// session.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The kinds of [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It could not be reached, or the connection broke before the reply.
    Unavailable,
    /// It did not reply within the deadline. What was asked may have happened.
    TimedOut,
    /// It may have lost its memory and is waiting for the owners to speak up.
    Recovering,
    /// What was asked was refused, because the caller's fence or lease is not the current one.
    Fenced,
    /// What it holds under the key cannot be read, or is another key's.
    Corrupt,
    /// It has no room, and nothing that may be evicted.
    Full,
}

impl StoreError {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// Attaches what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl From<StoreErrorKind> for StoreError {
    fn from(kind: StoreErrorKind) -> Self {
        Self::new(kind)
    }
}

impl StoreErrorKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "the store cannot be reached",
            Self::TimedOut => "the store did not reply in time",
            Self::Recovering => "the store is recovering",
            Self::Fenced => "the store refused the fence or the lease",
            Self::Corrupt => "the store holds something unreadable",
            Self::Full => "the store is full",
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}
