//! One session's logs against a model that is too simple to be wrong: a list of events, looked through from the front.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mcp_session_guard::{
    clock::ManualClock,
    mcp::{RequestId, Subject},
    store::{
        Append, Ending, Event, EventStore, MemoryConfig, MemoryStore, Page, Seq, Snapshot,
        StoreErrorKind, StreamHeader,
    },
};
use proptest::prelude::*;

use super::{
    events::{events, fence, key},
    id,
};

const EVENTS: usize = 8;
const BYTES: usize = 200;
const STREAMS: usize = 3;
const AGE: u64 = 100;

#[derive(Debug, Default)]
struct Model {
    now: u64,
    sealed: u64,
    streams: BTreeMap<u64, Stream>,
    /// Of all streams, oldest first.
    events: Vec<Recorded>,
}

#[derive(Debug)]
struct Stream {
    fence: u64,
    head: u64,
    end: Option<u64>,
    keep: u64,
    /// Whether a reader said so, and not the producer.
    reader: bool,
    touched: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Recorded {
    stream: u64,
    number: u64,
    length: usize,
    at: u64,
}

/// What a snapshot says, without the header.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    head: u64,
    ended: bool,
    gap: Option<u64>,
    lengths: Vec<usize>,
    subjects: Vec<u64>,
}

type Outcome = Result<(), StoreErrorKind>;

impl Model {
    fn is_over(&self, stream: &Stream) -> bool {
        stream.end.is_some() || stream.fence < self.sealed
    }

