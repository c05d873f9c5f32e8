//! For whom a session was opened.

use std::{borrow::Cow, fmt, sync::Arc};

use http::{Extensions, HeaderMap, Method, Request, Uri, request::Parts};

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

/// How the layers are told whose request it is.
pub(crate) type PrincipalOf = dyn for<'a> Fn(Head<'a>) -> Option<Cow<'a, str>> + Send + Sync;

/// The head of a request, borrowed: what a principal is read from.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// What layers outside have attached, the authenticated user for instance.
    pub extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    pub(crate) fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    pub(crate) fn of_parts(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}
