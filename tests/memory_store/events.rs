//! The embedded store's logs: the contract, and the memory that they take.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use mcp_session_guard::{
    clock::ManualClock,
    mcp::Subject,
    session::{Epoch, Fence, Incarnation},
    store::{
        Append, Ending, Event, EventStore, MemoryConfig, MemoryStore, Page, Seq, SharedEvents,
        Snapshot, StoreError, StoreErrorKind, StreamHeader, StreamKey,
        contract::{EventHarness, EventRetention},
    },
};
use proptest::prelude::*;

use super::{InMemory, id};

const AGE: Duration = Duration::from_secs(100);

impl EventHarness for InMemory {
    type Events = MemoryStore;

    async fn start(retention: EventRetention) -> Self {
        let config = MemoryConfig::default()
            .with_max_events_per_session(retention.events)
            .with_max_event_bytes_per_session(retention.bytes)
            .with_max_event_age(retention.age)
            .with_max_streams_per_session(retention.streams);
        Self::with(config)
    }

    fn events(&self) -> &MemoryStore {
        &self.store
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

mod contract {
    use super::*;

    mcp_session_guard::event_contract!(InMemory);
}

/// The same store behind the adapter that hides which one it is.
struct Erased(Arc<ManualClock>, SharedEvents);

impl EventHarness for Erased {
    type Events = SharedEvents;

    async fn start(retention: EventRetention) -> Self {
        let InMemory { store, clock } = <InMemory as EventHarness>::start(retention).await;
        Self(clock, SharedEvents::new(store))
    }

    fn events(&self) -> &SharedEvents {
        &self.1
    }

    async fn pass(&self, time: Duration) {
        self.0.advance(time);
    }
}

mod erased_contract {
    use super::*;

    mcp_session_guard::event_contract!(Erased);
}

pub(super) fn key(session: usize, stream: u64) -> StreamKey {
    StreamKey {
        session: id(session),
        epoch: Epoch::from_u128(1),
        stream,
    }
}

pub(super) fn fence(counter: u64) -> Fence {
    Fence::new(Incarnation::new(1, 1), counter)
}

pub(super) fn events(numbers: std::ops::Range<u64>, length: usize) -> Vec<Event> {
    numbers
        .map(|_| Event {
            subject: Subject::Nothing,
            bytes: Bytes::from(vec![b'x'; length]),
        })
        .collect()
}

impl InMemory {
    fn small(memory: usize) -> Self {
        Self::with(
            MemoryConfig::default()
                .with_max_event_age(AGE)
                .with_max_event_bytes(memory),
        )
    }

    async fn open(&self, key: &StreamKey) -> Result<(), StoreError> {
        let header = StreamHeader::new(key.clone(), fence(5), None, []);
        self.store.open(&header).await
    }

    /// Appends so many events of 200 bytes. The last ones from `keep` on have yet to be read.
    async fn say(
        &self,
        key: &StreamKey,
        first: u64,
        last: u64,
        keep: u64,
    ) -> Result<(), StoreError> {
        let events = events(first..last + 1, 200);
        let append = Append {
            key,
            first: Seq::new(first),
            events: &events,
            keep: Seq::new(keep),
        };
        self.store.append(&append).await
    }

    async fn end(&self, key: &StreamKey, last: u64) {
        let last = Seq::new(last);
        let ended = self.store.end(key, last, Ending::Answered).await;
        ended.unwrap();
    }

    async fn read(&self, key: &StreamKey, after: u64) -> Option<Snapshot> {
        let page = Page {
            events: usize::MAX,
            bytes: usize::MAX,
        };
        let read = self.store.read_after(key, Seq::new(after), page).await;
        read.unwrap()
    }

    /// Other sessions are served, which is what memory is given back by.
    async fn others_are_served(&self) {
        for n in 0..100 {
            assert_eq!(self.read(&key(1_000_000 + n, 1), 0).await, None);
        }
    }
}

fn kind<T>(outcome: Result<T, StoreError>) -> Option<StoreErrorKind> {
    outcome.err().map(|error| error.kind())
}

#[tokio::test]
async fn a_thousand_sessions_keep_their_streams_apart() {
    let harness = InMemory::with(MemoryConfig::default().with_max_event_age(AGE));
    for first in [1, 6, 11, 16] {
        for n in 0..1000 {
            for stream in [1, 2] {
                harness.open(&key(n, stream)).await.unwrap();
                let last = first + 4 - stream;
                harness
                    .say(&key(n, stream), first, last, first)
                    .await
                    .unwrap();
            }
        }
    }
    for n in 0..1000 {
        for stream in [1, 2] {
            let snapshot = harness.read(&key(n, stream), 15).await.unwrap();
            assert_eq!(snapshot.header.key, key(n, stream));
            assert_eq!(snapshot.head, Seq::new(20 - stream));
            assert_eq!(snapshot.events.len() as u64, 5 - stream);
        }
    }
}

#[tokio::test]
async fn a_silent_session_gives_its_memory_back() {
    let harness = InMemory::small(64 << 20);
    for n in 0..1000 {
        for stream in [1, 2] {
            harness.open(&key(n, stream)).await.unwrap();
            harness.say(&key(n, stream), 1, 20, 1).await.unwrap();
        }
        harness.end(&key(n, 1), 20).await;
    }
    let full = harness.store.event_bytes();
    assert!(full > 1000 * 40 * 200);
    harness.clock.advance(AGE);
    harness.others_are_served().await;
    // What is left is what the streams are that are open.
    let open = harness.store.event_bytes();
    assert!(open < 1000 * 1500 && open > 1000 * 500, "{open}");
    for n in 0..1000 {
        assert_eq!(harness.read(&key(n, 2), 20).await.unwrap().gap, None);
        harness.end(&key(n, 2), 20).await;
    }
    harness.clock.advance(AGE);
    harness.others_are_served().await;
    assert_eq!(harness.store.event_bytes(), 0);
}

#[tokio::test]
async fn a_full_store_says_so_and_forgets_nothing_that_is_held() {
    let harness = InMemory::small(100_000);
    let mut held = Vec::new();
    let refused = loop {
        let key = key(held.len(), 1);
        if let Err(error) = harness.open(&key).await {
            break error.kind();
        }
        if let Err(error) = harness.say(&key, 1, 10, 1).await {
            break error.kind();
        }
        held.push(key);
    };
    assert_eq!(refused, StoreErrorKind::Full);
    // Nearly all of it is used.
    assert!(harness.store.event_bytes() > 90_000);
    assert!(harness.store.event_bytes() <= 100_000);
    let full = harness.say(&held[0], 11, 20, 1).await;
    assert_eq!(kind(full), Some(StoreErrorKind::Full));
    for key in &held {
        let snapshot = harness.read(key, 0).await.unwrap();
        assert_eq!((snapshot.events.len(), snapshot.gap), (10, None));
    }
    // One that has nothing held makes room out of its own.
    harness.say(&held[0], 21, 21, 21).await.unwrap();
    assert!(harness.read(&held[1], 0).await.unwrap().gap.is_none());
    harness.clock.advance(AGE);
    harness.say(&held[1], 11, 40, 11).await.unwrap();
    assert!(harness.store.event_bytes() <= 100_000);
}

#[tokio::test]
async fn a_full_store_parts_with_streams_that_were_silent_longest() {
    let harness = InMemory::small(100_000);
    let mut open = Vec::new();
    for _ in 0..3 {
        while harness.open(&key(open.len(), 1)).await.is_ok() {
            open.push(key(open.len(), 1));
        }
        // What was set aside elsewhere is looked for from time to time only.
        harness.clock.advance(Duration::from_secs(1));
    }
    let new = key(1000, 1);
    harness.clock.advance(3 * AGE);
    for key in &open[10..] {
        harness.read(key, 0).await.unwrap();
    }
    assert_eq!(kind(harness.open(&new).await), Some(StoreErrorKind::Full));
    harness.clock.advance(2 * AGE);
    harness.open(&new).await.unwrap();
    for key in &open[10..] {
        assert!(harness.read(key, 0).await.is_some());
    }
    let left = futures_util::future::join_all(open[..10].iter().map(|key| harness.read(key, 0)));
    let left = left.await.into_iter().flatten().count();
    assert!((1..10).contains(&left), "{left}");
}

#[tokio::test]
async fn a_sessions_oldest_stream_that_is_over_makes_place() {
    let harness = InMemory::with(
        MemoryConfig::default()
            .with_max_event_age(AGE)
            .with_max_streams_per_session(4),
    );
    for stream in 1..=4 {
        harness.open(&key(0, stream)).await.unwrap();
        harness.say(&key(0, stream), 1, 2, 3).await.unwrap();
        harness.clock.advance(Duration::from_secs(1));
    }
    for stream in [2, 3] {
        harness.end(&key(0, stream), 2).await;
        harness.clock.advance(Duration::from_secs(1));
    }
    // Somebody reads the oldest.
    assert!(harness.read(&key(0, 2), 1).await.is_some());
    harness.open(&key(0, 5)).await.unwrap();
    assert_eq!(harness.read(&key(0, 3), 2).await, None);
    let full = harness.open(&key(0, 6)).await;
    assert_eq!(kind(full), Some(StoreErrorKind::Full));
    assert_eq!(harness.read(&key(0, 2), 1).await.unwrap().events.len(), 1);
    // Caught up.
    assert!(harness.read(&key(0, 2), 2).await.is_some());
    harness.open(&key(0, 6)).await.unwrap();
    // All are open now. Those that were silent for very long are not left alone for ever.
    let full = harness.open(&key(0, 7)).await;
    assert_eq!(kind(full), Some(StoreErrorKind::Full));
    harness.clock.advance(4 * AGE);
    for stream in [1, 5, 6] {
        assert!(harness.read(&key(0, stream), 0).await.is_some());
    }
    harness.open(&key(0, 7)).await.unwrap();
    assert_eq!(harness.read(&key(0, 4), 0).await, None);
}

#[tokio::test]
async fn what_is_longer_than_a_session_may_have_costs_nobody_anything() {
    let config = MemoryConfig::default()
        .with_max_events_per_session(20)
        .with_max_event_bytes_per_session(10_000);
    let harness = InMemory::with(config);
    harness.open(&key(0, 1)).await.unwrap();
    harness.say(&key(0, 1), 1, 20, 21).await.unwrap();
    let many = harness.say(&key(0, 1), 21, 41, 42).await;
    assert_eq!(kind(many), Some(StoreErrorKind::Full));
    let long = events(21..22, 10_001);
    let append = Append {
        key: &key(0, 1),
        first: Seq::new(21),
        events: &long,
        keep: Seq::new(22),
    };
    let long = harness.store.append(&append).await;
    assert_eq!(kind(long), Some(StoreErrorKind::Full));
    let snapshot = harness.read(&key(0, 1), 0).await.unwrap();
    assert_eq!((snapshot.events.len(), snapshot.gap), (20, None));
}

#[tokio::test]
async fn seals_are_remembered_for_their_time_and_bounded() {
    let harness = InMemory::small(100_000);
    let mut sealed = 0;
    while harness.store.seal(&id(sealed), fence(6)).await.is_ok() {
        sealed += 1;
    }
    assert!(sealed > 100 && harness.store.event_bytes() <= 100_000);
    harness.clock.advance(Duration::from_secs(3599));
    harness.others_are_served().await;
    for n in 0..sealed {
        let opened = harness.open(&key(n, 1)).await;
        assert_eq!(kind(opened), Some(StoreErrorKind::Fenced));
    }
    harness.clock.advance(AGE);
    harness.others_are_served().await;
    assert_eq!(harness.store.event_bytes(), 0);
}

#[tokio::test]
async fn a_seal_lasts_as_long_as_there_are_streams() {
    let harness = InMemory::small(100_000);
    let (old, new) = (key(0, 1), key(0, 2));
    harness.store.seal(&id(0), fence(5)).await.unwrap();
    harness.open(&new).await.unwrap();
    for _ in 0..10 {
        harness.clock.advance(Duration::from_secs(3600));
        harness.others_are_served().await;
        let below = StreamHeader::new(old.clone(), fence(4), None, []);
        let refused = harness.store.open(&below).await;
        assert_eq!(kind(refused), Some(StoreErrorKind::Fenced));
    }
}

#[tokio::test]
async fn a_store_that_lost_its_memory_has_no_logs() {
    let harness = InMemory::small(100_000);
    harness.open(&key(0, 1)).await.unwrap();
    harness.say(&key(0, 1), 1, 9, 1).await.unwrap();
    let replica = harness.store.snapshot();
    harness.store.fail_over_to(replica);
    assert!(harness.read(&key(0, 1), 0).await.is_some());
    harness.store.lose_memory();
    assert_eq!(harness.read(&key(0, 1), 0).await, None);
    let refused = harness.say(&key(0, 1), 10, 10, 1).await;
    assert_eq!(kind(refused), Some(StoreErrorKind::Fenced));
    assert_eq!(harness.store.event_bytes(), 0);
    // And all of the memory again.
    harness.open(&key(0, 1)).await.unwrap();
    harness.say(&key(0, 1), 1, 200, 1).await.unwrap();
}

#[test]
fn the_memory_is_bounded_whoever_writes_at_once() {
    let harness = InMemory::small(200_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let harness = &harness;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.unwrap().block_on(async {
                    for n in 0..2000u64 {
                        let key = key(thread * 8 + n as usize % 8, n / 100);
                        let _ = harness.open(&key).await;
                        let _ = harness.say(&key, n * 5 + 1, n * 5 + 5, n * 5 - n % 5).await;
                    }
                });
            });
        }
    });
    let used = harness.store.event_bytes();
    assert!(used <= 200_000 && used > 100_000, "{used}");
}