    fn is_fresh(&self, stream: u64) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_some_and(|stream| self.now - stream.touched < AGE)
    }

    fn is_held(&self, event: &Recorded) -> bool {
        event.number >= self.streams[&event.stream].keep && self.is_fresh(event.stream)
    }

    /// Takes whatever is too old.
    fn age(&mut self) {
        let past: Vec<_> = (self.streams.iter())
            .filter(|(name, stream)| self.is_over(stream) && !self.is_fresh(**name))
            .map(|(name, _)| *name)
            .collect();
        past.into_iter().for_each(|name| self.forget(name));
        let old = |event: &Recorded| self.now - event.at >= AGE && !self.is_held(event);
        self.events = self
            .events
            .iter()
            .filter(|event| !old(event))
            .cloned()
            .collect();
    }

    fn forget(&mut self, stream: u64) {
        self.streams.remove(&stream);
        self.events.retain(|event| event.stream != stream);
    }

    fn open(&mut self, name: u64, fence: u64) -> Outcome {
        if fence < self.sealed {
            return Err(StoreErrorKind::Fenced);
        }
        self.age();
        if let Some(stream) = self.streams.get(&name) {
            return match stream.fence == fence {
                true => Ok(()),
                false => Err(StoreErrorKind::Corrupt),
            };
        }
        if self.streams.len() == STREAMS {
            let silent = |stream: &Stream| self.now - stream.touched >= 4 * AGE;
            let over = |name: &u64, stream: &Stream| {
                self.is_over(stream) && !(self.is_fresh(*name) && stream.keep <= stream.head)
            };
            let oldest = (self.streams.iter())
                .filter(|(name, stream)| over(name, stream) || silent(stream))
                .min_by_key(|(name, stream)| (!over(name, stream), **name));
            let Some((&oldest, _)) = oldest else {
                return Err(StoreErrorKind::Full);
            };
            self.forget(oldest);
        }
        let stream = Stream {
            fence,
            head: 0,
            end: None,
            keep: 1,
            reader: false,
            touched: self.now,
        };
        self.streams.insert(name, stream);
        Ok(())
    }

    fn append(&mut self, name: u64, first: u64, lengths: &[usize], keep: u64) -> Outcome {
        self.age();
        let writable = |stream: &&Stream| !self.is_over(stream);
        if self.streams.get(&name).filter(writable).is_none() {
            return Err(StoreErrorKind::Fenced);
        }
        let Some(stream) = self.streams.get_mut(&name) else {
            unreachable!()
        };
        (stream.keep, stream.reader, stream.touched) = (keep, false, self.now);
        let head = stream.head;
        self.age();
        let news: Vec<_> = (first..)
            .zip(lengths)
            .filter(|(number, _)| *number > head)
            .map(|(number, length)| Recorded {
                stream: name,
                number,
                length: *length,
                at: self.now,
            })
            .collect();
        let Some(last) = news.last().map(|event| event.number) else {
            return Ok(());
        };
        let length = |events: &[Recorded]| events.iter().map(|event| event.length).sum::<usize>();
        if news.len() > EVENTS || length(&news) > BYTES {
            return Err(StoreErrorKind::Full);
        }
        while self.events.len() + news.len() > EVENTS
            || length(&self.events) + length(&news) > BYTES
        {
            let free = self.events.iter().position(|event| !self.is_held(event));
            self.events.remove(free.ok_or(StoreErrorKind::Full)?);
        }
        self.events.extend(news);
        self.streams
            .entry(name)
            .and_modify(|stream| stream.head = last);
        Ok(())
    }

    fn end(&mut self, name: u64, last: u64) -> Outcome {
        self.age();
        let (now, sealed) = (self.now, self.sealed);
        let stream = self.streams.get_mut(&name);
        let Some(stream) = stream.filter(|stream| stream.fence >= sealed) else {
            return Err(StoreErrorKind::Fenced);
        };
        if stream.end.is_some_and(|end| end != last) {
            return Err(StoreErrorKind::Fenced);
        }
        stream.head = stream.head.max(last);
        if stream.end.is_none() && !stream.reader {
            stream.keep = stream.head + 1;
        }
        (stream.end, stream.touched) = (Some(last), now);
        Ok(())
    }

    fn read(&mut self, name: u64, after: u64, page: Page) -> Option<Told> {
        self.age();
        let now = self.now;
        let stream = self.streams.get_mut(&name)?;
        stream.touched = now;
        if after <= stream.head {
            (stream.keep, stream.reader) = (after + 1, true);
        }
        let find = |number: u64| {
            let mut events = self.events.iter();
            events.find(|event| event.stream == name && event.number == number)
        };
        let gap = (after + 1..=stream.head).find(|number| find(*number).is_none());
        let mut lengths: Vec<usize> = Vec::new();
        for event in (after + 1..).map_while(find) {
            let bytes = lengths.iter().sum::<usize>() + event.length;
            if !lengths.is_empty() && (lengths.len() >= page.events || bytes > page.bytes) {
                break;
            }
            lengths.push(event.length);
        }
        let subjects = (after + 1..=stream.head)
            .filter(|number| number % 2 == 0 && find(*number).is_some())
            .collect();
        Some(Told {
            head: stream.head,
            ended: stream.end.is_some(),
            gap,
            lengths,
            subjects,
        })
    }

    fn seal(&mut self, below: u64) {
        self.age();
        let (now, sealed) = (self.now, self.sealed);
        for stream in self.streams.values_mut() {
            if stream.end.is_none() && (sealed..below).contains(&stream.fence) {
                stream.touched = now;
            }
        }
        self.sealed = sealed.max(below);
    }
}

impl From<Snapshot> for Told {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            head: snapshot.head.get(),
            ended: snapshot.ending.is_some(),
            gap: snapshot.gap.map(Seq::get),
            lengths: snapshot
                .events
                .iter()
                .map(|event| event.bytes.len())
                .collect(),
            subjects: snapshot.subjects.iter().map(|told| told.0.get()).collect(),
        }
    }
}

#[derive(Debug, Clone)]
enum Verb {
    Open {
        fence: u64,
    },
    /// From so many before or after what comes next.
    Append {
        from: i64,
        lengths: Vec<usize>,
        behind: i64,
    },
    End {
        more: u64,
    },
    Read {
        from: i64,
        page: Page,
    },
    Seal {
        below: u64,
    },
    Pass {
        seconds: u64,
    },
}

