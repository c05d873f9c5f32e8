//! Server-sent events (WHATWG HTML, "Server-sent events"), decoded from bytes that are split anywhere, and encoded.
//!
//! The registry's decoders were looked at and not taken: `sse-stream`, `eventsource-stream`, `sse-core` and
//! `sse-parse` are made for clients. As the standard tells a client to, most of them pass over what a guard must see:
//! a priming event (an id with empty data), a comment that keeps a connection alive. `sse-stream` refuses streams
//! that browsers read, and `eventsource-stream` has no bound on an event. All of them copy each event into strings of
//! its own; here an event that lies in one piece of input is handed out where it lies.

use std::fmt;

use bytes::{BufMut, BytesMut};
use memchr::{memchr, memchr2};

/// What an event stream says next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item<'a> {
    /// A line that begins with a colon, without it.
    Comment(&'a [u8]),
    /// Fields up to an empty line.
    Event(Event<'a>),
}

/// One event. Unlike a browser's, it is reported without data too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Event<'a> {
    /// Its id; one with a NUL in it does not count.
    pub id: Option<&'a [u8]>,
    /// Its type; empty for `message`.
    pub event: &'a [u8],
    /// Its data, several lines joined by a line feed; `None` when it had no such field.
    pub data: Option<&'a [u8]>,
    /// How long to wait before a reconnect, in milliseconds.
    pub retry: Option<u64>,
}

impl<'a> Event<'a> {
    /// An event with this data and nothing else.
    #[must_use]
    pub fn of_data(data: &'a [u8]) -> Self {
        Self {
            data: Some(data),
            ..Self::default()
        }
    }
}

/// Incremental decoder of one event stream, from its first byte on.
///
/// Takes LF, CR and CRLF, a byte order mark, fields without a colon, and passes over fields it does not know. Holds
/// at most one event, no larger than its limit.
///
/// ```
/// use mcp_session_guard::mcp::sse::{Decoder, Item};
///
/// let mut decoder = Decoder::new(1024);
/// let mut seen = Vec::new();
/// for piece in [&b"id: 1\nda"[..], b"ta: a\ndata: b\n\n: still here\n"] {
///     decoder.feed(piece, |item| match item {
///         Item::Event(event) => seen.push(event.data.unwrap_or_default().to_vec()),
///         Item::Comment(text) => seen.push(text.to_vec()),
///         _ => {}
///     })?;
/// }
/// assert_eq!(seen, [&b"a\nb"[..], b" still here"]);
/// # Ok::<(), mcp_session_guard::mcp::sse::EventTooLarge>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// The part of a line that came in an earlier piece.
    line: Vec<u8>,
    fields: Fields,
    after_cr: bool,
    started: bool,
}

/// What of a buffer is kept for the next event.
const MAX_KEPT: usize = 256;

/// The event so far.
#[derive(Debug, Default)]
struct Fields {
    any: bool,
    has_id: bool,
    id: Vec<u8>,
    event: Vec<u8>,
    data: Option<Vec<u8>>,
    retry: Option<u64>,
}

impl Decoder {
    /// A decoder that takes no event with more than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            fields: Fields::default(),
            after_cr: false,
            started: false,
        }
    }

    /// Feeds a piece of the stream, and hands what it completes to `item`.
    ///
    /// # Errors
    ///
    /// [`EventTooLarge`] when an event outgrows the limit; nothing after that can be trusted.
    pub fn feed(
        &mut self,
        piece: &[u8],
        mut item: impl FnMut(Item<'_>),
    ) -> Result<(), EventTooLarge> {
        let mut rest = piece;
        if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        // The data of an event that has one line of it, all in this piece: not copied.
        let mut whole: Option<&[u8]> = None;
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (head, tail) = rest.split_at(end);
            rest = match tail {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, rest @ ..] => rest,
                [] => &[],
            };
            if self.line.is_empty() {
                let line = self.first(head);
                if line.is_empty() {
                    self.fields.end(whole.take(), &mut item);
                } else if let Some(data) = data_of(line)
                    && self.fields.data.is_none()
                    && whole.is_none()
                {
                    self.fields.any = true;
                    whole = Some(data);
                    self.check(data.len())?;
                } else {
                    self.fields.spill(whole.take());
                    self.fields.line(line, &mut item);
                    self.check(0)?;
                }
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.fields.spill(whole.take());
                let text = self.first(&line);
                if text.is_empty() {
                    self.fields.end(None, &mut item);
                } else {
                    self.fields.line(text, &mut item);
                }
                line.clear();
                self.line = line;
                self.check(0)?;
            }
        }
        self.fields.spill(whole);
        self.line.extend_from_slice(rest);
        self.check(0)
    }

    /// Whether what was fed so far ends with the end of an event.
    pub(crate) fn is_between_events(&self) -> bool {
        self.line.is_empty() && !self.fields.any
    }

    /// The line without the byte order mark that may open a stream.
    fn first<'a>(&mut self, line: &'a [u8]) -> &'a [u8] {
        if std::mem::replace(&mut self.started, true) {
            return line;
        }
        line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
    }

    fn check(&self, more: usize) -> Result<(), EventTooLarge> {
        if self.line.len() + self.fields.len() + more > self.limit {
            return Err(EventTooLarge { limit: self.limit });
        }
        Ok(())
    }
}

