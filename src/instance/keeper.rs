//! The heartbeat: keeps the lease, proves the table again after a lapse, touches what is used and ends what is idle.

use std::{
    future::Future,
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    Lost,
    owned::OwnedSession,
    shared::{Shared, Times},
    tenure::Tenure,
};
use crate::{
    clock::Timestamp,
    session::{Residency, SessionId},
    store::{
        Claim, Claimed, ClaimedSession, SessionDirectory, Standing, StoreError, StoreErrorKind,
    },
};

/// How many sessions go into one call of the directory.
const BATCH: usize = 1000;

/// Runs the heartbeats of one instance. Holds it weakly: when the last handle is dropped, it ends.
pub(super) struct Keeper {
    shared: Weak<Shared>,
    poke: Arc<Notify>,
    times: Times,
    tenure: Tenure,
}

impl Keeper {
    pub(super) fn new(shared: &Arc<Shared>, tenure: Tenure) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            poke: Arc::clone(&shared.poke),
            times: shared.times,
            tenure,
        }
    }

    pub(super) fn spawn_thread(self, name: &str) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name(format!("mcp-heartbeat-{name}"))
            .spawn(move || runtime.block_on(self.run()))?;
        Ok(())
    }

    pub(super) async fn run(mut self) {
        loop {
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            if shared.has_left() {
                return;
            }
            let beaten = self.beat(&shared).await;
            // A directory may grant less than was asked for.
            let period = self.times.heartbeat.min(self.tenure.lease() / 3);
            let wait = match beaten {
                Ok(()) => period,
                Err(error) => {
                    tracing::debug!(%error, "heartbeat failed");
                    period / 4
                }
            };
            // Not while holding the instance; and requests in doubt, however many, wake it no more often than this.
            drop(shared);
            tokio::time::sleep(period / 20).await;
            let _ = tokio::time::timeout(wait, self.poke.notified()).await;
        }
    }

    /// One round: claim or heartbeat, then touches, then idle sessions.
    async fn beat(&mut self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        self.tenure.notice(shared.now());
        self.publish(shared);
        if !self.tenure.claim_due() {
            let sent = shared.now();
            let reply = self.within(shared.directory.heartbeat(&shared.id)).await?;
            self.tenure.on_heartbeat(sent, shared.now(), &reply);
            self.publish(shared);
        }
        if self.tenure.claim_due() {
            self.claim(shared).await?;
        }
        if self.tenure.standing() == Standing::Unbroken {
            self.touch(shared).await?;
        }
        self.end_idle(shared).await
    }

    /// Shows the lease to the hot path: the generation first, then the deadline that belongs to it.
    fn publish(&self, shared: &Shared) {
        let left = shared.left.lock().unwrap_or_else(PoisonError::into_inner);
        if *left {
            return;
        }
        let deadline = self.tenure.deadline().map_or(0, Timestamp::as_nanos);
        let held = shared.deadline.load(Ordering::Acquire) != 0;
        shared
            .generation
            .store(self.tenure.generation(), Ordering::Release);
        shared.deadline.store(deadline, Ordering::Release);
        if held != (deadline != 0) {
            shared.changed.notify(usize::MAX);
            tracing::debug!(lease = deadline != 0, instance = ?shared.id, "lease");
        }
    }

    async fn claim(&mut self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        let generation = self.tenure.generation();
        let standing = self.tenure.standing();
        // What a lapse left unproven is claimed as lapsed, even by an instance whose lease is good again.
        let proven = |session: &OwnedSession| session.generation() == generation;
        let (mut batches, mut settled) = (Vec::new(), Vec::new());
        let unbroken = match standing {
            Standing::Unbroken => shared.table.collect(proven),
            Standing::Lapsed => Vec::new(),
        };
        let lapsed = shared
            .table
            .collect(|session| standing == Standing::Lapsed || !proven(session));
        for (standing, sessions) in [(Standing::Unbroken, &unbroken), (Standing::Lapsed, &lapsed)] {
            batches.extend(sessions.chunks(BATCH).map(|batch| (standing, batch)));
        }
        if batches.is_empty() {
            batches.push((standing, &[]));
        }

        let sent = shared.now();
        let mut granted = (None, self.tenure.lease());
        for (at, (standing, batch)) in batches.iter().enumerate() {
            let reply = self.claim_batch(shared, *standing, batch, at == 0).await?;
            if granted.0.is_some_and(|first| first != reply.incarnation)
                || reply.sessions.len() != batch.len()
            {
                // It lost its memory half-way: nothing it said before counts.
                return Err(StoreErrorKind::Recovering.into());
            }
            granted = (Some(reply.incarnation), reply.lease);
            settled.extend(
                batch
                    .iter()
                    .zip(reply.sessions)
                    .map(|(s, c)| (*standing, s, c)),
            );
        }
        let (Some(incarnation), lease) = granted else {
            return Ok(());
        };
        let counts = self
            .tenure
            .on_claim(sent, shared.now(), standing, incarnation, lease);
        if !counts {
            self.publish(shared);
            return Err(StoreErrorKind::TimedOut.into());
        }
        self.settle(shared, &settled);
        Ok(())
    }

    /// What the directory said of each session. The order matters: what is lost goes first, what was proven all along
    /// stays proven while the lease is shown anew, and what is proven again wakes whoever waits for it last, when the
    /// lease can be seen.
    fn settle(
        &mut self,
        shared: &Arc<Shared>,
        settled: &[(Standing, &Arc<OwnedSession>, Claimed)],
    ) {
        let generation = self.tenure.generation();
        for (standing, session, claimed) in settled {
            match (claimed, standing) {
                (Claimed::Held(fence), Standing::Unbroken) => session.prove(*fence, generation),
                // Somebody may have served it under a grant that the directory forgot, so the copy of its state here
                // may be an old one. The next request takes it over afresh.
                (Claimed::Held(fence), Standing::Lapsed)
                    if session.terms.residency == Residency::Externalized
                        && *fence != session.fence() =>
                {
                    shared.forget(session, Lost::TakenOver);
                }
                (Claimed::Held(_), Standing::Lapsed) => {}
                (Claimed::Noted, _) => {}
                (Claimed::Buried, _) => shared.forget(session, Lost::Buried),
                (Claimed::Taken, _) => shared.forget(session, Lost::TakenOver),
                (Claimed::Absent, _) => shared.forget(session, Lost::Absent),
            }
        }
        self.publish(shared);
        for (standing, session, claimed) in settled {
            if let (Claimed::Held(fence), Standing::Lapsed) = (claimed, standing)
                && !session.is_lost()
            {
                session.prove(*fence, generation);
            }
        }
        // Noted, or granted while the claim was on its way.
        let unproven = |session: &OwnedSession| session.generation() < generation;
        if !shared.table.collect(unproven).is_empty() {
            self.tenure.want_claim();
        }
    }

    async fn claim_batch(
        &self,
        shared: &Shared,
        standing: Standing,
        batch: &[Arc<OwnedSession>],
        first: bool,
    ) -> Result<crate::store::ClaimReply, StoreError> {
        let sessions: Vec<_> = batch
            .iter()
            .map(|session| {
                ClaimedSession::new(session.id(), session.fence(), session.terms.clone())
            })
            .collect();
        // Repeated before anything is claimed, and as long as the directory may have forgotten them.
        let tombstones: Vec<SessionId> = if first {
            let kept = shared.tombstones.lock();
            kept.unwrap_or_else(PoisonError::into_inner)
                .iter()
                .cloned()
                .collect()
        } else {
            Vec::new()
        };
        let mut claim = Claim::new(&shared.id, self.times.lease);
        claim.address = shared.address.as_deref();
        claim.standing = standing;
        claim.sessions = &sessions;
        claim.tombstones = &tombstones;
        self.within(shared.directory.claim(&claim)).await
    }

    /// Slides the retention of what was used, and drops what the directory says is gone.
    async fn touch(&self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        if shared.times.retention.is_none() {
            return Ok(());
        }
        let now = shared.now();
        let used = shared.table.collect(|session| session.refresh(now));
        for batch in used.chunks(BATCH) {
            let ids: Vec<_> = batch.iter().map(|session| session.id()).collect();
            let sent = shared.now();
            let gone = self
                .within(shared.directory.touch(&shared.id, &ids))
                .await?;
            for (session, id) in batch.iter().zip(&ids) {
                if gone.contains(id) {
                    shared.forget(session, Lost::Absent);
                } else {
                    session.touched_at(sent);
                }
            }
        }
        Ok(())
    }

    /// Ends what has been idle for too long, and what was ended but has no tombstone yet.
    async fn end_idle(&self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        let now = shared.now();
        let over = shared
            .table
            .collect(|session| session.is_ended() || session.is_idle(now, shared.times.idle));
        for session in over {
            if !session.is_ended() && !session.end_if_quiet() {
                continue;
            }
            let fence = Some(session.fence());
            let ended = self.within(shared.end(&session, fence, Lost::Idle)).await;
            match ended {
                Err(error) if error.kind() != StoreErrorKind::Fenced => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// A store that hangs must not stop the heartbeats.
    async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = self.times.heartbeat.max(Duration::from_millis(50));
        tokio::time::timeout(limit, call)
            .await
            .unwrap_or_else(|_| Err(StoreErrorKind::TimedOut.into()))
    }
}
