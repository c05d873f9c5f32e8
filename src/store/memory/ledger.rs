//! [`RequestLedger`] on the embedded store: the pure keys, sharded, and the room that they share.

use std::{
    hash::BuildHasher,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use hashbrown::DefaultHashBuilder;

use super::{MemoryConfig, MemoryStore, keys::Keys};
use crate::{
    clock::Timestamp,
    store::{Begun, Held, KeyClaim, Outcome, RequestLedger, StoreError, StoreErrorKind},
};

impl RequestLedger for MemoryStore {
    async fn begin(&self, claim: &KeyClaim) -> Result<Begun, StoreError> {
        self.shared.ledger.begin(self.shared.clock.now(), claim)
    }

    async fn renew(&self, claim: &KeyClaim) -> Result<Held, StoreError> {
        let now = self.shared.clock.now();
        Ok(self.shared.ledger.renew(now, claim))
    }

    async fn complete(&self, claim: &KeyClaim, outcome: &Outcome) -> Result<Held, StoreError> {
        let now = self.shared.clock.now();
        Ok(self.shared.ledger.complete(now, claim, outcome))
    }

    async fn release(&self, claim: &KeyClaim) -> Result<(), StoreError> {
        self.shared.ledger.release(self.shared.clock.now(), claim);
        Ok(())
    }
}

/// All keys, sharded so that requests with different ones do not meet on one lock.
#[derive(Debug)]
pub(super) struct Ledger {
    shards: [Slot; SHARDS],
    hasher: DefaultHashBuilder,
    max_keys: usize,
    max_bytes: usize,
    #[cfg(feature = "test-util")]
    horizon: std::time::Duration,
    keys: AtomicUsize,
    bytes: AtomicUsize,
    /// Until when a key that is not there may have been forgotten, in nanoseconds.
    recovering: AtomicU64,
    /// When the whole ledger may be looked through next because it is full.
    relief: AtomicU64,
    /// Where bytes were last taken from, so that the oldest outcomes of all shards go in turn.
    next: AtomicUsize,
}

/// Apart, so that a lock does not share its cache line with its neighbour's.
#[derive(Debug)]
#[repr(align(128))]
struct Slot(Mutex<Keys>);

const SHARDS: usize = 16;
/// A full ledger under attack must not be looked through for every request.
const RELIEF_EVERY: u64 = 100_000_000;

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Keys> {
        // Nothing in the verbs panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    pub(super) fn new(config: &MemoryConfig) -> Self {
        Self {
            shards: std::array::from_fn(|_| Slot(Mutex::new(Keys::new(config.outcomes)))),
            // With a key of its own: digests of what a client chose can be chosen too.
            hasher: DefaultHashBuilder::default(),
            max_keys: config.max_keys,
            max_bytes: config.max_outcome_bytes,
            #[cfg(feature = "test-util")]
            horizon: config.retry_horizon,
            keys: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            recovering: AtomicU64::new(0),
            relief: AtomicU64::new(0),
            next: AtomicUsize::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    pub(super) fn used(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Keys that are not there may have been forgotten, from `now` on for the retry horizon.
    #[cfg(feature = "test-util")]
    pub(super) fn recover(&self, now: Timestamp, forget: bool) {
        if forget {
            for slot in &self.shards {
                self.on(slot, Keys::forget);
            }
        }
        let until = now.after(self.horizon);
        self.recovering.store(until.as_nanos(), Ordering::Release);
    }

    fn is_recovering(&self, now: Timestamp) -> bool {
        now.as_nanos() < self.recovering.load(Ordering::Acquire)
    }

    fn slot(&self, claim: &KeyClaim) -> (&Slot, u64) {
        let hash = self.hasher.hash_one(claim.key.as_bytes());
        // The table itself uses the upper and the lowest bits.
        (&self.shards[(hash >> 32) as usize % SHARDS], hash)
    }

    /// Calls a verb on a shard and keeps count of what it holds.
    fn on<T>(&self, slot: &Slot, verb: impl FnOnce(&mut Keys) -> T) -> T {
        let mut keys = slot.lock();
        let before = (keys.len(), keys.bytes());
        let outcome = verb(&mut keys);
        let after = (keys.len(), keys.bytes());
        drop(keys);
        count(&self.keys, before.0, after.0);
        count(&self.bytes, before.1, after.1);
        outcome
    }

    fn begin(&self, now: Timestamp, claim: &KeyClaim) -> Result<Begun, StoreError> {
        let (slot, hash) = self.slot(claim);
        let mut relieved = false;
        loop {
            let recovering = self.is_recovering(now);
            let begun = self.on(slot, |keys| {
                keys.tidy(now);
                let known = keys.known(now, hash, claim);
                match known {
                    Some(known) => known.map(Some),
                    None if recovering => Err(StoreErrorKind::Recovering.into()),
                    // Counted among the keys before another shard can take the same room.
                    None if self.enter() => {
                        keys.insert(now, hash, claim, 1);
                        // The count of this shard goes up by one too.
                        self.keys.fetch_sub(1, Ordering::Relaxed);
                        Ok(Some(Begun::Fresh { attempt: 1 }))
                    }
                    None => Ok(None),
                }
            })?;
            match begun {
                Some(begun) => return Ok(begun),
                None if !relieved && self.relieve(now) => relieved = true,
                None => return Err(StoreErrorKind::Full.into()),
            }
        }
    }

    /// Takes room for one more key, if there is any.
    fn enter(&self) -> bool {
        let more = |keys: usize| (keys < self.max_keys).then_some(keys + 1);
        (self.keys)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Drops what is over in every shard. Whether it was time to look.
    fn relieve(&self, now: Timestamp) -> bool {
        let (now_nanos, due) = (now.as_nanos(), self.relief.load(Ordering::Relaxed));
        if now_nanos < due {
            return false;
        }
        self.relief
            .store(now_nanos.saturating_add(RELIEF_EVERY), Ordering::Relaxed);
        for slot in &self.shards {
            self.on(slot, |keys| keys.drop_over(now));
        }
        true
    }

    fn renew(&self, now: Timestamp, claim: &KeyClaim) -> Held {
        let (slot, hash) = self.slot(claim);
        let recovering = self.is_recovering(now);
        self.on(slot, |keys| {
            let held = keys.renew(now, hash, claim);
            // Forgotten is not given back: it is running, and this is its word.
            if held == Held::Absent && recovering {
                keys.insert(now, hash, claim, claim.attempt);
                return Held::Yes;
            }
            held
        })
    }

    fn complete(&self, now: Timestamp, claim: &KeyClaim, outcome: &Outcome) -> Held {
        let (slot, hash) = self.slot(claim);
        let held = self.on(slot, |keys| keys.complete(now, hash, claim, outcome));
        for _ in 0..2 * SHARDS {
            if self.used() <= self.max_bytes {
                break;
            }
            let next = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let over = self.used().saturating_sub(self.max_bytes);
            self.on(&self.shards[next], |keys| keys.drop_bytes(over));
        }
        held
    }

    fn release(&self, now: Timestamp, claim: &KeyClaim) {
        let (slot, hash) = self.slot(claim);
        self.on(slot, |keys| keys.release(now, hash, claim));
    }
}

fn count(counter: &AtomicUsize, before: usize, after: usize) {
    if after > before {
        counter.fetch_add(after - before, Ordering::Relaxed);
    } else if after < before {
        counter.fetch_sub(before - after, Ordering::Relaxed);
    }
}