/// The value of a line that is a `data` field.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    match line.strip_prefix(b"data")? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

impl Fields {
    fn len(&self) -> usize {
        self.id.len() + self.event.len() + self.data.as_ref().map_or(0, Vec::len)
    }

    /// Keeps data that another line, or another piece, will go on from.
    fn spill(&mut self, whole: Option<&[u8]>) {
        if let Some(whole) = whole {
            self.data = Some(whole.to_vec());
        }
    }

    fn line(&mut self, line: &[u8], item: &mut impl FnMut(Item<'_>)) {
        if let [b':', comment @ ..] = line {
            return item(Item::Comment(comment));
        }
        let (name, value) = match memchr(b':', line) {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            b"id" if memchr(0, value).is_none() => {
                self.has_id = true;
                self.id.clear();
                self.id.extend_from_slice(value);
            }
            b"event" => {
                self.event.clear();
                self.event.extend_from_slice(value);
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                // Digits are text; a wait that no number holds is the longest there is.
                let digits = std::str::from_utf8(value).unwrap_or_default();
                self.retry = Some(digits.parse().unwrap_or(u64::MAX));
            }
            _ => return,
        }
        self.any = true;
    }

    fn end(&mut self, whole: Option<&[u8]>, item: &mut impl FnMut(Item<'_>)) {
        if !std::mem::take(&mut self.any) {
            return;
        }
        item(Item::Event(Event {
            id: self.has_id.then_some(&self.id),
            event: &self.event,
            data: whole.or(self.data.as_deref()),
            retry: self.retry,
        }));
        self.has_id = false;
        for text in [&mut self.id, &mut self.event] {
            text.clear();
            // Used again for the next event, unless this one was out of the ordinary.
            text.shrink_to(MAX_KEPT);
        }
        self.data = None;
        self.retry = None;
    }
}

/// An event with more bytes than the decoder was told to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTooLarge {
    limit: usize,
}

impl fmt::Display for EventTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event has more than {} bytes", self.limit)
    }
}

impl std::error::Error for EventTooLarge {}

