//! The accounts of all sessions that have something outstanding, and the tickets that keep them there.
//!
//! An entry lives as long as its tickets: one for each request under way, each answer on its way out and each open
//! stream. What a client merely claims is forgotten with its request.

use std::{
    fmt,
    hash::BuildHasher,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hashbrown::{DefaultHashBuilder, HashTable};
use tokio::time::Instant;

use super::{
    account::{Account, FlowId, Terms},
    figures::{Figures, StalledHook},
    key::Key,
    sync::{Mutex, MutexGuard, PoisonError},
    watchdog::{Ender, Watch},
};
use crate::{
    clock::Timestamp,
    outbox::{Lever, Relief},
};

/// Sharded, so that requests of different sessions do not meet; hashed with a key of its own, so that ids which a
/// client makes up cannot be made to collide.
pub(super) struct Accounts {
    shards: Box<[Mutex<Shard>]>,
    pub(super) hasher: DefaultHashBuilder,
    pub(super) terms: Terms,
    origin: Instant,
    pub(super) watch: Watch,
    /// When the next flow is due, as far as is known.
    pub(super) next: AtomicU64,
    pub(super) counters: Counters,
    pub(super) hook: Option<Arc<StalledHook>>,
}

pub(super) const SHARDS: usize = 64;
/// A shard that has been larger gives its memory back when it is empty.
const KEPT: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) refused: AtomicU64,
    pub(super) torn_down: AtomicU64,
    pub(super) ended: AtomicU64,
}

#[derive(Default)]
pub(super) struct Shard {
    index: HashTable<u32>,
    pub(super) slots: Vec<Slot>,
    free: Vec<u32>,
    pub(super) peak: (u32, u64),
}

/// One session's entry.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) key: Key,
    hash: u64,
    pub(super) users: u32,
    pub(super) account: Account,
    /// By flow; none for an answer that is no stream.
    pub(super) levers: Vec<Option<Weak<dyn Lever>>>,
    pub(super) ender: Option<Ender>,
    /// Probes that the client has yet to answer.
    pub(super) asked: Vec<(FlowId, u64)>,
    /// Requests whose answers come on the session's one stream (MCP 2024-11-05), hashed.
    pub(super) awaited: Vec<u64>,
    /// How many such streams are open, and the newest.
    pub(super) carriers: u32,
    pub(super) carrier: Option<Weak<dyn Lever>>,
}

impl Accounts {
    pub(super) fn new(terms: Terms, hook: Option<Arc<StalledHook>>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            terms,
            origin: Instant::now(),
            watch: Watch::default(),
            next: AtomicU64::new(u64::MAX),
            counters: Counters::default(),
            hook,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::ORIGIN.after(self.origin.elapsed())
    }

    /// How long until then.
    pub(super) fn until(&self, then: Timestamp) -> Duration {
        then.since(self.now())
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        let shards = self.shards.iter();
        shards.map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    pub(super) fn shard(&self, shard: u16) -> MutexGuard<'_, Shard> {
        // No method of an account panics half-way through a change.
        let shard = &self.shards[usize::from(shard)];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream that carries the answers of a session, if one stream does.
    pub(super) fn carrier(&self, id: &[u8]) -> Option<Weak<dyn Lever>> {
        let hash = self.hasher.hash_one(id);
        let shard = self.shard(((hash >> 32) as usize % SHARDS) as u16);
        let slot = shard.find(hash, id)?;
        shard.slots[slot as usize].carrier.clone()
    }

    /// The client answers something of the server's: whether it is a probe of this layer's, which is thereby answered.
    pub(super) fn answered_probe(&self, id: &[u8], nonce: u64) -> bool {
        let hash = self.hasher.hash_one(id);
        let relief = {
            let mut shard = self.shard(((hash >> 32) as usize % SHARDS) as u16);
            let Some(slot) = shard.find(hash, id) else {
                return false;
            };
            let slot = &mut shard.slots[slot as usize];
            let Some(at) = slot.asked.iter().position(|(_, asked)| *asked == nonce) else {
                return false;
            };
            let (flow, _) = slot.asked.swap_remove(at);
            match slot.account.prove(flow, &self.terms) {
                true => slot.relief(),
                false => Relief::default(),
            }
        };
        relief.wake();
        true
    }

    pub(super) fn figures(&self) -> Figures {
        let mut figures = Figures {
            refused: self.counters.refused.load(Ordering::Relaxed),
            streams_torn_down: self.counters.torn_down.load(Ordering::Relaxed),
            sessions_ended: self.counters.ended.load(Ordering::Relaxed),
            ..Figures::default()
        };
        for shard in self.shards() {
            figures.sessions += shard.index.len();
            figures.peak_messages = figures.peak_messages.max(shard.peak.0);
            figures.peak_bytes = figures.peak_bytes.max(shard.peak.1);
            for slot in &shard.slots {
                let (messages, bytes) = slot.account.undrained();
                figures.reserved += slot.account.reserved() as usize;
                figures.undrained_messages += messages as usize;
                figures.undrained_bytes += bytes;
            }
        }
        figures
    }
}

impl Shard {
    #[inline]
    pub(super) fn find(&self, hash: u64, id: &[u8]) -> Option<u32> {
        let same = |slot: &u32| self.slots[*slot as usize].key.as_bytes() == id;
        self.index.find(hash, same).copied()
    }

    pub(super) fn insert(&mut self, hash: u64, id: &[u8]) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.key = Key::new(id);
        entry.hash = hash;
        let slots = &self.slots;
        let rehash = |slot: &u32| slots[*slot as usize].hash;
        self.index.insert_unique(hash, slot, rehash);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        debug_assert!(entry.account.is_blank(), "all credit has come back");
        let hash = entry.hash;
        if let Ok(found) = self.index.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        entry.reset();
        self.free.push(slot);
        if self.index.is_empty() && self.slots.len() > KEPT {
            *self = Self {
                peak: self.peak,
                ..Self::default()
            };
        }
    }
}

impl Slot {
    /// Ready for another session. A few flows' worth of memory is kept, so that a session which comes costs none.
    fn reset(&mut self) {
        self.key = Key::default();
        self.account.reset();
        self.ender = None;
        self.levers.clear();
        self.levers.shrink_to(8);
        self.asked = Vec::new();
        self.awaited = Vec::new();
        self.carriers = 0;
        self.carrier = None;
    }

    pub(super) fn pull(&mut self, flow: FlowId, lever: Option<Weak<dyn Lever>>) {
        if self.levers.len() <= flow.index() {
            self.levers.resize(flow.index() + 1, None);
        }
        self.levers[flow.index()] = lever;
    }

    pub(super) fn relief(&mut self) -> Relief {
        let starved = self.account.starved();
        let levers = starved.filter_map(|flow| self.levers.get(flow.index())?.clone());
        Relief(levers.collect())
    }

    /// An answer with this id has drained, on the stream that carries all answers.
    pub(super) fn arrived(&mut self, id: u64) {
        if let Some(at) = self.awaited.iter().position(|awaited| *awaited == id) {
            self.awaited.swap_remove(at);
            self.account.release(1);
        }
    }
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts")
            .field("figures", &self.figures())
            .finish_non_exhaustive()
    }
}
