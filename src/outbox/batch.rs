//! Events that are ready together, numbered and written once: what is logged and what is sent share the same bytes.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::{Chunk, Cursor, cursor::write_pending};
use crate::{
    mcp::{RequestId, RequestIds, Subject, sse},
    session::Epoch,
    store::{Event, Seq},
};

/// The text that the cursors of one producer begin with, as a line of an event.
#[derive(Debug, Clone)]
pub(crate) struct Prefix(Arc<str>);

impl Prefix {
    pub(crate) fn new(epoch: Epoch) -> Self {
        Self(format!("id: g1.{epoch}.").into())
    }
}

/// How one stream's events are numbered: the text of its cursors, all but the number.
#[derive(Debug)]
pub(crate) struct Numbering {
    text: String,
    /// Where the number stands; what follows it is there while the request waits.
    at: usize,
}

impl Numbering {
    pub(crate) fn new(prefix: &Prefix, stream: u64, pending: Option<&RequestId>) -> Self {
        let mut text = String::with_capacity(prefix.0.len() + 32);
        text.push_str(&prefix.0);
        push_hex(&mut text, stream);
        text.push('.');
        let at = text.len();
        if let Some(id) = pending
            && id.as_json().len() <= Cursor::MAX_PENDING
        {
            text.push('.');
            // Writing to a string cannot fail.
            let _ = write_pending(&mut text, id);
        }
        Self { text, at }
    }

    /// Writes the line with an event's id.
    pub(crate) fn write(&self, out: &mut BytesMut, seq: Seq, waits: bool) {
        let (before, after) = self.text.as_bytes().split_at(self.at);
        out.put_slice(before);
        out.put_slice(itoa::Buffer::new().format(seq.get()).as_bytes());
        if waits {
            out.put_slice(after);
        }
        out.put_u8(b'\n');
    }

    /// How many bytes an event has beside its data, at most.
    fn overhead(&self) -> usize {
        self.text.len() + 32
    }
}

fn push_hex(text: &mut String, number: u64) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let nibble = (number >> (4 * digit)) & 0xf;
        text.push(char::from_digit(nibble as u32, 16).unwrap_or('0'));
    }
}

/// Events as a log takes them.
pub(crate) type Events = SmallVec<[Event; 1]>;

/// Events in the making.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    out: BytesMut,
    events: SmallVec<[(Subject, usize); 1]>,
    answers: RequestIds,
}

/// What a batch holds at most before it is sent on, unless a single event is longer: the size of a frame.
pub(crate) const MAX_FRAME: usize = 16 * 1024;
const MAX_EVENTS: usize = 256;

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.out.len() >= MAX_FRAME || self.events.len() >= MAX_EVENTS
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn push(
        &mut self,
        numbering: Option<&Numbering>,
        seq: Seq,
        waits: bool,
        event: sse::Event<'_>,
        subject: Subject,
    ) {
        let data = event.data.unwrap_or_default();
        self.out
            .reserve(data.len() + event.event.len() + numbering.map_or(32, Numbering::overhead));
        if let Some(numbering) = numbering {
            numbering.write(&mut self.out, seq, waits);
        }
        sse::encode(&mut self.out, event.event, data);
        if subject != Subject::Nothing {
            subject.visit(&mut |part| {
                if let Subject::Answer(id) = part {
                    self.answers.push(id.clone());
                }
            });
        }
        self.events.push((subject, self.out.len()));
    }

    /// The batch as one chunk for the wire, and into `events` as single events for the log.
    pub(crate) fn finish(&mut self, first: Seq, events: &mut Events) -> Chunk {
        let bytes = std::mem::take(&mut self.out).freeze();
        let ends = self.events[..self.events.len().saturating_sub(1)]
            .iter()
            .map(|(_, end)| *end)
            .collect();
        events.clear();
        if self.events.len() == 1 {
            let subject = self.events.drain(..).next().map(|(subject, _)| subject);
            events.push(Event {
                subject: subject.unwrap_or_default(),
                bytes: bytes.clone(),
            });
        } else {
            let mut from = 0;
            events.extend(self.events.drain(..).map(|(subject, end)| Event {
                subject,
                bytes: bytes.slice(std::mem::replace(&mut from, end)..end),
            }));
        }
        Chunk {
            first,
            bytes,
            ends,
            answers: std::mem::take(&mut self.answers),
            logged: false,
        }
    }
}