fn verb() -> impl Strategy<Value = Verb> {
    let lengths = proptest::collection::vec(10..60usize, 0..4);
    let page = (0..4usize, 0..120usize).prop_map(|(events, bytes)| Page { events, bytes });
    prop_oneof![
        6 => (0..3u64).prop_map(|fence| Verb::Open { fence }),
        20 => (-3..3i64, lengths, -2..6i64)
            .prop_map(|(from, lengths, behind)| Verb::Append { from, lengths, behind }),
        2 => (0..3u64).prop_map(|more| Verb::End { more }),
        8 => (-8..3i64, page).prop_map(|(from, page)| Verb::Read { from, page }),
        1 => (0..3u64).prop_map(|below| Verb::Seal { below }),
        3 => (0..70u64).prop_map(|seconds| Verb::Pass { seconds }),
        1 => (100..500u64).prop_map(|seconds| Verb::Pass { seconds }),
    ]
}

fn event(number: u64, length: usize) -> Event {
    let mut event = events(0..1, length).remove(0);
    if number.is_multiple_of(2) {
        event.subject = RequestId::from_json(&number.to_string())
            .map(Subject::Answer)
            .unwrap();
    }
    event
}

fn told<T>(outcome: Result<T, mcp_session_guard::store::StoreError>) -> Result<T, StoreErrorKind> {
    outcome.map_err(|error| error.kind())
}

async fn follow(verbs: Vec<(u64, Verb)>) {
    let clock = Arc::new(ManualClock::new());
    let config = MemoryConfig::default()
        .with_max_events_per_session(EVENTS)
        .with_max_event_bytes_per_session(BYTES)
        .with_max_streams_per_session(STREAMS)
        .with_max_event_age(Duration::from_secs(AGE))
        .with_tombstones(Duration::MAX);
    let store = MemoryStore::with_clock(config, clock.clone());
    let mut model = Model::default();
    // What each producer would say next; a stream that was forgotten is another one when it is opened again.
    let mut next = BTreeMap::new();
    for (stream, verb) in verbs {
        let key = key(0, stream);
        let next = next.entry(stream).or_insert(1u64);
        let near = |by: i64| next.saturating_add_signed(by);
        match verb.clone() {
            Verb::Open { fence: by } => {
                // Which of those that are over makes place depends on what was swept. This sweeps, and seals nothing.
                store.seal(&id(0), fence(0)).await.unwrap();
                let header = StreamHeader::new(key, fence(by), None, []);
                let opened = told(store.open(&header).await);
                assert_eq!(opened, model.open(stream, by), "{stream} {verb:?}");
            }
            Verb::Append {
                from,
                lengths,
                behind,
            } => {
                let (first, keep) = (near(from).max(1), near(-behind));
                let events: Vec<_> = (first..)
                    .zip(&lengths)
                    .map(|(number, length)| event(number, *length))
                    .collect();
                let append = Append {
                    key: &key,
                    first: Seq::new(first),
                    events: &events,
                    keep: Seq::new(keep),
                };
                let appended = told(store.append(&append).await);
                let expected = model.append(stream, first, &lengths, keep);
                assert_eq!(appended, expected, "{stream} {verb:?}");
                *next = (*next).max(first + lengths.len() as u64);
            }
            Verb::End { more } => {
                let last = near(more as i64 - 1);
                let ended = store.end(&key, Seq::new(last), Ending::Answered).await;
                assert_eq!(told(ended), model.end(stream, last), "{stream} {verb:?}");
            }
            Verb::Read { from, page } => {
                let after = near(from);
                let read = store.read_after(&key, Seq::new(after), page).await;
                let read = read.unwrap().map(Told::from);
                assert_eq!(read, model.read(stream, after, page), "{stream} {verb:?}");
            }
            Verb::Seal { below } => {
                store.seal(&id(0), fence(below)).await.unwrap();
                model.seal(below);
            }
            Verb::Pass { seconds } => {
                clock.advance(Duration::from_secs(seconds));
                model.now += seconds;
                model.age();
            }
        }
        if !model.streams.contains_key(&stream) {
            *next = 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_logs_of_a_session_are_as_the_model_says(
        verbs in proptest::collection::vec((1..6u64, verb()), 1..120),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(follow(verbs));
    }
}
