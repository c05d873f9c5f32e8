//! Events that are ready together, numbered and written once: what is logged and what is sent share the same bytes.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Chunk, Cursor};
use crate::{
    mcp::{RequestId, Subject, sse},
    store::{Event, Seq, StreamKey},
};

/// How one stream's events are numbered: the text of its cursors, all but the number.
#[derive(Debug)]
pub(crate) struct Numbering {
    prefix: Box<[u8]>,
    /// What follows the number while the request waits.
    waiting: Box<[u8]>,
}

impl Numbering {
    pub(crate) fn new(key: &StreamKey, pending: Option<&RequestId>) -> Self {
        let start = Cursor::new(key, Seq::START);
        let bare = start.to_string();
        let waiting = start.waiting_for(pending).to_string();
        // The number at the start is the digit at the end.
        let prefix = &bare[..bare.len() - 1];
        Self {
            prefix: format!("id: {prefix}").into_bytes().into(),
            waiting: waiting.as_bytes()[bare.len()..].into(),
        }
    }

    /// Writes the line with an event's id.
    pub(crate) fn write(&self, out: &mut BytesMut, seq: Seq, waits: bool) {
        out.put_slice(&self.prefix);
        out.put_slice(itoa::Buffer::new().format(seq.get()).as_bytes());
        if waits {
            out.put_slice(&self.waiting);
        }
        out.put_u8(b'\n');
    }

    fn overhead(&self) -> usize {
        self.prefix.len() + self.waiting.len() + 24
    }
}

/// Events in the making.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    out: BytesMut,
    events: Vec<(Subject, usize)>,
    answers: Vec<RequestId>,
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
            .reserve(data.len() + event.event.len() + numbering.map_or(24, Numbering::overhead));
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
    pub(crate) fn finish(&mut self, first: Seq, events: &mut Vec<Event>) -> Chunk {
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
    Bytes::from(format!("retry: {millis}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Epoch, SessionId};

    #[test]
    fn log_and_wire_are_the_same_bytes() {
        let key = StreamKey {
            session: SessionId::parse("s").unwrap(),
            epoch: Epoch::from_u128(1),
            stream: 9,
        };
        let id = RequestId::from_json("5").unwrap();
        let numbering = Numbering::new(&key, Some(&id));
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
        let mut events = Vec::new();
        let chunk = batch.finish(Seq::new(9), &mut events);
        let cursor = Cursor::new(&key, Seq::new(9)).waiting_for(Some(&id));
        let first = format!("id: {cursor}\ndata: a\ndata: b\n\n");
        let second = format!("id: {}\ndata: c\n\n", Cursor::new(&key, Seq::new(10)));
        assert_eq!(chunk.bytes, format!("{first}{second}"));
        assert_eq!(chunk.ends[..], [first.len()]);
        assert_eq!(chunk.answers, [id]);
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
}