/// Writes the end of an event: its type, unless that is empty, its data line by line, and the empty line.
///
/// An id is written before it, as a line of its own. Type and data are taken as a [`Decoder`] hands them out: no
/// line break in the type, no carriage return in the data.
pub fn encode(out: &mut BytesMut, event: &[u8], data: &[u8]) {
    if !event.is_empty() {
        out.put_slice(b"event: ");
        out.put_slice(event);
        out.put_u8(b'\n');
    }
    let mut rest = data;
    loop {
        let end = memchr(b'\n', rest);
        out.put_slice(b"data: ");
        out.put_slice(&rest[..end.unwrap_or(rest.len())]);
        out.put_u8(b'\n');
        match end {
            Some(end) => rest = &rest[end + 1..],
            None => break,
        }
    }
    out.put_u8(b'\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An item that outlives its input: comment, or id, type, data, retry.
    type Owned = (
        Option<String>,
        Option<String>,
        String,
        Option<String>,
        Option<u64>,
    );

    fn own(item: Item<'_>) -> Owned {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match item {
            Item::Comment(comment) => (Some(text(comment)), None, String::new(), None, None),
            Item::Event(event) => (
                None,
                event.id.map(text),
                text(event.event),
                event.data.map(text),
                event.retry,
            ),
        }
    }

    fn read(pieces: &[&[u8]]) -> Vec<Owned> {
        let mut decoder = Decoder::new(1 << 20);
        let mut items = Vec::new();
        for piece in pieces {
            decoder.feed(piece, |item| items.push(own(item))).unwrap();
        }
        items
    }

    fn data(stream: &[u8]) -> Vec<String> {
        read(&[stream])
            .into_iter()
            .filter_map(|(_, _, _, data, _)| data)
            .collect()
    }

    #[test]
    fn line_ends_byte_order_mark_and_lines() {
        assert_eq!(data(b"data: a\n\n"), ["a"]);
        assert_eq!(data(b"data: a\r\rdata:b\r\n\r\n"), ["a", "b"]);
        assert_eq!(data(b"\xef\xbb\xbfdata: a\n\n"), ["a"]);
        assert_eq!(
            data(b"data: a\ndata:  b\nevent: m\ndatum: x\n\n"),
            ["a\n b"]
        );
        assert_eq!(data(b"data\ndata\n\n"), ["\n"]);
        assert_eq!(data(b"data: cut off\n"), [""; 0]);
        assert_eq!(data(b"\n\n\r\n"), [""; 0]);
    }

    #[test]
    fn what_a_browser_passes_over() {
        let event = |id: Option<&str>, data: Option<&str>, retry| {
            (
                None,
                id.map(str::to_owned),
                String::new(),
                data.map(str::to_owned),
                retry,
            )
        };
        assert_eq!(
            read(&[b": ping\nid: 0\nretry: 3000\ndata:\n\n"]),
            [
                (Some(" ping".to_owned()), None, String::new(), None, None),
                event(Some("0"), Some(""), Some(3000))
            ]
        );
        assert_eq!(read(&[b"id\n\n"]), [event(Some(""), None, None)]);
        assert_eq!(
            read(&[b"id: a\0b\ndata: x\n\n"]),
            [event(None, Some("x"), None)]
        );
        assert_eq!(
            read(&[b"retry: 1x\ndata\n\n"]),
            [event(None, Some(""), None)]
        );
        assert_eq!(read(&[b"unknown: 1\n\n"]), []);
        // An event's fields are its own: nothing is carried over.
        assert_eq!(
            read(&[b"id: 1\nevent: e\nretry: 5\n\ndata: x\n\n"])[1],
            event(None, Some("x"), None)
        );
    }

    #[test]
    fn no_event_outgrows_the_limit() {
        let outcome = |pieces: &[&[u8]]| {
            let mut decoder = Decoder::new(16);
            pieces
                .iter()
                .try_for_each(|piece| decoder.feed(piece, |_| {}))
        };
        assert!(outcome(&[b"data: 0123456789\n\n"]).is_ok());
        assert!(outcome(&[b"data: 0123456789abcdefg\n\n"]).is_err());
        assert!(outcome(&[b"data: 01234567\ndata: 01234567\n\n"]).is_err());
        assert!(outcome(&[b"data: 0123", b"456789abcdef"]).is_err());
        assert!(outcome(&[b"id: 0123456789\nevent: 0123456789\n"]).is_err());
        assert!(outcome(&[&b"data: 0123456789\n\n"[..]; 100]).is_ok());
    }

    fn piece() -> impl Strategy<Value = String> {
        "((data|id|event|retry|other)?(: ?|)[a0\u{0}\u{e9}]{0,3}(\r\n|\r|\n)){0,8}[\r\n]{0,3}"
    }

    proptest! {
        #[test]
        fn where_it_is_split_makes_no_difference(text in piece(), mut cuts in proptest::collection::vec(0usize..64, 0..4)) {
            let bytes = text.as_bytes();
            cuts.iter_mut().for_each(|cut| *cut = (*cut).min(bytes.len()));
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(read(&pieces), read(&[bytes]));
        }

        #[test]
        fn what_is_encoded_is_decoded(event in "[^\r\n\u{feff}]{0,8}", data in "[^\r]{0,40}") {
            let mut out = BytesMut::from(&b"id: 7\n"[..]);
            encode(&mut out, event.as_bytes(), data.as_bytes());
            let items = read(&[&out]);
            // One space after the colon is the field's, so an event's type keeps its own.
            prop_assert_eq!(items, [(None, Some("7".to_owned()), event, Some(data), None)]);
        }
    }
}
