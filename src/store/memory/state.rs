//! The directory as a value: verbs in, replies out, `now` passed in. The ownership model explores this very code.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::MemoryConfig;
use crate::{
    clock::Timestamp,
    session::{Fence, Incarnation, InstanceId, Residency, SessionId, SessionRecord, SessionTerms},
    store::{
        Bury, Claim, ClaimReply, Claimed, ClaimedSession, Heartbeat, Lookup, Registered, Standing,
        StoreError, StoreErrorKind, TakeOver, Terminated,
    },
};

/// Everything a [`MemoryStore`](super::MemoryStore) remembers of sessions.
///
/// Ordered maps, since their cost does not depend on ids that clients choose.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DirectoryState {
    config: MemoryConfig,
    incarnation: Incarnation,
    recovering_until: Option<Timestamp>,
    leases: BTreeMap<InstanceId, Lease>,
    sessions: BTreeMap<SessionId, Slot>,
    /// Ids with a tombstone, oldest first.
    tombstones: VecDeque<SessionId>,
    swept: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Lease {
    until: Timestamp,
    length: Duration,
    address: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Slot {
    Session {
        record: SessionRecord,
        expires: Option<Timestamp>,
        /// How whoever wrote it in this incarnation stood; decides between claims while recovering.
        standing: Standing,
    },
    Tombstone {
        until: Timestamp,
    },
}

impl DirectoryState {
    /// An empty directory that is not recovering.
    #[must_use]
    pub fn new(config: MemoryConfig, incarnation: Incarnation) -> Self {
        Self {
            config,
            incarnation,
            recovering_until: None,
            leases: BTreeMap::new(),
            sessions: BTreeMap::new(),
            tombstones: VecDeque::new(),
            swept: Timestamp::ORIGIN,
        }
    }

    /// How many sessions and tombstones it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Which life of the memory this is.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Whether it is waiting for owners to speak up.
    #[must_use]
    pub fn is_recovering(&self, now: Timestamp) -> bool {
        self.recovering_until.is_some_and(|until| now < until)
    }

    /// Forgets everything and recovers from `now` on.
    pub fn lose_memory(&mut self, now: Timestamp, unix_millis: u64, nonce: u64) {
        self.fail_over_to(
            Self::new(self.config, self.incarnation),
            now,
            unix_millis,
            nonce,
        );
    }

    /// Becomes `replica` in a new incarnation and recovers from `now` on.
    pub fn fail_over_to(&mut self, replica: Self, now: Timestamp, unix_millis: u64, nonce: u64) {
        let incarnation = self.incarnation.max(replica.incarnation);
        *self = replica;
        self.incarnation = incarnation.successor(unix_millis, nonce);
        // A new incarnation knows of no lease and takes nobody's word for what the old one granted.
        self.leases.clear();
        for slot in self.sessions.values_mut() {
            if let Slot::Session { standing, .. } = slot {
                *standing = Standing::Lapsed;
            }
        }
        self.recovering_until = Some(now.after(self.config.max_lease));
    }

    fn is_live(&self, now: Timestamp, instance: &InstanceId) -> bool {
        self.leases
            .get(instance)
            .is_some_and(|lease| now < lease.until)
    }

    /// The slot, unless its time is over.
    fn slot(&self, now: Timestamp, id: &SessionId) -> Option<&Slot> {
        self.sessions.get(id).filter(|slot| !slot.is_over(now))
    }

    /// See [`SessionDirectory::lookup`](crate::store::SessionDirectory::lookup).
    ///
    /// # Errors
    ///
    /// While recovering, for whatever would be absent or orphaned.
    pub fn lookup(&self, now: Timestamp, id: &SessionId) -> Result<Lookup, StoreError> {
        let lookup = match self.slot(now, id) {
            Some(Slot::Tombstone { .. }) => return Ok(Lookup::Terminated),
            Some(Slot::Session { record, .. }) => match self.leases.get(&record.owner) {
                Some(lease) if now < lease.until => {
                    return Ok(Lookup::Owned {
                        record: record.clone(),
                        address: lease.address.clone(),
                    });
                }
                _ => Lookup::Orphaned(record.clone()),
            },
            None => Lookup::Absent,
        };
        self.known(now).map(|()| lookup)
    }

    /// Nothing that may have been forgotten is known while recovering.
    fn known(&self, now: Timestamp) -> Result<(), StoreError> {
        if self.is_recovering(now) {
            return Err(StoreErrorKind::Recovering.into());
        }
        Ok(())
    }

    /// See [`SessionDirectory::register`](crate::store::SessionDirectory::register).
    ///
    /// # Errors
    ///
    /// When there is no room.
    pub fn register(
        &mut self,
        now: Timestamp,
        id: &SessionId,
        owner: &InstanceId,
        terms: &SessionTerms,
    ) -> Result<Registered, StoreError> {
        if !self.is_live(now, owner) {
            return Ok(Registered::NoLease);
        }
        match self.slot(now, id) {
            // The caller's own, written by an attempt whose reply was lost.
            Some(Slot::Session { record, .. })
                if record.owner == *owner && record.terms == *terms =>
            {
                return Ok(Registered::Recorded(record.fence));
            }
            Some(_) => return Ok(Registered::Occupied),
            None => {}
        }
        if !self.make_room(now) {
            return Err(StoreErrorKind::Full.into());
        }
        let fence = Fence::new(self.incarnation, 1);
        let record = SessionRecord::new(owner.clone(), fence, terms.clone());
        self.put(now, id, record, Standing::Unbroken);
        Ok(Registered::Recorded(fence))
    }

    /// See [`SessionDirectory::claim`](crate::store::SessionDirectory::claim).
    pub fn claim(&mut self, now: Timestamp, claim: &Claim<'_>) -> ClaimReply {
        let length = claim.lease.min(self.config.max_lease);
        self.leases.retain(|_, lease| now < lease.until);
        self.leases.insert(
            claim.instance.clone(),
            Lease {
                until: now.after(length),
                length,
                address: claim.address.map(Into::into),
            },
        );
        if self.is_recovering(now) {
            for id in claim.tombstones {
                self.entomb(now, id);
            }
        }
        let sessions = claim
            .sessions
            .iter()
            .map(|session| self.claim_one(now, claim, session))
            .collect();
        ClaimReply::new(self.incarnation, length, sessions)
    }

    fn claim_one(
        &mut self,
        now: Timestamp,
        claim: &Claim<'_>,
        session: &ClaimedSession,
    ) -> Claimed {
        let recovering = self.is_recovering(now);
        let standing = claim.standing;
        match self.slot(now, &session.id) {
            Some(Slot::Tombstone { .. }) => return Claimed::Buried,
            Some(Slot::Session {
                record,
                standing: other,
                ..
            }) => {
                let mine = record.owner == *claim.instance && record.fence == session.fence;
                // While recovering, what stands here may be an old replica's or a lapsed owner's word.
                let better = recovering && (standing, session.fence) > (*other, record.fence);
                if !mine && !better {
                    return Claimed::Taken;
                }
            }
            None if !recovering => return Claimed::Absent,
            None => {}
        }
        let granted = match standing {
            Standing::Unbroken => session.fence,
            Standing::Lapsed if recovering => session.fence,
            // The first grant of a new life is above everything that the old one granted.
            Standing::Lapsed if session.fence.incarnation() != self.incarnation => {
                session.fence.next(self.incarnation)
            }
            Standing::Lapsed => session.fence,
        };
        let record = SessionRecord::new(claim.instance.clone(), granted, session.terms.clone());
        self.put(now, &session.id, record, standing);
        if recovering && standing == Standing::Lapsed {
            return Claimed::Noted;
        }
        Claimed::Held(granted)
    }

    /// See [`SessionDirectory::heartbeat`](crate::store::SessionDirectory::heartbeat).
    pub fn heartbeat(&mut self, now: Timestamp, instance: &InstanceId) -> Heartbeat {
        let extended = match self.leases.get_mut(instance) {
            Some(lease) if now < lease.until => {
                lease.until = now.after(lease.length);
                true
            }
            _ => false,
        };
        Heartbeat::new(self.incarnation, extended)
    }

    /// See [`SessionDirectory::take_over`](crate::store::SessionDirectory::take_over).
    ///
    /// # Errors
    ///
    /// While recovering, when the owner's lease is not known to be live.
    pub fn take_over(
        &mut self,
        now: Timestamp,
        id: &SessionId,
        seen: Fence,
        by: &InstanceId,
    ) -> Result<TakeOver, StoreError> {
        if !self.is_live(now, by) {
            return Ok(TakeOver::NoLease);
        }
        let Some(Slot::Session { record, .. }) = self.slot(now, id) else {
            return self.known(now).map(|()| TakeOver::Lost);
        };
        let own = record.owner == *by;
        let free = own || !self.is_live(now, &record.owner);
        if record.fence != seen || record.terms.residency != Residency::Externalized || !free {
            return Ok(TakeOver::Lost);
        }
        self.known(now)?;
        let fence = seen.next(self.incarnation);
        let record = SessionRecord::new(by.clone(), fence, record.terms.clone());
        self.put(now, id, record, Standing::Unbroken);
        Ok(TakeOver::Taken(fence))
    }

    /// See [`SessionDirectory::bury`](crate::store::SessionDirectory::bury).
    ///
    /// # Errors
    ///
    /// While recovering, when there is neither a tombstone nor a live owner.
    pub fn bury(
        &mut self,
        now: Timestamp,
        id: &SessionId,
        seen: Fence,
    ) -> Result<Bury, StoreError> {
        match self.slot(now, id) {
            // Buried by an attempt whose reply was lost, or by somebody else: the 404 is true.
            Some(Slot::Tombstone { .. }) => return Ok(Bury::Buried),
            Some(Slot::Session { record, .. })
                if record.fence != seen || self.is_live(now, &record.owner) =>
            {
                return Ok(Bury::Lost);
            }
            Some(Slot::Session { .. }) => self.known(now)?,
            None => return self.known(now).map(|()| Bury::Lost),
        }
        self.entomb(now, id);
        Ok(Bury::Buried)
    }

    /// See [`SessionDirectory::touch`](crate::store::SessionDirectory::touch).
    pub fn touch(
        &mut self,
        now: Timestamp,
        owner: &InstanceId,
        ids: &[SessionId],
    ) -> Vec<SessionId> {
        let recovering = self.is_recovering(now);
        let mut gone = Vec::new();
        for id in ids {
            match self.sessions.get_mut(id).filter(|slot| !slot.is_over(now)) {
                Some(Slot::Session {
                    record, expires, ..
                }) if record.owner == *owner => {
                    *expires = record.terms.retention.map(|kept| now.after(kept));
                }
                // Forgotten is not gone: the owner's claim brings it back.
                None if recovering => {}
                _ => gone.push(id.clone()),
            }
        }
        gone
    }

    /// See [`SessionDirectory::terminate`](crate::store::SessionDirectory::terminate).
    ///
    /// # Errors
    ///
    /// While recovering, when a fence is given and there is no tombstone.
    pub fn terminate(
        &mut self,
        now: Timestamp,
        id: &SessionId,
        fence: Option<Fence>,
    ) -> Result<Terminated, StoreError> {
        match (self.slot(now, id), fence) {
            (Some(Slot::Tombstone { .. }), _) => return Ok(Terminated::Ended),
            // What stands here may be an old grant's; a higher one that was forgotten has yet to be claimed.
            (_, Some(_)) if self.is_recovering(now) => {
                return Err(StoreErrorKind::Recovering.into());
            }
            (Some(Slot::Session { record, .. }), Some(fence)) if record.fence != fence => {
                return Ok(Terminated::Fenced);
            }
            (None, Some(_)) => return Ok(Terminated::Absent),
            (None, None) if !self.is_recovering(now) => return Ok(Terminated::Absent),
            // A client's DELETE of a session that was forgotten must stand when its owner claims it.
            (None, None) | (Some(Slot::Session { .. }), _) => {}
        }
        self.entomb(now, id);
        Ok(Terminated::Ended)
    }

    /// See [`SessionDirectory::leave`](crate::store::SessionDirectory::leave).
    pub fn leave(&mut self, instance: &InstanceId) {
        self.leases.remove(instance);
    }

    fn put(&mut self, now: Timestamp, id: &SessionId, record: SessionRecord, standing: Standing) {
        let expires = record.terms.retention.map(|kept| now.after(kept));
        self.sessions.insert(
            id.clone(),
            Slot::Session {
                record,
                expires,
                standing,
            },
        );
    }

    fn entomb(&mut self, now: Timestamp, id: &SessionId) {
        let until = now.after(self.config.tombstones);
        let before = self.sessions.insert(id.clone(), Slot::Tombstone { until });
        if !matches!(before, Some(Slot::Tombstone { .. })) {
            self.tombstones.push_back(id.clone());
        }
    }

    /// Room for one more: what is over goes first, then the oldest tombstones (a lapsed owner drops what is
    /// absent, so they are only needed while recovering), and nothing live ever.
    fn make_room(&mut self, now: Timestamp) -> bool {
        self.drop_tombstones(|slot| slot.is_over(now));
        if self.sessions.len() < self.config.max_sessions {
            return true;
        }
        // A full directory under attack must not be swept for every request.
        if now.since(self.swept) >= Duration::from_secs(1) || self.swept == Timestamp::ORIGIN {
            self.swept = now;
            self.sessions.retain(|_, slot| !slot.is_over(now));
        }
        let recovering = self.is_recovering(now);
        let mut one = !recovering && self.sessions.len() >= self.config.max_sessions;
        self.drop_tombstones(|_| std::mem::take(&mut one));
        self.sessions.len() < self.config.max_sessions
    }

    fn drop_tombstones(&mut self, mut may_go: impl FnMut(&Slot) -> bool) {
        while let Some(id) = self.tombstones.front() {
            match self.sessions.get(id) {
                Some(slot @ Slot::Tombstone { .. }) if may_go(slot) => {
                    self.sessions.remove(id);
                }
                Some(Slot::Tombstone { .. }) => break,
                // Swept already.
                _ => {}
            }
            self.tombstones.pop_front();
        }
    }
}

impl Slot {
    fn is_over(&self, now: Timestamp) -> bool {
        match self {
            Self::Session { expires, .. } => expires.is_some_and(|at| now >= at),
            Self::Tombstone { until } => now >= *until,
        }
    }
}
