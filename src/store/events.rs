//! [`EventStore`]: what was said on a session's streams, and to whom it answers.

use std::{fmt, future::Future, sync::Arc};

use bytes::Bytes;

use super::StoreError;
use crate::{
    mcp::{RequestId, Subject},
    session::{CapabilityHash, Epoch, Fence, SessionId},
};

/// A log for each stream of a session, numbered by its *producer*.
///
/// A replay is only as good as what it can prove, so the log keeps what a proof needs: events with the requests
/// that opened their stream, numbers that were given when an event was made and not when somebody read it, and an
/// ending that names the last number.
///
/// # Contract
///
/// - **A producer is an epoch.** A stream is opened once, under the fence its producer holds the session with, and
///   written by that producer only.
/// - **Numbers are the producer's.** [`append`](Self::append) is atomic, and takes what it is given: a batch that
///   begins above the head leaves a gap that [`read_after`](Self::read_after) tells of for ever. A batch that is there
///   already, because its reply was lost, is acknowledged again and not written twice.
/// - **A lost end stays a gap.** [`end`](Self::end) carries the last number that was given, so that a last append
///   which failed cannot look like an end.
/// - **A read is one moment.** Header, events, subjects, head, ending and gap of a [`Snapshot`] belong together.
/// - **Events and context live and die together.** A stream whose header is gone is not there at all.
/// - **A seal is for ever.** After [`seal`](Self::seal) no stream of a fence below it is opened, appended to or ended;
///   what was written stays readable.
/// - **Retention takes from the front**, and what it took is a gap to whoever asks for it. It never takes what an
///   attached client has yet to read: see [`Append::keep`] and [`read_after`](Self::read_after).
/// - `None` is a *proof* that there is no such stream (any more). Whatever the store does not know is `Err`.
///
/// A back end runs the suite in `store::contract` (feature `test-util`).
///
/// # Cancel safety
///
/// A dropped call may have happened or not; each verb can be repeated.
pub trait EventStore: Send + Sync + 'static {
    /// Begins a log. Repeated with the same header it is acknowledged again.
    ///
    /// # Errors
    ///
    /// [`Fenced`](super::StoreErrorKind::Fenced) below a seal, also when it is repeated;
    /// [`Full`](super::StoreErrorKind::Full) where there is no room for another stream;
    /// [`Corrupt`](super::StoreErrorKind::Corrupt) when the key has another header already.
    fn open(&self, header: &StreamHeader) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Adds events, all or none. Of a batch that is there in part, what is above the head is added; a number below the
    /// head whose event is missing stays missing.
    ///
    /// # Errors
    ///
    /// [`Fenced`](super::StoreErrorKind::Fenced) below a seal, and for a stream that is not open: never opened,
    /// ended, or forgotten.
    fn append(&self, append: &Append<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends a log. `last` is the last number that was given, whether or not it was recorded. What
    /// [`Append::keep`] held is held no longer; a producer whose client has yet to read it here ends it later.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append); the same ending again is acknowledged.
    fn end(
        &self,
        key: &StreamKey,
        last: Seq,
        ending: Ending,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What comes after `after`, as much as fits into `page` and one event at least.
    ///
    /// The reader is attached: what it has yet to read is kept until it reads on, the producer says otherwise with
    /// [`Append::keep`], or nobody has read or written the stream for as long as events are kept at all.
    ///
    /// # Errors
    ///
    /// Whatever kept the store from knowing.
    fn read_after(
        &self,
        key: &StreamKey,
        after: Seq,
        page: Page,
    ) -> impl Future<Output = Result<Option<Snapshot>, StoreError>> + Send;

    /// No producer with a fence below this one adds anything to the session's streams from now on.
    ///
    /// # Errors
    ///
    /// Whatever kept the store from recording it.
    fn seal(
        &self,
        session: &SessionId,
        below: Fence,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The number of an event within its stream. The first event is 1; 0 stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(u64);

impl Seq {
    /// Before the first event.
    pub const START: Self = Self(0);

    /// The event with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The one that comes `by` later.
    #[must_use]
    pub const fn plus(self, by: u64) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// The next one.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which stream: of which session, made by whom, and which of theirs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// The session it belongs to. The key of another session never finds it.
    pub session: SessionId,
    /// The producer.
    pub epoch: Epoch,
    /// The producer's number for it, never used twice.
    pub stream: u64,
}

/// What has to be known of a stream to replay any of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamHeader {
    /// Which stream.
    pub key: StreamKey,
    /// The grant under which its producer had the session.
    pub fence: Fence,
    /// What the session negotiated; `None` equals nothing.
    pub capabilities: Option<CapabilityHash>,
    /// The requests that the stream answers; none for a session's standalone stream.
    pub requests: Arc<[RequestId]>,
    /// How many requests there were when it was opened. A back end that keeps them elsewhere keeps this with the rest of
    /// the header, so that one which is lost is missed and a call's stream never passes for a standalone one.
    pub opened_by: usize,
}

impl StreamHeader {
    /// A header from its parts, with all its requests.
    #[must_use]
    pub fn new(
        key: StreamKey,
        fence: Fence,
        capabilities: Option<CapabilityHash>,
        requests: impl Into<Arc<[RequestId]>>,
    ) -> Self {
        let requests = requests.into();
        Self {
            key,
            fence,
            capabilities,
            opened_by: requests.len(),
            requests,
        }
    }
}

/// One event as it goes over the wire, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What its message is about.
    pub subject: Subject,
    /// The event as it is sent, its id and the empty line at its end included.
    pub bytes: Bytes,
}

/// A batch for [`EventStore::append`].
#[derive(Debug, Clone, Copy)]
pub struct Append<'a> {
    /// Which stream.
    pub key: &'a StreamKey,
    /// The number of the first event.
    pub first: Seq,
    /// The events, numbered without a gap.
    pub events: &'a [Event],
    /// Retention must not take this event or a later one: an attached client has yet to read it. The number after
    /// the batch when nobody is behind.
    pub keep: Seq,
}

