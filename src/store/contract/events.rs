//! How the suite of event stores drives a back end, and the moves that many of its cases begin with.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;

use super::session;
use crate::{
    mcp::{RequestId, Subject},
    session::{CapabilityHash, Epoch, Fence, Incarnation},
    store::{
        Append, Ending, Event, EventStore, Page, Seq, Snapshot, StoreError, StoreErrorKind,
        StreamHeader, StreamKey,
    },
};

/// How the suite drives a back end's logs.
pub trait EventHarness: Sized + Send + Sync + 'static {
    /// The back end.
    type Events: EventStore;

    /// An empty store that keeps about so much.
    fn start(retention: EventRetention) -> impl Future<Output = Self>;

    /// The store.
    fn events(&self) -> &Self::Events;

    /// Lets the store's clock run on by `time`.
    fn pass(&self, time: Duration) -> impl Future<Output = ()>;
}

/// How much of a session's logs a store is to keep. Where a back end counts otherwise, near enough will do: the
/// cases go far beyond, or stay far below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EventRetention {
    /// How many events.
    pub events: usize,
    /// How many bytes of events.
    pub bytes: usize,
    /// How long an event, what an attached client has yet to read, and a stream that has ended.
    pub age: Duration,
    /// How many streams.
    pub streams: usize,
}

/// Makes a `#[tokio::test]` of each case of the contract of event stores, for one
/// [`EventHarness`](crate::store::contract::EventHarness).
#[macro_export]
macro_rules! event_contract {
    ($harness:ty) => {
        $crate::event_contract!(@cases $harness:
            a_log_reads_back_in_order_with_its_header_and_its_ending
            a_read_gives_what_comes_after
            a_reader_ahead_of_the_stream_is_told_its_head
            a_lost_append_stays_a_gap
            a_gap_is_the_first_of_all_the_rest_and_not_only_of_the_page
            a_lost_append_that_comes_late_fills_no_gap
            a_lost_last_append_stays_a_gap
            a_repeated_append_is_acknowledged_and_not_written_twice
            an_append_that_is_there_in_part_adds_the_rest
            a_repeated_open_is_acknowledged
            a_repeated_end_is_acknowledged
            another_header_under_the_same_key_is_corrupt
            a_stream_that_is_not_open_takes_nothing
            a_stream_that_has_ended_takes_nothing
            another_sessions_key_finds_nothing
            another_epochs_key_finds_nothing
            events_and_context_come_together
            subjects_reach_beyond_the_page
            a_snapshot_is_one_moment
            paging_by_events_reads_everything_once
            paging_by_bytes_reads_everything_once
            an_event_that_is_longer_than_the_page_is_read_alone
            a_seal_refuses_whatever_is_below_it
            a_seal_refuses_neither_its_own_fence_nor_a_newer_one
            what_was_written_below_a_seal_stays_readable
            a_seal_never_goes_back
            a_seal_is_one_sessions
            a_seal_comes_before_any_stream
            retention_by_events_takes_from_the_front
            retention_by_bytes_takes_from_the_front
            retention_by_time_takes_from_the_front
            retention_takes_the_oldest_whatever_the_stream
            retention_leaves_what_the_producer_keeps
            an_end_lets_go_of_what_the_producer_kept
            retention_leaves_what_a_reader_has_yet_to_read
            what_nobody_came_back_for_is_held_no_longer
            a_stream_that_is_over_goes_as_a_whole
            a_stream_that_is_open_outlives_its_events
            a_session_with_no_more_room_for_streams_says_so
        );
    };
    (@cases $harness:ty: $($case:ident)+) => {
        $(
            #[tokio::test]
            async fn $case() {
                $crate::store::contract::cases::$case::<$harness>().await;
            }
        )+
    };
}

/// What a case begins with unless it is about retention.
pub(super) const ROOMY: EventRetention = EventRetention {
    events: 4096,
    bytes: 1 << 20,
    age: AGE,
    streams: 64,
};

/// Long enough for a case on a slow back end, and short enough to wait for.
pub(super) const AGE: Duration = Duration::from_secs(10);

/// Everything at once.
pub(super) const ALL: Page = Page {
    events: usize::MAX,
    bytes: usize::MAX,
};

/// A store, and a session whose streams are written to it.
pub(super) struct Log<H> {
    pub(super) harness: H,
    pub(super) epoch: Epoch,
}

impl<H: EventHarness> Log<H> {
    pub(super) async fn start(retention: EventRetention) -> Self {
        Self {
            harness: H::start(retention).await,
            epoch: Epoch::mint().expect("randomness"),
        }
    }

    /// A store with one stream open.
    pub(super) async fn opened() -> (Self, StreamKey) {
        let log = Self::start(ROOMY).await;
        let key = log.open(1).await;
        (log, key)
    }

    pub(super) fn events(&self) -> &H::Events {
        self.harness.events()
    }

    pub(super) fn key(&self, stream: u64) -> StreamKey {
        StreamKey {
            session: session("s"),
            epoch: self.epoch,
            stream,
        }
    }

    pub(super) fn header(&self, stream: u64) -> StreamHeader {
        header(self.key(stream), fence(5))
    }

