//! What a log keeps, as bytes: the header of a stream, and events that were recorded at once.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{fault::Fault, record};
use crate::{
    mcp::{RequestId, Subject},
    session::{CapabilityHash, Epoch},
    store::{Event, Seq, StreamHeader, StreamKey},
};

/// At most so many events are recorded as one, so that little is read that nobody asked for.
const EVENTS: usize = 64;
/// And so many bytes, unless there is only one event.
const BYTES: usize = 32 * 1024;
/// The number of the first event and how many there are, before their lengths.
const FIXED: usize = 12;

/// The largest number that a script can count to.
pub(super) const LAST: u64 = 1 << 53;

/// A header with its own key in it, since the name of the key has only a hash.
#[derive(Serialize, Deserialize)]
struct Header<'a> {
    session: Cow<'a, str>,
    epoch: String,
    stream: u64,
    fence: String,
    capabilities: Option<String>,
    requests: Vec<Cow<'a, str>>,
    opened_by: usize,
}

pub(super) fn header(header: &StreamHeader) -> Vec<u8> {
    let parts = Header {
        session: header.key.session.as_str().into(),
        epoch: header.key.epoch.to_string(),
        stream: header.key.stream,
        fence: record::fence(header.fence),
        capabilities: header.capabilities.as_ref().map(CapabilityHash::to_string),
        requests: (header.requests.iter())
            .map(|id| id.as_json().into())
            .collect(),
        opened_by: header.opened_by,
    };
    // Texts and numbers always have a JSON.
    serde_json::to_vec(&parts).unwrap_or_default()
}

/// Reads a header and holds it against the stream that it was found under.
pub(super) fn read_header(bytes: &[u8], key: &StreamKey) -> Result<StreamHeader, Fault> {
    let wrong = || Fault::Misread("a header that cannot be read");
    let parts: Header<'_> = serde_json::from_slice(bytes).map_err(|_| wrong())?;
    let epoch = u128::from_str_radix(&parts.epoch, 16).map_err(|_| wrong())?;
    if parts.session != key.session.as_str()
        || Epoch::from_u128(epoch) != key.epoch
        || parts.stream != key.stream
    {
        return Err(Fault::Misread("the header of another stream"));
    }
    let capabilities = parts.capabilities.as_deref();
    let capabilities = capabilities.map(record::read_capabilities).transpose()?;
    let requests = parts.requests.iter().map(|id| RequestId::from_json(id));
    let requests = requests.collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
    let fence = record::read_fence(&parts.fence)?;
    let mut header = StreamHeader::new(key.clone(), fence, capabilities, requests);
    header.opened_by = parts.opened_by;
    Ok(header)
}

/// Events that are recorded as one.
pub(super) struct Chunk {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) bytes: usize,
    pub(super) blob: Vec<u8>,
    pub(super) about: String,
}

/// A batch, cut into pieces.
pub(super) fn chunks(first: Seq, events: &[Event]) -> impl Iterator<Item = Chunk> {
    let (mut rest, mut first) = (events, first.get());
    std::iter::from_fn(move || {
        let mut bytes = 0usize;
        let fits = |event: &&Event| {
            bytes += event.bytes.len();
            bytes <= BYTES
        };
        let count = rest.iter().take(EVENTS).take_while(fits).count().max(1);
        let (piece, left) = rest.split_at_checked(count)?;
        let chunk = chunk(first, piece);
        (rest, first) = (left, chunk.last + 1);
        Some(chunk)
    })
}

fn chunk(first: u64, events: &[Event]) -> Chunk {
    let bytes = events.iter().map(|event| event.bytes.len()).sum();
    let mut blob = Vec::with_capacity(FIXED + 4 * events.len() + bytes);
    let mut about = Vec::new();
    blob.extend(first.to_le_bytes());
    blob.extend((events.len() as u32).to_le_bytes());
    for (event, number) in events.iter().zip(first..) {
        blob.extend((event.bytes.len() as u32).to_le_bytes());
        if event.subject != Subject::Nothing {
            about.push((number, Told::of(&event.subject)));
        }
    }
    for event in events {
        blob.extend(&event.bytes);
    }
    let about = match about.is_empty() {
        true => String::new(),
        false => serde_json::to_string(&about).unwrap_or_default(),
    };
    Chunk {
        first,
        last: first + (events.len() as u64).saturating_sub(1),
        bytes,
        blob,
        about,
    }
}

