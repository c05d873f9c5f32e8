//! Who this process is among its peers: its epoch, its lease, the sessions it owns, and how it comes and goes.

mod builder;
mod figures;
mod keeper;
mod retire;
mod serving;
mod table;
#[cfg_attr(
    not(feature = "test-util"),
    allow(
        unreachable_pub,
        dead_code,
        reason = "public for the model that explores it"
    )
)]
mod tenure;

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use event_listener::Event;
use tokio::sync::Notify;

pub use builder::{Heartbeats, InstanceBuilder, JoinError, JoinErrorKind};
pub use figures::{Ages, Figures};
pub use retire::Retirement;
pub(crate) use serving::{Admission, Proof, Serving};
pub(crate) use table::{OwnedSession, Running};
#[cfg(feature = "test-util")]
pub use tenure::Tenure;

use self::figures::Counters;
use crate::{
    clock::{Clock, Timestamp},
    session::{Fence, InstanceId, Offer, SessionId},
    store::{SessionDirectory, SharedDirectory, StoreError, StoreErrorKind, Terminated},
};

/// One process of a server that runs on several, as a member of a [`SessionDirectory`].
///
/// Holds the lease and the table of the sessions that it owns, and keeps both alive with heartbeats on a thread of
/// their own: a request handler that blocks its runtime must not cost the lease. Clones are handles to the same
/// instance; when the last is dropped the heartbeats stop, and the lease runs out by itself, as in a crash. For a
/// planned end call [`retire`](Self::retire).
///
/// ```
/// use mcp_session_guard::{instance::Instance, store::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let instance = Instance::builder("pod-7").join(store)?;
/// instance.ready().await;
/// assert!(instance.is_ready());
///
/// let retirement = instance.retire().await;
/// assert_eq!(retirement.unfinished_calls(), 0);
/// # Ok(())
/// # }
/// ```
///
/// Customised:
///
/// ```
/// use std::time::Duration;
///
/// use mcp_session_guard::{instance::Instance, store::MemoryStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let instance = Instance::builder("pod-7")
///     .with_address("http://10.1.2.3:8080")
///     .with_lease(Duration::from_secs(9))
///     .with_idle_limit(Duration::from_secs(1800))
///     .on_lost(|session, fence, why| eprintln!("dropping {session:?} at fence {fence}: {why:?}"))
///     .join(MemoryStore::new())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Instance {
    shared: Arc<Shared>,
}

/// Why an instance no longer has a session that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// Another instance took it over.
    TakenOver,
    /// Another instance buried it, or ended it.
    Buried,
    /// The directory no longer knows it.
    Absent,
    /// It was idle for longer than the limit, and this instance ended it.
    Idle,
    /// Its client ended it.
    Deleted,
    /// This instance retired.
    Retired,
}

type LostHook = dyn Fn(&SessionId, Fence, Lost) + Send + Sync;

pub(crate) struct Shared {
    id: InstanceId,
    address: Option<Arc<str>>,
    clock: Arc<dyn Clock>,
    directory: SharedDirectory,
    table: table::OwnTable,
    times: Times,
    /// The lease as the hot path sees it; the keeper writes both. Zero is no lease.
    generation: AtomicU64,
    deadline: AtomicU64,
    retiring: AtomicBool,
    /// Whether the lease was given up for good; held while the lease is published, so that a heartbeat under way
    /// cannot bring it back.
    left: Mutex<bool>,
    offer: Mutex<Option<Offer>>,
    /// Tombstones written here, to be repeated to a directory that lost its memory.
    tombstones: Mutex<VecDeque<SessionId>>,
    hook: Option<Box<LostHook>>,
    counters: Counters,
    /// Wakes the keeper.
    poke: Arc<Notify>,
    /// Wakes whoever waits for the lease to come or go.
    changed: Event,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    lease: Duration,
    heartbeat: Duration,
    idle_limit: Option<Duration>,
}

impl Times {
    /// How much longer than the idle limit the directory keeps a record after a touch, so that only the owner
    /// ever decides that a session was idle.
    fn slack(&self) -> Duration {
        self.lease.saturating_add(self.heartbeat)
    }
}

/// How many tombstones are remembered to be repeated.
const MAX_TOMBSTONES: usize = 65_536;

impl Instance {
    /// Begins an instance with a name for people. The name proves nothing; see [`InstanceId`].
    pub fn builder(name: impl Into<Arc<str>>) -> InstanceBuilder {
        InstanceBuilder::new(name.into())
    }

    /// Its name and epoch.
    #[must_use]
    pub fn id(&self) -> &InstanceId {
        &self.shared.id
    }

    /// The directory that it joined.
    #[must_use]
    pub fn directory(&self) -> &SharedDirectory {
        &self.shared.directory
    }

