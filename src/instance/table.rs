//! The own table: the sessions that this instance owns, and how each of them stands.

use std::{
    hash::BuildHasher,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use event_listener::{Event, EventListener};
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::{
    clock::Timestamp,
    session::{Fence, SessionId, SessionTerms},
};

/// One session of the own table.
///
/// `word` holds everything that the hot path has to know in one atomic: how many calls and streams are running,
/// and flags that send a request the slow way.
#[derive(Debug)]
pub(crate) struct OwnedSession {
    pub(crate) id: SessionId,
    pub(crate) terms: SessionTerms,
    pub(crate) opened: Timestamp,
    fence: Mutex<Fence>,
    generation: AtomicU64,
    active: AtomicU64,
    touched: AtomicU64,
    word: AtomicU64,
    changed: Event,
}

const CALL: u64 = 1;
const STREAM: u64 = 1 << 28;
const CALLS: u64 = STREAM - 1;
const RUNNING: u64 = (1 << 56) - 1;
const LOST: u64 = 1 << 63;
const ENDED: u64 = 1 << 62;
const UNRESTORED: u64 = 1 << 61;
const RESTORING: u64 = 1 << 60;

/// What runs on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Running {
    /// A POST: work that a retiring instance waits for.
    Call,
    /// A GET: open for as long as both sides like.
    Stream,
}

impl Running {
    fn unit(self) -> u64 {
        match self {
            Self::Call => CALL,
            Self::Stream => STREAM,
        }
    }
}

/// What the flags of a session say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Good,
    /// Taken over, and the inner service has not yet rehydrated it.
    Unrestored,
    /// Ended here; its tombstone may still be on the way.
    Ended,
    /// Somebody else's now, or nobody's.
    Lost,
}

impl Condition {
    fn of(word: u64) -> Self {
        if word & LOST != 0 {
            Self::Lost
        } else if word & ENDED != 0 {
            Self::Ended
        } else if word & UNRESTORED != 0 {
            Self::Unrestored
        } else {
            Self::Good
        }
    }
}

impl OwnedSession {
    pub(crate) fn new(
        id: SessionId,
        terms: SessionTerms,
        fence: Fence,
        generation: u64,
        now: Timestamp,
        restored: bool,
    ) -> Self {
        Self {
            id,
            terms,
            opened: now,
            fence: Mutex::new(fence),
            generation: AtomicU64::new(generation),
            active: AtomicU64::new(now.as_nanos()),
            touched: AtomicU64::new(now.as_nanos()),
            word: AtomicU64::new(if restored { 0 } else { UNRESTORED }),
            changed: Event::new(),
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Proven again, perhaps under a higher fence.
    pub(crate) fn prove(&self, fence: Fence, generation: u64) {
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner) = fence;
        self.generation.store(generation, Ordering::Release);
        self.changed.notify(usize::MAX);
    }

    /// Counts something as running; says how the session stands, and whether anything else runs on it.
    pub(crate) fn enter(&self, running: Running) -> (Condition, bool) {
        let before = self.word.fetch_add(running.unit(), Ordering::AcqRel);
        (Condition::of(before), before & RUNNING != 0)
    }

    pub(crate) fn exit(&self, running: Running, seen: Timestamp) {
        self.active_at(seen);
        self.word.fetch_sub(running.unit(), Ordering::AcqRel);
    }

    pub(crate) fn condition(&self) -> Condition {
        Condition::of(self.word.load(Ordering::Acquire))
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.word.load(Ordering::Acquire) & ENDED != 0
    }

    pub(crate) fn is_unrestored(&self) -> bool {
        self.word.load(Ordering::Acquire) & UNRESTORED != 0
    }

    pub(crate) fn calls(&self) -> u64 {
        self.word.load(Ordering::Acquire) & CALLS
    }

    fn is_running(&self) -> bool {
        self.word.load(Ordering::Acquire) & RUNNING != 0
    }

    /// No activity is older than what was seen already.
    pub(crate) fn active_at(&self, now: Timestamp) {
        // A plain store: two requests that race differ by less than the heartbeat that looks at this.
        if self.active.load(Ordering::Relaxed) < now.as_nanos() {
            self.active.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Whether nothing was seen of it for `limit`.
    pub(crate) fn is_idle(&self, now: Timestamp, limit: Duration) -> bool {
        let active = Timestamp::from_nanos(self.active.load(Ordering::Relaxed));
        now.since(active) >= limit
    }

    /// Whether the directory, which keeps a record for `kept` after a touch, must still have this one.
    pub(crate) fn is_kept(&self, now: Timestamp, kept: Duration) -> bool {
        let touched = Timestamp::from_nanos(self.touched.load(Ordering::Relaxed));
        now.since(touched) < kept
    }

    /// What the heartbeat does: running work is activity. Returns whether the session was active since the
    /// last acknowledged touch.
    pub(crate) fn refresh(&self, now: Timestamp) -> bool {
        if self.is_running() {
            self.active_at(now);
        }
        self.active.load(Ordering::Relaxed) > self.touched.load(Ordering::Relaxed)
    }

    /// A touch that was sent at `sent` was acknowledged.
    pub(crate) fn touched_at(&self, sent: Timestamp) {
        self.touched.store(sent.as_nanos(), Ordering::Relaxed);
    }

    /// Ends it if nothing runs on it, so that no request can slip in between the decision and the tombstone.
    pub(crate) fn end_if_quiet(&self) -> bool {
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (word & RUNNING == 0).then_some(word | ENDED)
            })
            .is_ok()
    }

    pub(crate) fn end(&self) {
        self.set(ENDED);
    }

    pub(crate) fn lose(&self) {
        self.generation.store(0, Ordering::Release);
        self.set(LOST);
    }

    fn set(&self, flag: u64) {
        self.word.fetch_or(flag, Ordering::AcqRel);
        self.changed.notify(usize::MAX);
    }

    /// Makes the caller the one that has the inner service rehydrate the session.
    pub(crate) fn begin_restore(&self) -> bool {
        let before = self.word.fetch_or(RESTORING, Ordering::AcqRel);
        before & RESTORING == 0 && before & UNRESTORED != 0
    }

    pub(crate) fn end_restore(&self, restored: bool) {
        let flags = if restored {
            RESTORING | UNRESTORED
        } else {
            RESTORING
        };
        self.word.fetch_and(!flags, Ordering::AcqRel);
        self.changed.notify(usize::MAX);
    }

    /// Wakes at the next change of the proof or the flags; look again after making it.
    pub(crate) fn listen(&self) -> EventListener {
        self.changed.listen()
    }
}

/// The sessions of one instance, by id.
///
/// Sharded, so that requests of different sessions do not meet; hashed with a key of its own, so that ids which a
/// client makes up cannot be made to collide.
#[derive(Debug)]
pub(crate) struct OwnTable {
    shards: Box<[RwLock<HashTable<Arc<OwnedSession>>>]>,
    hasher: DefaultHashBuilder,
}

const SHARDS: usize = 64;

impl OwnTable {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    fn shard(&self, hash: u64) -> &RwLock<HashTable<Arc<OwnedSession>>> {
        // The table itself uses the upper and the lowest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<OwnedSession>> {
        let hash = self.hasher.hash_one(id);
        let shard = self
            .shard(hash)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        shard
            .find(hash, |session| session.id.as_str() == id)
            .cloned()
    }