/// A verb that a client can bring about, for one of a few sessions and streams.
#[derive(Debug, Clone)]
enum Verb {
    Open,
    Append { more: u64, keep: u64, length: usize },
    End,
    Read { back: u64 },
    Seal,
    Pass(u64),
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        4 => Just(Verb::Open),
        12 => (0..12u64, 0..12u64, 0..400usize)
            .prop_map(|(more, keep, length)| Verb::Append { more, keep, length }),
        2 => Just(Verb::End),
        2 => (0..20u64).prop_map(|back| Verb::Read { back }),
        1 => Just(Verb::Seal),
        1 => (0..150u64).prop_map(Verb::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_memory_is_bounded_whatever_clients_do(
        verbs in proptest::collection::vec((0..40usize, 0..6u64, verb()), 1..600),
        memory in 1_000..60_000usize,
    ) {
        let harness = InMemory::small(memory);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut next = std::collections::HashMap::new();
            for (session, stream, verb) in verbs {
                let key = key(session, stream);
                let next = next.entry((session, stream)).or_insert(1u64);
                match verb {
                    Verb::Open => {
                        let _ = harness.open(&key).await;
                    }
                    Verb::Append { more, keep, length } => {
                        let events = events(*next..*next + more, length);
                        let append = Append {
                            key: &key,
                            first: Seq::new(*next),
                            events: &events,
                            keep: Seq::new(next.saturating_sub(keep)),
                        };
                        let _ = harness.store.append(&append).await;
                        *next += more;
                    }
                    Verb::End => {
                        let last = Seq::new(*next - 1);
                        let _ = harness.store.end(&key, last, Ending::Answered).await;
                    }
                    Verb::Read { back } => {
                        harness.read(&key, next.saturating_sub(back)).await;
                    }
                    Verb::Seal => {
                        let _ = harness.store.seal(&key.session, fence(5 + stream % 2)).await;
                    }
                    Verb::Pass(seconds) => harness.clock.advance(Duration::from_secs(seconds)),
                }
                let used = harness.store.event_bytes();
                assert!(used <= memory, "{used} of {memory}");
            }
            // Once everything is over and old, all of it is free again.
            for session in 0..40 {
                let _ = harness.store.seal(&id(session), fence(9)).await;
            }
            harness.clock.advance(AGE);
            harness.others_are_served().await;
            harness.clock.advance(Duration::from_secs(3600));
            harness.others_are_served().await;
        });
    }
}