/// How much of a stream is read at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Page {
    /// At most so many events.
    pub events: usize,
    /// At most so many bytes, unless the first event alone is longer.
    pub bytes: usize,
}

/// A stream at one moment, as far as a reader at some number is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// What the stream is.
    pub header: StreamHeader,
    /// The last number that is known to have been given: of the last recorded event, or what the ending said.
    pub head: Seq,
    /// How it ended, if it did.
    pub ending: Option<Ending>,
    /// The first number after the reader's, up to the head, whose event is not there.
    pub gap: Option<Seq>,
    /// The events after the reader's number, without a gap: the first page of them.
    pub events: Vec<Event>,
    /// What the events after the reader's number are about, all of them up to the head and not only the page; those
    /// about [`Nothing`](Subject::Nothing) are left out.
    pub subjects: Vec<(Seq, Subject)>,
}

impl Snapshot {
    /// A snapshot from its parts; for back ends.
    #[must_use]
    pub fn new(
        header: StreamHeader,
        head: Seq,
        ending: Option<Ending>,
        gap: Option<Seq>,
        events: Vec<Event>,
        subjects: Vec<(Seq, Subject)>,
    ) -> Self {
        Self {
            header,
            head,
            ending,
            gap,
            events,
            subjects,
        }
    }
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// Everything it owed was answered, and the producer closed it.
    Answered,
    /// The producer closed it and owed nothing: a standalone stream.
    ProducerClosed,
    /// The producer failed, or closed it while it owed an answer.
    Failed,
    /// Nobody read it any more.
    TornDown,
    /// The instance retired.
    Retired,
    /// The session was lost, or ended.
    Lost,
}

impl Ending {
    /// Every ending.
    pub const ALL: [Self; 6] = [
        Self::Answered,
        Self::ProducerClosed,
        Self::Failed,
        Self::TornDown,
        Self::Retired,
        Self::Lost,
    ];

    /// The ending as a word, for stores and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::ProducerClosed => "producer_closed",
            Self::Failed => "failed",
            Self::TornDown => "torn_down",
            Self::Retired => "retired",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