/// The events of a piece from number `from` on, all of them about nothing as yet. They share its bytes.
pub(super) fn events(blob: Vec<u8>, from: u64) -> Result<Vec<Event>, Fault> {
    let wrong = || Fault::Misread("events that cannot be read");
    let blob = Bytes::from(blob);
    let first = blob.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let count = blob.get(8..FIXED).and_then(<[u8]>::first_chunk);
    let count = count.map(|bytes| u32::from_le_bytes(*bytes) as usize);
    let (first, count) = first.zip(count).ok_or_else(wrong)?;
    let skipped = usize::try_from(from.saturating_sub(first)).map_err(|_| wrong())?;
    // Before room is made for so many: what is read may say anything.
    let table = count.checked_mul(4).ok_or_else(wrong)?;
    let lengths = blob.get(FIXED..).and_then(|rest| rest.get(..table));
    let lengths = lengths.ok_or_else(wrong)?;
    let mut at = FIXED + table;
    let mut events = Vec::with_capacity(count.saturating_sub(skipped));
    for (n, length) in lengths.chunks_exact(4).enumerate() {
        let length = length.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let end = at + length.ok_or_else(wrong)? as usize;
        if end > blob.len() {
            return Err(wrong());
        }
        if n >= skipped {
            events.push(Event {
                subject: Subject::Nothing,
                bytes: blob.slice(at..end),
            });
        }
        at = end;
    }
    Ok(events)
}

/// What the events of a piece are about.
pub(super) fn subjects(about: &str) -> Result<Vec<(u64, Subject)>, Fault> {
    let wrong = || Fault::Misread("subjects that cannot be read");
    let told: Vec<(u64, Told<'_>)> = serde_json::from_str(about).map_err(|_| wrong())?;
    let subjects = told
        .iter()
        .map(|(number, told)| Some((*number, told.subject()?)));
    subjects.collect::<Option<_>>().ok_or_else(wrong)
}

/// A subject, its ids as texts that keep the way they were written.
#[derive(Serialize, Deserialize)]
enum Told<'a> {
    #[serde(rename = "n")]
    Nothing,
    #[serde(rename = "a", borrow)]
    Answer(Cow<'a, str>),
    #[serde(rename = "q", borrow)]
    Question(Cow<'a, str>),
    #[serde(rename = "b", borrow)]
    Batch(Vec<Told<'a>>),
}

impl<'a> Told<'a> {
    fn of(subject: &'a Subject) -> Self {
        match subject {
            Subject::Nothing => Self::Nothing,
            Subject::Answer(id) => Self::Answer(id.as_json().into()),
            Subject::Question(id) => Self::Question(id.as_json().into()),
            Subject::Batch(parts) => Self::Batch(parts.iter().map(Self::of).collect()),
        }
    }

    fn subject(&self) -> Option<Subject> {
        Some(match self {
            Self::Nothing => Subject::Nothing,
            Self::Answer(id) => Subject::Answer(RequestId::from_json(id)?),
            Self::Question(id) => Subject::Question(RequestId::from_json(id)?),
            Self::Batch(parts) => {
                Subject::Batch(parts.iter().map(Self::subject).collect::<Option<_>>()?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_give_back_the_batch(lengths in proptest::collection::vec(0usize..2000, 1..200), first in 1u64..1000) {
            let event = |length: usize| Event { subject: Subject::Nothing, bytes: vec![b'x'; length].into() };
            let batch: Vec<_> = lengths.into_iter().map(event).collect();
            let (mut read, mut next) = (Vec::new(), first);
            for chunk in chunks(Seq::new(first), &batch) {
                prop_assert_eq!(chunk.first, next);
                next = chunk.last + 1;
                read.extend(events(chunk.blob, chunk.first).unwrap());
            }
            prop_assert_eq!(read, batch);
        }

        #[test]
        fn whatever_bytes_there_are_they_are_read_or_refused(bytes: Vec<u8>, from: u64) {
            let _ = events(bytes, from);
        }
    }

    #[test]
    fn more_events_than_there_is_room_for_are_not_believed_in() {
        assert!(events([[0; 8].as_slice(), &[255; 4]].concat(), 0).is_err());
    }

    #[test]
    fn an_empty_batch_has_no_pieces() {
        assert_eq!(chunks(Seq::new(1), &[]).count(), 0);
    }
}