/// The first event of a numbered stream.
pub(crate) fn priming(numbering: &Numbering, before: Seq, waits: bool) -> Bytes {
    let mut out = BytesMut::with_capacity(numbering.overhead());
    numbering.write(&mut out, before, waits);
    out.put_slice(b"data:\n\n");
    out.freeze()
}

/// An event without data: a position that a client can come back to, before there is anything to say.
pub(crate) fn bare_event(cursor: &Cursor) -> Bytes {
    Bytes::from(format!("id: {cursor}\ndata:\n\n"))
}

/// The last event of a stream that cannot be gone on with.
pub(crate) fn last_event(cursor: &Cursor, message: &[u8]) -> Bytes {
    let mut out = BytesMut::from(format!("id: {cursor}\n").as_bytes());
    sse::encode(&mut out, b"", message);
    out.freeze()
}

/// A comment, which keeps a connection alive and says nothing.
pub(crate) fn comment(text: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(text.len() + 3);
    out.put_u8(b':');
    out.put_slice(text);
    out.put_slice(b"\n\n");
    out.freeze()
}

/// How long to wait before a reconnect.
pub(crate) fn retry(millis: u64) -> Bytes {
    let mut out = Vec::with_capacity(32);
    out.put_slice(b"retry: ");
    out.put_slice(itoa::Buffer::new().format(millis).as_bytes());
    out.put_slice(b"\n\n");
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{session::SessionId, store::StreamKey};

    #[test]
    fn log_and_wire_are_the_same_bytes() {
        let key = StreamKey {
            session: SessionId::parse("s").unwrap(),
            epoch: Epoch::from_u128(1),
            stream: 9,
        };
        let id = RequestId::from_json("5").unwrap();
        let numbering = Numbering::new(&Prefix::new(key.epoch), key.stream, Some(&id));
        let mut batch = Batch::default();
        let decoded = |text: &'static str| sse::Event::of_data(text.as_bytes());
        batch.push(
            Some(&numbering),
            Seq::new(9),
            true,
            decoded("a\nb"),
            Subject::Nothing,
        );
        batch.push(
            Some(&numbering),
            Seq::new(10),
            false,
            decoded("c"),
            Subject::Answer(id.clone()),
        );
        let mut events = Events::new();
        let chunk = batch.finish(Seq::new(9), &mut events);
        let cursor = Cursor::new(&key, Seq::new(9)).waiting_for(Some(&id));
        let first = format!("id: {cursor}\ndata: a\ndata: b\n\n");
        let second = format!("id: {}\ndata: c\n\n", Cursor::new(&key, Seq::new(10)));
        assert_eq!(chunk.bytes, format!("{first}{second}"));
        assert_eq!(chunk.ends[..], [first.len()]);
        assert_eq!(chunk.answers[..], [id]);
        assert_eq!(
            events
                .iter()
                .map(|event| &event.bytes[..])
                .collect::<Vec<_>>(),
            [first.as_bytes(), second.as_bytes()]
        );
        assert!(batch.is_empty());
        assert!(chunk.bytes.as_ptr() == events[0].bytes.as_ptr());
    }

    #[test]
    fn the_text_is_that_of_a_cursor() {
        for stream in [0, 1, 15, 16, 0xabc, u64::MAX] {
            for pending in [
                None,
                Some("7"),
                Some("\"a-b\""),
                Some("\"a b\""),
                Some("1.5"),
            ] {
                let id = pending.map(|json| RequestId::from_json(json).unwrap());
                let key = StreamKey {
                    session: SessionId::parse("s").unwrap(),
                    epoch: Epoch::from_u128(0x1234),
                    stream,
                };
                let numbering = Numbering::new(&Prefix::new(key.epoch), stream, id.as_ref());
                let cursor = Cursor::new(&key, Seq::new(12)).waiting_for(id.as_ref());
                let first = priming(&numbering, Seq::new(12), true);
                assert_eq!(first, bare_event(&cursor));
            }
        }
    }
}
