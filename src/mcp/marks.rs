//! The headers that mark a request, found in one walk.
//!
//! A look-up by name hashes the name byte by byte; for the two or three headers that matter, among the dozen that a
//! client sends, comparing each once is cheaper, and it sees repeated headers as a matter of course.

use http::{HeaderMap, HeaderValue};

use super::{
    Era,
    header::{METHOD, PROTOCOL_VERSION, SESSION_ID},
    is_modern_version,
};
use crate::session::SessionId;

/// What a request's headers say about sessions and eras.
#[derive(Debug, Default)]
pub(crate) struct Marks<'a> {
    session: Option<&'a HeaderValue>,
    /// Another session header says something else.
    contradicted: bool,
    /// Whether there is a version header, and all there are name a modern version.
    modern: Option<bool>,
    method: Option<&'a HeaderValue>,
}

/// The session header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presented<'a> {
    Missing,
    /// Not one session id.
    Malformed,
    Id(&'a [u8]),
}

impl<'a> Marks<'a> {
    #[inline]
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
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
    pub(crate) fn era(&self) -> Era {
        match self.modern {
            Some(true) => Era::Modern,
            _ => Era::Legacy,
        }
    }

    /// The JSON-RPC method that a modern client names.
    #[inline]
    pub(crate) fn method(&self) -> Option<&'a HeaderValue> {
        self.method
    }

    #[inline]
    pub(crate) fn session(&self, max_len: usize) -> Presented<'a> {
        let Some(value) = self.session else {
            return Presented::Missing;
        };
        let id = value.as_bytes();
        if self.contradicted || !SessionId::is_presentable(id, max_len) {
            return Presented::Malformed;
        }
        Presented::Id(id)
    }
}
