//! The headers that mark a request, found in one walk.
//!
//! A look-up by name hashes the name byte by byte; for the two or three headers that matter, among the dozen that a
//! client sends, comparing each once is cheaper, and it sees repeated headers as a matter of course.

use http::{HeaderMap, HeaderValue};

use super::decide::{Header, Request};
use crate::{
    mcp::{
        Era,
        header::{METHOD, PROTOCOL_VERSION, SESSION_ID},
        is_modern_version,
    },
    session::SessionId,
};

/// What a request's headers say about sessions and eras.
#[derive(Debug, Default)]
pub(super) struct Marks<'a> {
    session: Option<&'a HeaderValue>,
    /// Another session header says something else.
    contradicted: bool,
    /// Whether there is a version header, and all there are name a modern version.
    modern: Option<bool>,
    method: Option<&'a HeaderValue>,
}

impl<'a> Marks<'a> {
    #[inline]
    pub(super) fn of(headers: &'a HeaderMap) -> Self {
        let mut marks = Self::default();
        for (name, value) in headers {
            if name == SESSION_ID {
                marks.contradicted |= marks.session.is_some_and(|first| first != value);
                marks.session = Some(value);
            } else if name == PROTOCOL_VERSION {
                // With a legacy one among them, the inner service may read either.
                let modern = is_modern_version(value.as_bytes());
                marks.modern = Some(modern && marks.modern.unwrap_or(true));
            } else if name == METHOD {
                marks.method = Some(value);
            }
        }
        marks
    }

    #[inline]
    pub(super) fn era(&self) -> Era {
        match self.modern {
            Some(true) => Era::Modern,
            _ => Era::Legacy,
        }
    }

    /// What is known of a request before its body is read.
    #[inline]
    pub(super) fn kind(&self, post: bool) -> Request {
        if !post {
            return Request::Bodyless;
        }
        // A modern client names its method, and one that names another than `initialize` needs no look into its body.
        match (self.era(), self.method) {
            (Era::Modern, Some(method)) if method != "initialize" => Request::Other,
            _ => Request::Unread,
        }
    }

    /// The session header, and the id in it.
    #[inline]
    pub(super) fn session(&self, max_len: usize) -> (Header, Option<&'a [u8]>) {
        let Some(value) = self.session else {
            return (Header::Missing, None);
        };
        let id = value.as_bytes();
        if self.contradicted || !SessionId::is_presentable(id, max_len) {
            return (Header::Malformed, None);
        }
        (Header::Valid, Some(id))
    }
}
