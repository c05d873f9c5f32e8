//! The embedded store: everything in this process, bounded.

mod directory;
mod events;
mod keys;
mod ledger;
mod log;
mod logs;
mod shard;
#[cfg_attr(
    not(feature = "test-util"),
    allow(
        unreachable_pub,
        dead_code,
        reason = "public for the model that explores it"
    )
)]
mod state;
mod weight;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

#[cfg_attr(not(feature = "test-util"), allow(unreachable_pub))]
pub use state::DirectoryState;

use self::{events::Shards, ledger::Ledger};
use crate::{
    clock::{Clock, SystemClock},
    session::Incarnation,
};

/// Everything in this process's memory. The default for one process, and for tests of many instances in one.
///
/// Bounded: nothing live is evicted, and when there is no room for a new session it says
/// [`Full`](super::StoreErrorKind::Full). Clones share the same memory. It restarts with its process, and so do
/// all instances that could have registered anything in it, so a fresh one is not recovering.
///
/// # Events
///
/// Of a session's events the oldest go first, whatever stream they are of: beyond a number, beyond a length, and when
/// they are old. What a client has yet to read stays, for as long as events are kept at all; when there is nothing
/// else to take, an append is [`Full`](super::StoreErrorKind::Full) and its numbers are a gap.
///
/// A stream that has ended, or is below a seal, goes as a whole once nobody has read or written it for
/// [`max_event_age`](MemoryConfig::max_event_age). One that is open stays, however silent it is. Where there is no
/// room for another, the session's oldest stream that is over and that nobody has yet to read makes place, then one
/// that is open and has been silent for four times as long; in a store that is full, those of other sessions that have
/// been silent for so long too.
///
/// A seal is remembered for as long as its session has streams, and for [`tombstones`](MemoryConfig::tombstones)
/// after that: whoever could still write below it is in this very process.
///
/// Memory is given back by later calls, whatever session they are for; there is no task and no timer.
///
/// # Keyed requests
///
/// A key in progress stays, and so does every key that ran, for as long as
/// [`outcomes`](MemoryConfig::outcomes) says; when there is no room for another one, a claim is
/// [`Full`](super::StoreErrorKind::Full). Where the outcomes take more than they may, the oldest of them are dropped, and
/// their keys are remembered as having run. Each verb costs the same however many keys there are.
///
/// ```
/// use mcp_session_guard::store::{MemoryConfig, MemoryStore};
///
/// let store = MemoryStore::new();
/// let small = MemoryStore::with_config(MemoryConfig::default().with_max_sessions(1_000));
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<DirectoryState>,
    logs: Shards,
    ledger: Ledger,
    clock: Box<dyn Clock>,
}

/// Bounds and times of a [`MemoryStore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// How many sessions there may be, tombstones included. Default one million.
    pub max_sessions: usize,
    /// The longest lease that is granted; a longer wish is cut to it. Default 60 seconds.
    pub max_lease: Duration,
    /// How long a tombstone is kept, and a seal whose session has no streams. Default one hour.
    pub tombstones: Duration,
    /// How many events of one session are kept. Default 4096.
    pub max_events_per_session: usize,
    /// How many bytes of one session's events are kept, as they are sent. Default 8 MiB. An event that is longer is
    /// never recorded.
    pub max_event_bytes_per_session: usize,
    /// How long an event is kept, and a stream that is over. Default 5 minutes.
    pub max_event_age: Duration,
    /// How many streams of one session are kept, open or over. Default 256.
    pub max_streams_per_session: usize,
    /// How much memory the events of all sessions take. Default 256 MiB.
    ///
    /// Counted are the bytes of events and the ids that they are about, the ids of sessions and of the requests that
    /// opened a stream, and a fixed sum for each event (192 bytes), stream (896) and session with streams or a seal
    /// (320). Not counted is what the slice of a larger buffer keeps alive beside itself.
    pub max_event_bytes: usize,
    /// How many keyed requests are remembered, those in progress included. Default one million.
    ///
    /// Counted as memory are about 300 bytes for each beside its outcome.
    pub max_keys: usize,
    /// How much memory the outcomes of keyed requests take. Default 256 MiB.
    pub max_outcome_bytes: usize,
    /// How long it is remembered that a keyed request ran, and what came of it. Default 24 hours.
    pub outcomes: Duration,
    /// How long after it lost its memory the ledger takes no key that it has not seen since. Default 5 minutes; it
    /// should be as long as clients go on retrying, and longer than any claim's lease.
    pub retry_horizon: Duration,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            max_sessions: 1_000_000,
            max_lease: Duration::from_secs(60),
            tombstones: Duration::from_secs(3600),
            max_events_per_session: 4096,
            max_event_bytes_per_session: 8 << 20,
            max_event_age: Duration::from_secs(300),
            max_streams_per_session: 256,
            max_event_bytes: 256 << 20,
            max_keys: 1_000_000,
            max_outcome_bytes: 256 << 20,
            outcomes: Duration::from_secs(24 * 3600),
            retry_horizon: Duration::from_secs(300),
        }
    }
}