    /// Whether it should get new sessions: it holds a lease and is not retiring. For an orchestrator's readiness
    /// probe.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.is_retiring() && self.shared.holds_lease()
    }

    /// Whether [`retire`](Self::retire) was called.
    #[must_use]
    pub fn is_retiring(&self) -> bool {
        self.shared.retiring.load(Ordering::Acquire)
    }

    /// Waits until it holds a lease.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn ready(&self) {
        loop {
            let changed = self.shared.changed.listen();
            if self.shared.holds_lease() {
                return;
            }
            changed.await;
        }
    }

    /// The figures that an operator watches, at this moment. Reads the whole own table.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.shared
            .counters
            .figures(self.shared.now(), &self.shared.table)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("id", &self.shared.id)
            .field("ready", &self.is_ready())
            .field("sessions", &self.shared.table.len())
            .finish()
    }
}

impl Shared {
    pub(crate) fn id(&self) -> &InstanceId {
        &self.id
    }

    pub(crate) fn directory(&self) -> &SharedDirectory {
        &self.directory
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn is_retiring(&self) -> bool {
        self.retiring.load(Ordering::Acquire)
    }

    pub(crate) fn holds_lease(&self) -> bool {
        self.tenancy().is_some()
    }

    /// The generation of the lease, if it is good at this moment.
    pub(crate) fn tenancy(&self) -> Option<u64> {
        let (generation, deadline) = self.lease();
        (self.now() < deadline).then_some(generation)
    }

    /// Generation and deadline, in the order that makes the pair sound: the keeper bumps the generation before it
    /// sets a deadline that belongs to it, so a deadline read first is never newer than the generation.
    fn lease(&self) -> (u64, Timestamp) {
        let deadline = self.deadline.load(Ordering::Acquire);
        let generation = self.generation.load(Ordering::Acquire);
        (generation, Timestamp::from_nanos(deadline))
    }

    /// What the directory may keep a record for after a touch.
    pub(crate) fn retention(&self) -> Option<Duration> {
        let limit = self.times.idle_limit?;
        Some(limit.saturating_add(self.times.slack()))
    }

    pub(crate) fn offer(&self) -> Option<Offer> {
        *self.offer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the inner service was seen to offer, or was declared to.
    pub(crate) fn set_offer(&self, offer: Offer) {
        *self.offer.lock().unwrap_or_else(PoisonError::into_inner) = Some(offer);
    }

    /// A tombstone was written by this instance.
    pub(crate) fn remember_tombstone(&self, id: SessionId) {
        let mut tombstones = self
            .tombstones
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if tombstones.len() == MAX_TOMBSTONES {
            tombstones.pop_front();
        }
        tombstones.push_back(id);
    }

    pub(crate) fn knows(&self, id: &SessionId) -> bool {
        self.table.get(id.as_str()).is_some()
    }

    /// Adds a session that the directory has just recorded as this instance's.
    pub(crate) fn adopt(&self, session: Arc<OwnedSession>) {
        // One of the same id can only be an older grant of the same session.
        if let Some(old) = self.table.insert(session) {
            old.lose();
        }
    }

    /// Drops a session and tells the user's hook, once.
    pub(crate) fn forget(&self, session: &Arc<OwnedSession>, why: Lost) {
        session.lose();
        if self.table.remove(session) {
            let fence = session.fence();
            tracing::debug!(session = ?session.id, %fence, ?why, "session lost");
            if let Some(hook) = &self.hook {
                // A hook that panics must not take the heartbeats along.
                let told = catch_unwind(AssertUnwindSafe(|| hook(&session.id, fence, why)));
                if told.is_err() {
                    tracing::error!("the hook for lost sessions panicked");
                }
            }
        }
    }

    /// Ends a session in the directory, then here. The session serves nothing from the first moment on, whatever
    /// comes of it; a tombstone that could not be written is written by the keeper later.
    ///
    /// # Cancel safety
    ///
    /// Safe: a session that is ended and still in the table is ended again by the keeper.
    pub(crate) async fn end(
        &self,
        session: &Arc<OwnedSession>,
        fence: Option<Fence>,
        why: Lost,
    ) -> Result<(), StoreError> {
        session.end();
        match self.directory.terminate(&session.id, fence).await? {
            Terminated::Ended => {
                self.remember_tombstone(session.id.clone());
                self.forget(session, why);
            }
            Terminated::Absent => self.forget(session, why),
            Terminated::Fenced => {
                self.forget(session, Lost::TakenOver);
                return Err(StoreErrorKind::Fenced.into());
            }
        }
        Ok(())
    }

    pub(crate) fn has_left(&self) -> bool {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the keeper to look at the lease now.
    pub(crate) fn poke(&self) {
        self.poke.notify_one();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The keeper waits without holding the instance; it finds it gone and ends.
        self.poke.notify_one();
    }
}
