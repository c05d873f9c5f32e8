//! The planned end of an instance.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use super::{Instance, Lost, Shared};
use crate::store::{SessionDirectory, StoreError};

/// How often a retiring instance looks whether its calls have ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long the clients of open streams may take to read that these end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A stream, or its reader, that ends by itself when its instance closes.
#[derive(Debug)]
pub(crate) struct Outlet(Arc<Shared>);

impl Outlet {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.outlets.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.0.outlets.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Something that a retiring instance waits for, whether or not it has a session: a call whose client has left, an
/// outcome that is not recorded yet.
#[derive(Debug)]
pub(crate) struct Work(Arc<Shared>);

impl Work {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.works.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.works.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What came of [`Instance::retire`].
#[derive(Debug)]
#[must_use]
pub struct Retirement {
    unfinished: u64,
    left: Result<(), StoreError>,
}

impl Retirement {
    /// How many calls were still running when the grace was over. Their output was cut, since the sessions are
    /// no longer this instance's.
    #[must_use]
    pub fn unfinished_calls(&self) -> u64 {
        self.unfinished
    }

    /// Whether the directory has ended the lease; otherwise the lease runs out by itself.
    ///
    /// # Errors
    ///
    /// What the directory said instead.
    pub fn lease_ended(&self) -> Result<(), &StoreError> {
        self.left.as_ref().copied()
    }
}

impl Instance {
    /// Retires with 30 seconds of grace. See [`retire_within`](Self::retire_within).
    ///
    /// # Cancel safety
    ///
    /// As [`retire_within`](Self::retire_within).
    pub async fn retire(&self) -> Retirement {
        self.retire_within(Duration::from_secs(30)).await
    }

    /// Takes no new sessions from now on, lets running calls finish for at most `grace`, ends the streams that are
    /// left, then ends the lease.
    ///
    /// After it the sessions of this instance are buried or taken over when they are next asked for, at once and
    /// not after a time-out. Open GET streams are no running calls. Those that a
    /// [`ResumeGuardLayer`](crate::resume_guard::ResumeGuardLayer) carries are told by `retry:` when to come back, and
    /// get two seconds to take that in; others are cut when the lease ends.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the instance stays retiring and keeps its lease; call it again to go on.
    pub async fn retire_within(&self, grace: Duration) -> Retirement {
        let shared = &self.shared;
        shared.retiring.store(true, Ordering::Release);
        shared.changed.notify(usize::MAX);
        let deadline = tokio::time::Instant::now() + grace;
        let mut unfinished = shared.running_calls();
        while unfinished > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(LOOK_EVERY).await;
            unfinished = shared.running_calls();
        }
        shared.close().await;
        // Nothing is proven any more before the directory may give it to somebody else.
        shared.disown();
        let left = tokio::time::timeout(shared.times.lease, shared.directory.leave(&shared.id))
            .await
            .unwrap_or_else(|_| Err(crate::store::StoreErrorKind::TimedOut.into()));
        if let Err(error) = &left {
            tracing::warn!(%error, "the directory did not end the lease; it runs out by itself");
        }
        Retirement { unfinished, left }
    }
}

impl Shared {
    /// Has the streams end that owe nothing, and waits for their last words to be taken.
    async fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.table.collect(|session| {
            session.notify();
            false
        });
        let deadline = tokio::time::Instant::now() + LAST_WORDS;
        while self.outlets.load(Ordering::Acquire) > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn running_calls(&self) -> u64 {
        let mut calls = self.works.load(Ordering::Acquire);
        self.table.collect(|session| {
            calls += session.calls();
            false
        });
        calls
    }

    /// Gives up the lease and every session, for good.
    fn disown(self: &Arc<Self>) {
        {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            *left = true;
            self.deadline.store(0, Ordering::Release);
        }
        self.poke();
        for session in self.table.collect(|_| true) {
            self.forget(&session, Lost::Retired);
        }
    }
}