    pub(super) async fn open(&self, stream: u64) -> StreamKey {
        self.open_as(&self.header(stream)).await.expect("open");
        self.key(stream)
    }

    pub(super) async fn open_as(&self, header: &StreamHeader) -> Result<(), StoreError> {
        self.events().open(header).await
    }

    /// Appends the events with these numbers; nobody is behind.
    pub(super) async fn say(&self, key: &StreamKey, first: u64, last: u64) {
        self.try_say(key, first, last).await.expect("append");
    }

    pub(super) async fn try_say(
        &self,
        key: &StreamKey,
        first: u64,
        last: u64,
    ) -> Result<(), StoreError> {
        let events: Vec<_> = (first..=last).map(event).collect();
        self.append(key, first, &events, last + 1).await
    }

    pub(super) async fn append(
        &self,
        key: &StreamKey,
        first: u64,
        events: &[Event],
        keep: u64,
    ) -> Result<(), StoreError> {
        let append = Append {
            key,
            first: Seq::new(first),
            events,
            keep: Seq::new(keep),
        };
        self.events().append(&append).await
    }

    pub(super) async fn end(&self, key: &StreamKey, last: u64) {
        self.try_end(key, last).await.expect("end");
    }

    pub(super) async fn try_end(&self, key: &StreamKey, last: u64) -> Result<(), StoreError> {
        let last = Seq::new(last);
        self.events().end(key, last, Ending::Answered).await
    }

    pub(super) async fn seal(&self, below: Fence) {
        let sealed = self.events().seal(&session("s"), below).await;
        sealed.expect("seal");
    }

    pub(super) async fn read(&self, key: &StreamKey, after: u64) -> Snapshot {
        self.page(key, after, ALL).await.expect("a stream")
    }

    pub(super) async fn page(&self, key: &StreamKey, after: u64, page: Page) -> Option<Snapshot> {
        let read = self.events().read_after(key, Seq::new(after), page).await;
        let snapshot = read.expect("read_after")?;
        check(&snapshot, after);
        Some(snapshot)
    }

    /// Reads from `after` to the head and gives the numbers; panics at a gap.
    pub(super) async fn read_through(&self, key: &StreamKey, after: u64, page: Page) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut last = after;
        loop {
            let snapshot = self.page(key, last, page).await.expect("a stream");
            assert_eq!(snapshot.gap, None);
            if snapshot.head == Seq::new(last) {
                return numbers;
            }
            assert!(snapshot.events.len() <= page.events.max(1));
            let from = last + 1;
            last += snapshot.events.len() as u64;
            numbers.extend(from..=last);
        }
    }
}

/// What is true of each snapshot, whatever the moment.
pub(super) fn check(snapshot: &Snapshot, after: u64) {
    let head = snapshot.head.get();
    let read = after + snapshot.events.len() as u64;
    assert!(read <= head.max(after), "{snapshot:?}");
    for (number, event) in (after + 1..).zip(&snapshot.events) {
        assert_eq!(event.bytes, self::event(number).bytes, "number {number}");
        assert_eq!(event.subject, subject(number), "number {number}");
    }
    if let Some(gap) = snapshot.gap {
        assert!(read < gap.get() && gap.get() <= head, "{snapshot:?}");
    }
    // As long as there is something to give, something is given.
    let next_is_there = read < head && snapshot.gap != Some(Seq::new(after + 1));
    assert!(
        !(snapshot.events.is_empty() && next_is_there),
        "{snapshot:?}"
    );
    let told: Vec<_> = snapshot.subjects.iter().map(|told| told.0.get()).collect();
    assert!(told.is_sorted(), "{told:?}");
    for (seq, told) in &snapshot.subjects {
        assert!(after < seq.get() && seq.get() <= head, "{snapshot:?}");
        assert_eq!(*told, subject(seq.get()));
    }
    if snapshot.gap.is_none() {
        let about: Vec<_> = (after + 1..=head)
            .filter(|number| subject(*number) != Subject::Nothing)
            .collect();
        assert_eq!(told, about);
    }
}

pub(super) fn kind<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> StoreErrorKind {
    outcome.expect_err("refused").kind()
}

pub(super) fn fence(counter: u64) -> Fence {
    Fence::new(Incarnation::new(1, 1), counter)
}

pub(super) fn header(key: StreamKey, fence: Fence) -> StreamHeader {
    let capabilities = CapabilityHash::from_bytes([7; 32]);
    let requests: Arc<[RequestId]> = [id("1"), id("\"two\"")].into();
    StreamHeader::new(key, fence, Some(capabilities), requests)
}

/// The event with this number, a little over a hundred bytes.
pub(super) fn event(number: u64) -> Event {
    let padding = "-".repeat(100);
    Event {
        subject: subject(number),
        bytes: Bytes::from(format!("data: {number} {padding}\n\n")),
    }
}

/// Every kind in turn, and mostly nothing.
fn subject(number: u64) -> Subject {
    let own = || id(&number.to_string());
    match number % 7 {
        1 => Subject::Answer(own()),
        3 => Subject::Question(own()),
        5 => Subject::Batch([Subject::Nothing, Subject::Answer(own())].into()),
        _ => Subject::Nothing,
    }
}

pub(super) fn id(json: &str) -> RequestId {
    RequestId::from_json(json).expect("an id")
}
