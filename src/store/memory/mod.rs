//! The embedded store: everything in this process, bounded.

mod directory;
#[cfg_attr(
    not(feature = "test-util"),
    allow(
        unreachable_pub,
        dead_code,
        reason = "public for the model that explores it"
    )
)]
mod state;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

#[cfg_attr(not(feature = "test-util"), allow(unreachable_pub))]
pub use state::DirectoryState;

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
    /// How long a tombstone is kept. Default one hour.
    pub tombstones: Duration,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            max_sessions: 1_000_000,
            max_lease: Duration::from_secs(60),
            tombstones: Duration::from_secs(3600),
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

    /// Sets how long a tombstone is kept.
    #[must_use]
    pub fn with_tombstones(mut self, kept: Duration) -> Self {
        self.tombstones = kept;
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

    /// An empty store that counts leases on `clock`.
    #[must_use]
    pub fn with_clock(config: MemoryConfig, clock: impl Clock) -> Self {
        let incarnation = Incarnation::new(unix_millis(), nonce());
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(DirectoryState::new(config, incarnation)),
                clock: Box::new(clock),
            }),
        }
    }

    /// Forgets everything, as a store that restarted empty does: a new incarnation, recovering for the longest
    /// lease. For tests.
    #[cfg(feature = "test-util")]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    pub fn lose_memory(&self) {
        let now = self.shared.clock.now();
        self.state().lose_memory(now, unix_millis(), nonce());
    }

    /// Becomes `replica`, as when a replica is promoted that had not heard of the last writes: a new incarnation
    /// with old records. For tests.
    #[cfg(feature = "test-util")]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    pub fn fail_over_to(&self, replica: DirectoryState) {
        let now = self.shared.clock.now();
        self.state()
            .fail_over_to(replica, now, unix_millis(), nonce());
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
