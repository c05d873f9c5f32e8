//! The ids that clients see: which epoch made the event, on which stream, with which number, and for whom it waits.

use std::fmt::{self, Write};

use crate::{
    mcp::RequestId,
    session::Epoch,
    store::{Seq, StreamKey},
};

/// A position in a stream, as the `id` of an event and the `Last-Event-ID` of whoever resumes.
///
/// ```text
/// g1.<epoch>.<stream>.<number>[.<request>]
/// ```
///
/// ASCII throughout. `g1` marks a position that can be resumed from, `x1` one that ends it: nothing comes after it,
/// and a request that presents it is answered 405. The request is the one that still waits for its answer, if there
/// is exactly one and its id is short, so that an instance which never saw the stream can tell its client what became
/// of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Who numbered the event.
    pub epoch: Epoch,
    /// Which of its streams.
    pub stream: u64,
    /// The event; [`Seq::START`] before the first.
    pub seq: Seq,
    /// The request that waits for its answer.
    pub pending: Option<RequestId>,
    /// Whether nothing can come after it.
    pub terminal: bool,
}

/// Why a text is not a [`Cursor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotACursor;

impl fmt::Display for NotACursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an event id of this server")
    }
}

impl std::error::Error for NotACursor {}

impl Cursor {
    /// The longest text that is read, in bytes.
    pub const MAX_LEN: usize = 256;
    /// The longest id of a request that is carried, in bytes of JSON.
    pub const MAX_PENDING: usize = 64;

    /// The position at the start of a stream.
    #[must_use]
    pub fn new(key: &StreamKey, seq: Seq) -> Self {
        Self {
            epoch: key.epoch,
            stream: key.stream,
            seq,
            pending: None,
            terminal: false,
        }
    }

    /// The same position with the request that waits, if its id is short enough.
    #[must_use]
    pub fn waiting_for(mut self, request: Option<&RequestId>) -> Self {
        self.pending = request
            .filter(|id| id.as_json().len() <= Self::MAX_PENDING)
            .cloned();
        self
    }

    /// The same position as an end.
    #[must_use]
    pub fn terminal(mut self) -> Self {
        self.terminal = true;
        self.pending = None;
        self
    }

    /// Reads a cursor, exactly as [`Display`](fmt::Display) writes it.
    ///
    /// # Errors
    ///
    /// [`NotACursor`] for everything else; never panics, and looks at no more than [`MAX_LEN`](Self::MAX_LEN) bytes.
    pub fn parse(text: &[u8]) -> Result<Self, NotACursor> {
        Self::read(text).ok_or(NotACursor)
    }

