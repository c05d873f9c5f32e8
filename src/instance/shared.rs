//! What the handles, the keeper and the layers of one instance share.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use event_listener::Event;
use tokio::sync::Notify;

use super::{Lost, figures::Counters, owned::OwnedSession, table::OwnTable};
use crate::{
    clock::{Clock, Timestamp},
    session::{Fence, InstanceId, Offer, SessionId},
    store::{SessionDirectory, SharedDirectory, StoreError, StoreErrorKind, Terminated},
};

pub(super) type LostHook = dyn Fn(&SessionId, Fence, Lost) + Send + Sync;

pub(crate) struct Shared {
    pub(super) id: InstanceId,
    pub(super) address: Option<Arc<str>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) directory: SharedDirectory,
    pub(super) table: OwnTable,
    pub(super) times: Times,
    /// The lease as the hot path sees it; the keeper writes both. Zero is no lease.
    pub(super) generation: AtomicU64,
    pub(super) deadline: AtomicU64,
    pub(super) retiring: AtomicBool,
    /// Whether streams that owe nothing are to end.
    pub(super) closing: AtomicBool,
    /// How many streams will end by themselves once that is so.
    pub(super) outlets: AtomicUsize,
    /// How many calls run on although their client has left, beside those that are counted at their session.
    pub(super) works: AtomicU64,
    /// Whether the lease was given up for good; held while the lease is published, so that a heartbeat under way
    /// cannot bring it back.
    pub(super) left: Mutex<bool>,
    pub(super) offer: Mutex<Option<Offer>>,
    /// Tombstones written here, to be repeated to a directory that lost its memory.
    pub(super) tombstones: Mutex<VecDeque<SessionId>>,
    pub(super) hook: Option<Box<LostHook>>,
    pub(super) counters: Counters,
    /// Wakes the keeper.
    pub(super) poke: Arc<Notify>,
    /// Wakes whoever waits for the lease to come or go.
    pub(super) changed: Event,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) lease: Duration,
    pub(super) heartbeat: Duration,
    /// How long the directory is to keep a record after a touch: so much longer than the idle limit that only the
    /// owner ever decides that a session was idle.
    pub(super) retention: Option<Duration>,
    /// The idle limit and the retention as the hot path compares them, in nanoseconds; the maximum where there is
    /// none.
    pub(super) idle: u64,
    pub(super) kept: u64,
}

impl Times {
    pub(super) fn new(lease: Duration, heartbeat: Duration, idle: Option<Duration>) -> Self {
        let retention = idle.map(|limit| limit.saturating_add(lease).saturating_add(heartbeat));
        let nanos = |time: Option<Duration>| {
            time.and_then(|time| u64::try_from(time.as_nanos()).ok())
                .unwrap_or(u64::MAX)
        };
        Self {
            lease,
            heartbeat,
            retention,
            idle: nanos(idle),
            kept: nanos(retention),
        }
    }
}

/// How many tombstones are remembered to be repeated.
const MAX_TOMBSTONES: usize = 65_536;

impl Shared {
    /// Whether peers are told where it can be reached.
    #[inline]
    pub(crate) fn has_address(&self) -> bool {
        self.address.is_some()
    }

    pub(crate) fn id(&self) -> &InstanceId {
        &self.id
    }

    pub(crate) fn directory(&self) -> &SharedDirectory {
        &self.directory
    }

    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline]
    pub(crate) fn is_retiring(&self) -> bool {
        self.retiring.load(Ordering::Acquire)
    }

    /// Whether streams that owe nothing are to end now.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
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
    #[inline]
    pub(super) fn lease(&self) -> (u64, Timestamp) {
        let deadline = self.deadline.load(Ordering::Acquire);
        let generation = self.generation.load(Ordering::Acquire);
        (generation, Timestamp::from_nanos(deadline))
    }

    /// What the directory may keep a record for after a touch.
    #[inline]
    pub(crate) fn retention(&self) -> Option<Duration> {
        self.times.retention
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
        self.table.get(id.as_str().as_bytes()).is_some()
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
            let id = session.id();
            tracing::debug!(session = ?id, %fence, ?why, "session lost");
            if let Some(hook) = &self.hook {
                // A hook that panics must not take the heartbeats along.
                let told = catch_unwind(AssertUnwindSafe(|| hook(&id, fence, why)));
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
        let id = session.id();
        match self.directory.terminate(&id, fence).await? {
            Terminated::Ended => {
                self.remember_tombstone(id);
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

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The keeper waits without holding the instance; it finds it gone and ends.
        self.poke.notify_one();
    }
}