    /// Puts a session in; returns the one that had its id.
    pub(crate) fn insert(&self, session: Arc<OwnedSession>) -> Option<Arc<OwnedSession>> {
        let hash = self.hasher.hash_one(session.id.as_str());
        let mut shard = self
            .shard(hash)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match shard.find_mut(hash, |other| other.id == session.id) {
            Some(slot) => Some(std::mem::replace(slot, session)),
            None => {
                shard.insert_unique(hash, session, |other| {
                    self.hasher.hash_one(other.id.as_str())
                });
                None
            }
        }
    }

    /// Takes this very session out, and not one that came after it.
    pub(crate) fn remove(&self, session: &Arc<OwnedSession>) -> bool {
        let hash = self.hasher.hash_one(session.id.as_str());
        let mut shard = self
            .shard(hash)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        shard
            .find_entry(hash, |other| Arc::ptr_eq(other, session))
            .is_ok_and(|entry| {
                entry.remove();
                true
            })
    }

    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).len())
            .sum()
    }

    /// The sessions for which `wanted` is true, gathered shard by shard.
    pub(crate) fn collect(
        &self,
        mut wanted: impl FnMut(&OwnedSession) -> bool,
    ) -> Vec<Arc<OwnedSession>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            found.extend(shard.iter().filter(|session| wanted(session)).cloned());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Incarnation, Residency};

    fn session(id: &str) -> Arc<OwnedSession> {
        Arc::new(OwnedSession::new(
            SessionId::parse(id).unwrap(),
            SessionTerms::new(Residency::Pinned),
            Fence::new(Incarnation::new(1, 1), 1),
            1,
            Timestamp::ORIGIN,
            true,
        ))
    }

    #[test]
    fn takes_out_the_very_one() {
        let table = OwnTable::new();
        let (old, new) = (session("a"), session("a"));
        assert!(table.insert(old.clone()).is_none());
        assert!(Arc::ptr_eq(&table.insert(new.clone()).unwrap(), &old));
        assert!(!table.remove(&old));
        assert!(table.get("a").is_some() && table.len() == 1);
        assert!(table.remove(&new) && table.get("a").is_none());
    }

    #[test]
    fn a_session_with_work_on_it_is_not_ended_for_idleness() {
        let session = session("a");
        assert_eq!(session.enter(Running::Stream), (Condition::Good, false));
        assert!(!session.end_if_quiet());
        session.exit(Running::Stream, Timestamp::ORIGIN);
        assert!(session.end_if_quiet());
        assert_eq!(session.enter(Running::Call), (Condition::Ended, false));
    }

    #[test]
    fn one_restorer_at_a_time() {
        let session = OwnedSession::new(
            SessionId::parse("a").unwrap(),
            SessionTerms::new(Residency::Externalized),
            Fence::new(Incarnation::new(1, 1), 2),
            1,
            Timestamp::ORIGIN,
            false,
        );
        assert!(session.begin_restore());
        assert!(!session.begin_restore());
        session.end_restore(false);
        assert!(session.begin_restore());
        session.end_restore(true);
        assert!(!session.begin_restore());
    }
}