impl MemoryConfig {
    /// Sets how many sessions there may be.
    #[must_use]
    pub fn with_max_sessions(mut self, sessions: usize) -> Self {
        self.max_sessions = sessions;
        self
    }

    /// Sets the longest lease that is granted.
    #[must_use]
    pub fn with_max_lease(mut self, lease: Duration) -> Self {
        self.max_lease = lease;
        self
    }

    /// Sets how long a tombstone is kept, and a seal whose session has no streams.
    #[must_use]
    pub fn with_tombstones(mut self, kept: Duration) -> Self {
        self.tombstones = kept;
        self
    }

    /// Sets how many events of one session are kept.
    #[must_use]
    pub fn with_max_events_per_session(mut self, events: usize) -> Self {
        self.max_events_per_session = events;
        self
    }

    /// Sets how many bytes of one session's events are kept.
    #[must_use]
    pub fn with_max_event_bytes_per_session(mut self, bytes: usize) -> Self {
        self.max_event_bytes_per_session = bytes;
        self
    }

    /// Sets how long an event is kept, and a stream that is over.
    #[must_use]
    pub fn with_max_event_age(mut self, age: Duration) -> Self {
        self.max_event_age = age;
        self
    }

    /// Sets how many streams of one session are kept.
    #[must_use]
    pub fn with_max_streams_per_session(mut self, streams: usize) -> Self {
        self.max_streams_per_session = streams;
        self
    }

    /// Sets how much memory the events of all sessions take.
    #[must_use]
    pub fn with_max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    /// Sets how many keyed requests are remembered.
    #[must_use]
    pub fn with_max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// Sets how much memory the outcomes of keyed requests take.
    #[must_use]
    pub fn with_max_outcome_bytes(mut self, bytes: usize) -> Self {
        self.max_outcome_bytes = bytes;
        self
    }

    /// Sets how long it is remembered what came of a keyed request.
    #[must_use]
    pub fn with_outcomes(mut self, kept: Duration) -> Self {
        self.outcomes = kept;
        self
    }

    /// Sets how long after a loss of memory no new key is taken.
    #[must_use]
    pub fn with_retry_horizon(mut self, horizon: Duration) -> Self {
        self.retry_horizon = horizon;
        self
    }
}

impl MemoryStore {
    /// An empty store with the default bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::with_config(MemoryConfig::default())
    }

    /// An empty store with these bounds.
    #[must_use]
    pub fn with_config(config: MemoryConfig) -> Self {
        Self::with_clock(config, SystemClock)
    }

    /// An empty store that counts leases and the age of events and keys on `clock`.
    #[must_use]
    pub fn with_clock(config: MemoryConfig, clock: impl Clock) -> Self {
        let incarnation = Incarnation::new(unix_millis(), nonce());
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(DirectoryState::new(config, incarnation)),
                logs: Shards::new(&config),
                ledger: Ledger::new(&config),
                clock: Box::new(clock),
            }),
        }
    }

    /// How much memory the events take, as [`max_event_bytes`](MemoryConfig::max_event_bytes) counts it.
    #[must_use]
    pub fn event_bytes(&self) -> usize {
        self.shared.logs.used()
    }

    /// How many keyed requests it remembers.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.shared.ledger.len()
    }

    /// How much memory the outcomes take, as [`max_outcome_bytes`](MemoryConfig::max_outcome_bytes) counts it.
    #[must_use]
    pub fn outcome_bytes(&self) -> usize {
        self.shared.ledger.used()
    }

    /// Forgets everything, as a store that restarted empty does: a new incarnation, recovering for the longest
    /// lease. No log and no keyed request is left, and new keys wait for the retry horizon. For tests.
    #[cfg(feature = "test-util")]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    pub fn lose_memory(&self) {
        let now = self.shared.clock.now();
        self.state().lose_memory(now, unix_millis(), nonce());
        self.shared.logs.forget();
        self.shared.ledger.recover(now, true);
    }

    /// Becomes `replica`, as when a replica is promoted that had not heard of the last writes: a new incarnation
    /// with old records. Logs and keyed requests stay as they are. For tests.
    #[cfg(feature = "test-util")]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    pub fn fail_over_to(&self, replica: DirectoryState) {
        let now = self.shared.clock.now();
        self.state()
            .fail_over_to(replica, now, unix_millis(), nonce());
        self.shared.ledger.recover(now, false);
    }

    /// A copy of what it holds now. For tests.
    #[cfg(feature = "test-util")]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    #[must_use]
    pub fn snapshot(&self) -> DirectoryState {
        self.state().clone()
    }

    fn state(&self) -> MutexGuard<'_, DirectoryState> {
        // A panic in a verb leaves the maps as they were between two statements; there is no half-way state that
        // a later verb could not read.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("sessions", &self.state().len())
            .finish()
    }
}

fn unix_millis() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or_default()
}

fn nonce() -> u64 {
    // Within one process the order by time and successor is enough; the nonce tells two stores apart.
    getrandom::u64().unwrap_or_default()
}
