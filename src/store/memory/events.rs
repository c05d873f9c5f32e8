//! [`EventStore`] on the embedded store: locks, the clock, and the pure logs; and how the memory is shared out.

use std::{
    hash::BuildHasher,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use hashbrown::DefaultHashBuilder;

use super::{
    MemoryConfig, MemoryStore,
    shard::Shard,
    weight::{Weight, nanos},
};
use crate::{
    clock::Timestamp,
    session::{Fence, SessionId},
    store::{Append, Ending, EventStore, Page, Seq, Snapshot, StoreError, StreamHeader, StreamKey},
};

impl EventStore for MemoryStore {
    async fn open(&self, header: &StreamHeader) -> Result<(), StoreError> {
        let (now, session) = (self.shared.clock.now(), &header.key.session);
        let need = Shard::need_of_stream(header);
        self.shared.logs.write(now, session, need, |shard, hash| {
            shard.open(now, hash, header)
        })
    }

    async fn append(&self, append: &Append<'_>) -> Result<(), StoreError> {
        let (now, session) = (self.shared.clock.now(), &append.key.session);
        let weight = Weight::of_all(append.events);
        let logs = &self.shared.logs;
        logs.write(now, session, weight.memory, |shard, hash| {
            shard.append(now, hash, append, weight)
        })
    }

    async fn end(&self, key: &StreamKey, last: Seq, ending: Ending) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        self.shared.logs.write(now, &key.session, 0, |shard, hash| {
            shard.end(now, hash, key, last, ending)
        })
    }

    async fn read_after(
        &self,
        key: &StreamKey,
        after: Seq,
        page: Page,
    ) -> Result<Option<Snapshot>, StoreError> {
        let now = self.shared.clock.now();
        self.shared.logs.write(now, &key.session, 0, |shard, hash| {
            Ok(shard.read_after(now, hash, key, after, page))
        })
    }

    async fn seal(&self, session: &SessionId, below: Fence) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let need = Shard::need_of_seal(session);
        self.shared.logs.write(now, session, need, |shard, hash| {
            shard.seal(now, hash, session, below)
        })
    }
}

/// All logs, sharded by session so that streams of different sessions do not meet on one lock.
///
/// The memory is granted to the shards in chunks, so that they do not meet on one counter either.
#[derive(Debug)]
pub(super) struct Shards {
    shards: [Slot; SHARDS],
    hasher: DefaultHashBuilder,
    granted: AtomicUsize,
    max: usize,
    chunk: usize,
    /// The shard that is swept next, when, and how long after the one before, in nanoseconds.
    next: AtomicUsize,
    due: AtomicU64,
    every: u64,
    /// When the whole store may be swept next because it is full.
    relief: AtomicU64,
}

/// Apart, so that a lock does not share its cache line with its neighbour's.
#[derive(Debug)]
#[repr(align(128))]
struct Slot(Mutex<Shard>);

const SHARDS: usize = 16;
/// A full store under attack must not be swept for every request.
const RELIEF_EVERY: u64 = 1_000_000_000;

impl Shards {
    pub(super) fn new(config: &MemoryConfig) -> Self {
        let max = config.max_event_bytes;
        Self {
            shards: std::array::from_fn(|_| Slot(Mutex::new(Shard::new(config)))),
            hasher: DefaultHashBuilder::default(),
            granted: AtomicUsize::new(0),
            max,
            chunk: (max / 256).clamp(1, 64 * 1024),
            next: AtomicUsize::new(0),
            due: AtomicU64::new(0),
            // Each shard four times while an event is kept.
            every: (nanos(config.max_event_age) / (4 * SHARDS as u64)).max(1),
            relief: AtomicU64::new(0),
        }
    }

    /// What is counted now; see [`MemoryConfig::max_event_bytes`].
    pub(super) fn used(&self) -> usize {
        (self.shards.iter()).map(|slot| slot.lock().used()).sum()
    }

    #[cfg(feature = "test-util")]
    pub(super) fn forget(&self) {
        for slot in &self.shards {
            let mut shard = slot.lock();
            shard.forget();
            self.take_back(&mut shard, 0);
        }
    }

    /// Calls a verb on the session's shard, which has `need` to spare if that can be had.
    fn write<T>(
        &self,
        now: Timestamp,
        session: &SessionId,
        need: usize,
        verb: impl FnOnce(&mut Shard, u64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let hash = self.hasher.hash_one(session.as_str());
        // The table itself uses the upper and the lowest bits.
        let slot = &self.shards[(hash >> 32) as usize % SHARDS];
        let mut shard = slot.lock();
        if need > shard.spare() && !self.grant(&mut shard, need) {
            drop(shard);
            self.relieve(now, need);
            shard = slot.lock();
            self.grant(&mut shard, need);
        }
        let outcome = verb(&mut shard, hash);
        self.take_back(&mut shard, self.chunk);
        drop(shard);
        self.tidy(now);
        outcome
    }

    /// Sets memory aside for a shard, a chunk more than it needs if possible.
    fn grant(&self, shard: &mut Shard, need: usize) -> bool {
        let lacking = need.saturating_sub(shard.spare());
        [lacking.saturating_add(self.chunk), lacking]
            .into_iter()
            .any(|wish| {
                let granted = |granted: usize| {
                    let granted = granted.checked_add(wish)?;
                    (granted <= self.max).then_some(granted)
                };
                let set =
                    (self.granted).fetch_update(Ordering::Relaxed, Ordering::Relaxed, granted);
                if set.is_ok() {
                    shard.grant(wish);
                }
                set.is_ok()
            })
    }

    fn take_back(&self, shard: &mut Shard, kept: usize) {
        // Not at once, or the counter would be touched by every call.
        if shard.spare() > kept.saturating_mul(3) {
            self.granted
                .fetch_sub(shard.give_back(kept), Ordering::Relaxed);
        }
    }

    /// Sweeps one shard, when it is time. After a silence the next few calls make up for it, one shard each.
    fn tidy(&self, now: Timestamp) {
        let (now_nanos, due) = (now.as_nanos(), self.due.load(Ordering::Relaxed));
        if now_nanos < due {
            return;
        }
        let behind = self.every.saturating_mul(SHARDS as u64);
        let next = due
            .max(now_nanos.saturating_sub(behind))
            .saturating_add(self.every);
        let won = self
            .due
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_ok() {
            let at = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let mut shard = self.shards[at].lock();
            shard.sweep(now);
            self.take_back(&mut shard, 0);
        }
    }

    /// Sweeps all shards, since `need` cannot be granted; and if that was not enough takes what nobody has ended.
    fn relieve(&self, now: Timestamp, need: usize) {
        let (now_nanos, relief) = (now.as_nanos(), self.relief.load(Ordering::Relaxed));
        if need > self.max || now_nanos < relief {
            return;
        }
        self.relief
            .store(now_nanos.saturating_add(RELIEF_EVERY), Ordering::Relaxed);
        for slot in &self.shards {
            let mut shard = slot.lock();
            shard.sweep(now);
            self.take_back(&mut shard, 0);
        }
        for slot in &self.shards {
            let granted = self.granted.load(Ordering::Relaxed);
            let Some(lacking) = need.checked_sub(self.max.saturating_sub(granted)) else {
                return;
            };
            let mut shard = slot.lock();
            shard.drop_silent(now, lacking);
            self.take_back(&mut shard, 0);
        }
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Shard> {
        // Nothing in the verbs panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