    fn read(text: &[u8]) -> Option<Self> {
        if text.len() > Self::MAX_LEN || !text.is_ascii() {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        let mut parts = text.splitn(5, '.');
        let terminal = match parts.next()? {
            "g1" => false,
            "x1" => true,
            _ => return None,
        };
        let cursor = Self {
            terminal,
            epoch: Epoch::from_u128(u128::from_str_radix(parts.next()?, 16).ok()?),
            stream: u64::from_str_radix(parts.next()?, 16).ok()?,
            seq: Seq::new(parts.next()?.parse().ok()?),
            pending: match parts.next() {
                Some(pending) => Some(read_pending(pending)?),
                None => None,
            },
        };
        // One position has one text: no signs, no zeros in front, no other way to write the request.
        (cursor.to_string() == text).then_some(cursor)
    }

    /// The stream it is a position of, if it is one of this session's.
    #[must_use]
    pub fn key(&self, session: &crate::session::SessionId) -> StreamKey {
        StreamKey {
            session: session.clone(),
            epoch: self.epoch,
            stream: self.stream,
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.terminal { "x1" } else { "g1" })?;
        write!(f, ".{}.{:x}.{}", self.epoch, self.stream, self.seq)?;
        self.pending.as_ref().map_or(Ok(()), |id| {
            f.write_char('.')?;
            write_pending(f, id)
        })
    }
}

/// Integers and plain strings as they are, the rest as hexadecimal digits of its JSON.
pub(super) fn write_pending(f: &mut impl Write, id: &RequestId) -> fmt::Result {
    let json = id.as_json();
    if is_integer(json) {
        f.write_char('n')?;
        return f.write_str(json);
    }
    if let Some(text) = json
        .strip_prefix('"')
        .and_then(|json| json.strip_suffix('"'))
        && is_plain(text)
    {
        f.write_char('s')?;
        return f.write_str(text);
    }
    f.write_char('j')?;
    json.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn read_pending(text: &str) -> Option<RequestId> {
    let rest = text.get(1..)?;
    match text.as_bytes().first()? {
        b'n' if is_integer(rest) => RequestId::from_json(rest),
        b's' if is_plain(rest) => RequestId::from_json(&format!("\"{rest}\"")),
        b'j' => {
            let bytes: Option<Vec<u8>> = (0..rest.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(rest.get(at..at + 2)?, 16).ok())
                .collect();
            RequestId::from_json(std::str::from_utf8(&bytes?).ok()?)
        }
        _ => None,
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cursor(pending: Option<&str>) -> Cursor {
        Cursor {
            epoch: Epoch::from_u128(0xabc),
            stream: 0x1f,
            seq: Seq::new(42),
            pending: pending.map(|json| RequestId::from_json(json).unwrap()),
            terminal: false,
        }
    }

    #[test]
    fn one_position_has_one_text() {
        let epoch = "00000000000000000000000000000abc";
        let text = |pending| cursor(pending).to_string();
        assert_eq!(text(None), format!("g1.{epoch}.1f.42"));
        assert_eq!(text(Some("7")), format!("g1.{epoch}.1f.42.n7"));
        assert_eq!(text(Some("\"7\"")), format!("g1.{epoch}.1f.42.s7"));
        assert_eq!(text(Some("1.5")), format!("g1.{epoch}.1f.42.j312e35"));
        assert_eq!(
            cursor(Some("7")).terminal().to_string(),
            format!("x1.{epoch}.1f.42")
        );
        for wrong in [
            String::new(),
            "42".to_owned(),
            "1/0".to_owned(),
            format!("g1.{epoch}.1f"),
            format!("g1.{epoch}.1f.042"),
            format!("g1.{epoch}.1f.+42"),
            format!("g1.{epoch}.1F.42"),
            "g1.abc.1f.42".to_owned(),
            format!("g2.{epoch}.1f.42"),
            format!("g1.{epoch}.1f.42."),
            format!("g1.{epoch}.1f.42.n"),
            format!("g1.{epoch}.1f.42.n07"),
            format!("g1.{epoch}.1f.42.sa b"),
            format!("g1.{epoch}.1f.42.j37"),
            format!("g1.{epoch}.1f.42.n7.n8"),
            format!("g1.{epoch}.1f.42 "),
            format!("g1.{epoch}.1f.4\u{e9}"),
            format!("g1.{epoch}.1f.99999999999999999999"),
            format!("g1.{epoch}.1f.42.s{}", "a".repeat(300)),
        ] {
            assert_eq!(Cursor::parse(wrong.as_bytes()), Err(NotACursor), "{wrong}");
        }
    }

    #[test]
    fn a_long_request_id_is_left_out() {
        let id = RequestId::from_json(&format!("\"{}\"", "a".repeat(63))).unwrap();
        assert_eq!(cursor(None).waiting_for(Some(&id)).pending, None);
    }

    proptest! {
        #[test]
        fn every_cursor_comes_back(epoch: u128, stream: u64, seq: u64, number: Option<i64>, text in proptest::option::of("\\PC{0,20}"), terminal: bool) {
            let json = match (number, text) {
                (Some(number), _) => Some(number.to_string()),
                (None, Some(text)) => Some(serde_json::to_string(&text).unwrap()),
                (None, None) => None,
            };
            let id = json.and_then(|json| RequestId::from_json(&json));
            let mut cursor = Cursor { epoch: Epoch::from_u128(epoch), stream, seq: Seq::new(seq), pending: None, terminal: false }.waiting_for(id.as_ref());
            if terminal {
                cursor = cursor.terminal();
            }
            let text = cursor.to_string();
            prop_assert!(text.is_ascii());
            prop_assert_eq!(Cursor::parse(text.as_bytes()), Ok(cursor));
        }

        #[test]
        fn hostile_text_is_refused_and_nothing_else(text: Vec<u8>) {
            prop_assert!(Cursor::parse(&text).is_err());
        }
    }
}
