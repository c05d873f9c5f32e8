//! The session id: opaque to everyone but the service that minted it.

use std::{borrow::Borrow, fmt, sync::Arc};

/// An `Mcp-Session-Id`: one or more characters in `0x21..=0x7E`, compared byte for byte and never trimmed.
///
/// The character range is that of the MCP revision 2025-03-26 and later. Cloning shares the text.
/// [`Debug`](fmt::Debug) shows the first four characters and the length only: whoever holds a session id can
/// speak for the session, so it does not belong in a log.
///
/// ```
/// use mcp_session_guard::session::{SessionId, SessionIdErrorKind};
///
/// let id = SessionId::parse("1868a90c-7b1e")?;
/// assert_eq!(id.as_str(), "1868a90c-7b1e");
/// assert_eq!(SessionId::parse("").unwrap_err().kind(), SessionIdErrorKind::Empty);
/// assert_eq!(SessionId::parse(" padded").unwrap_err().kind(), SessionIdErrorKind::Character);
/// # Ok::<(), mcp_session_guard::session::SessionIdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// The longest id that [`parse`](Self::parse) takes, in bytes.
    pub const DEFAULT_MAX_LEN: usize = 1024;

    /// Reads an id of at most [`DEFAULT_MAX_LEN`](Self::DEFAULT_MAX_LEN) bytes.
    ///
    /// # Errors
    ///
    /// [`SessionIdError`] when the text is empty, too long, or has a character outside `0x21..=0x7E`.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, SessionIdError> {
        Self::parse_with_limit(text, Self::DEFAULT_MAX_LEN)
    }

    /// Reads an id of at most `max_len` bytes.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_with_limit(
        text: impl AsRef<[u8]>,
        max_len: usize,
    ) -> Result<Self, SessionIdError> {
        let text = text.as_ref();
        let kind = if text.is_empty() {
            SessionIdErrorKind::Empty
        } else if text.len() > max_len {
            SessionIdErrorKind::TooLong
        } else {
            let fits = text.iter().all(|byte| matches!(byte, 0x21..=0x7e));
            match std::str::from_utf8(text) {
                Ok(text) if fits => return Ok(Self(text.into())),
                _ => SessionIdErrorKind::Character,
            }
        };
        Err(SessionIdError { kind })
    }

    /// Whether the value of a header is an id, without taking a copy.
    ///
    /// An id with a comma is not: proxies may join repeated headers with one (RFC 9110, section 5.3), so it cannot
    /// be told from two ids.
    #[inline]
    pub(crate) fn is_presentable(value: &[u8], max_len: usize) -> bool {
        // A fold without an early exit, so that many bytes can be looked at at once.
        let fits = |fits, byte: &u8| fits & matches!(byte, 0x21..=0x7e) & (*byte != b',');
        !value.is_empty() && value.len() <= max_len && value.iter().fold(true, fits)
    }

    /// The id with these bytes, which were an id's before.
    pub(crate) fn of_owned(bytes: &[u8]) -> Self {
        Self(String::from_utf8_lossy(bytes).as_ref().into())
    }

    /// The id as it goes over the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for SessionId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for SessionId {
    type Err = SessionIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..4.min(self.0.len() / 2)).unwrap_or_default();
        write!(f, "SessionId({shown}…, {} bytes)", self.0.len())
    }
}

/// Why a text is not a session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionIdError {
    kind: SessionIdErrorKind,
}

/// The kinds of [`SessionIdError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionIdErrorKind {
    /// There is no character at all.
    Empty,
    /// More bytes than the limit allows.
    TooLong,
    /// A character outside `0x21..=0x7E`.
    Character,
}

impl SessionIdError {
    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> SessionIdErrorKind {
        self.kind
    }
}

impl fmt::Display for SessionIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            SessionIdErrorKind::Empty => "the session id is empty",
            SessionIdErrorKind::TooLong => "the session id is longer than the limit",
            SessionIdErrorKind::Character => "the session id has a character outside 0x21 to 0x7E",
        })
    }
}

impl std::error::Error for SessionIdError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn takes_exactly_the_visible_ascii_range(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let fits = !bytes.is_empty() && bytes.iter().all(|b| (0x21..=0x7e).contains(b));
            let parsed = SessionId::parse(&bytes);
            prop_assert_eq!(parsed.is_ok(), fits);
            if let Ok(id) = parsed {
                prop_assert_eq!(id.as_str().as_bytes(), &bytes[..]);
            }
            let presentable = fits && !bytes.contains(&b',');
            prop_assert_eq!(SessionId::is_presentable(&bytes, 80), presentable);
        }
    }

    #[test]
    fn the_limit_is_inclusive_and_configurable() {
        let long = "x".repeat(1024);
        assert!(SessionId::parse(&long).is_ok());
        let longer = "x".repeat(1025);
        assert_eq!(
            SessionId::parse(&longer).unwrap_err().kind(),
            SessionIdErrorKind::TooLong
        );
        assert!(SessionId::parse_with_limit(&longer, 1025).is_ok());
    }

    #[test]
    fn debug_does_not_give_the_id_away() {
        let id = SessionId::parse("0123456789abcdef").unwrap();
        assert_eq!(format!("{id:?}"), "SessionId(0123…, 16 bytes)");
        let short = SessionId::parse("ab").unwrap();
        assert_eq!(format!("{short:?}"), "SessionId(a…, 2 bytes)");
    }
}
