//! What logs weigh, and what they may: a session's bounds, and the memory of the whole store.

use std::{
    ops::{AddAssign, SubAssign},
    time::Duration,
};

use super::{
    MemoryConfig,
    log::{Log, Logged},
    shard::Entry,
};
use crate::{
    mcp::{RequestId, Subject},
    session::SessionId,
    store::{Event, Seq, StreamHeader},
};

/// Numbers without events: the first and the last of them.
pub(super) type Hole = (Seq, Seq);

/// Of an event, beside its bytes and what it is about. A deque may be twice as long as what is in it, and a hole may
/// follow each event.
const EVENT: usize = 192;
/// Of a stream without events, beside its requests.
const STREAM: usize = 896;
/// Of a session without streams, beside its id.
const SESSION: usize = 320;

const _: () = {
    assert!(EVENT >= 2 * size_of::<Logged>() + size_of::<Hole>());
    assert!(STREAM >= 2 * size_of::<Log>() + 4 * size_of::<Logged>());
    assert!(SESSION >= 2 * size_of::<Entry>());
};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Weight {
    /// Events.
    pub(super) events: usize,
    /// Bytes of events, as they are sent.
    pub(super) bytes: usize,
    /// Bytes of memory, near enough.
    pub(super) memory: usize,
}

impl Weight {
    #[inline]
    pub(super) fn of(event: &Event) -> Self {
        Self {
            events: 1,
            bytes: event.bytes.len(),
            memory: EVENT + event.bytes.len() + subject(&event.subject),
        }
    }

    pub(super) fn of_all(events: &[Event]) -> Self {
        let mut weight = Self::default();
        for event in events {
            weight += Self::of(event);
        }
        weight
    }

    pub(super) fn of_stream(header: &StreamHeader) -> Self {
        let request = |id: &RequestId| size_of::<RequestId>() + text(id);
        Self {
            memory: STREAM + header.requests.iter().map(request).sum::<usize>(),
            ..Self::default()
        }
    }

    pub(super) fn of_session(id: &SessionId) -> Self {
        Self {
            memory: SESSION + id.as_str().len(),
            ..Self::default()
        }
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.memory += other.memory;
    }
}

impl SubAssign for Weight {
    fn sub_assign(&mut self, other: Self) {
        self.events -= other.events;
        self.bytes -= other.bytes;
        self.memory -= other.memory;
    }
}

#[inline]
fn subject(subject: &Subject) -> usize {
    // Nearly always, and most of the weighing is of events that come or go one by one.
    if *subject == Subject::Nothing {
        return 0;
    }
    ids(subject)
}

/// An id's text and the counts of those who share it.
fn text(id: &RequestId) -> usize {
    2 * size_of::<usize>() + id.as_json().len()
}

fn ids(subject: &Subject) -> usize {
    match subject {
        Subject::Nothing => 0,
        Subject::Answer(id) | Subject::Question(id) => text(id),
        Subject::Batch(parts) => parts
            .iter()
            .map(|part| size_of::<Subject>() + ids(part))
            .sum(),
    }
}

/// What a session may have at most, times in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) events: usize,
    pub(super) bytes: usize,
    pub(super) streams: usize,
    pub(super) age: u64,
    /// How long a stream that is open and silent is left alone whatever the need.
    pub(super) patience: u64,
    pub(super) seals: u64,
}

impl Limits {
    pub(super) fn new(config: &MemoryConfig) -> Self {
        let age = nanos(config.max_event_age);
        Self {
            events: config.max_events_per_session,
            bytes: config.max_event_bytes_per_session,
            streams: config.max_streams_per_session,
            age,
            patience: age.saturating_mul(4),
            seals: nanos(config.tombstones),
        }
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
