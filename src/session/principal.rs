//! For whom a session was opened.

use std::{fmt, sync::Arc};

/// A stable subject (a user, a tenant), not a token that is refreshed.
///
/// A session is bound to the principal that opened it; any other is told what it would be told of a session
/// that does not exist. MCP 2025-11-25 asks servers to bind sessions to the user and never to use the session
/// id as authentication. [`Debug`](fmt::Debug) does not show the subject.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// The principal with this subject.
    #[must_use]
    pub fn new(subject: impl Into<Arc<str>>) -> Self {
        Self(subject.into())
    }

    /// The subject.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Principal(…)")
    }
}
