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
    account::{Account, Drain, FlowId, Level, Refusal, Step, Terms, Verdict, Wants, decide},
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
    hasher: DefaultHashBuilder,
    pub(super) terms: Terms,
    origin: Instant,
    pub(super) watch: Watch,
    pub(super) counters: Counters,
    pub(super) hook: Option<Arc<StalledHook>>,
}

const SHARDS: usize = 64;
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
    peak: (u32, u64),
}

/// One session's entry.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) key: Key,
    users: u32,
    pub(super) account: Account,
    /// By flow; none for an answer that is no stream.
    pub(super) levers: Vec<Option<Weak<dyn Lever>>>,
    pub(super) ender: Option<Ender>,
    /// Probes that the client has yet to answer.
    pub(super) asked: Vec<(FlowId, u64)>,
    /// Requests whose answers come on the session's one stream (MCP 2024-11-05), hashed.
    awaited: Vec<u64>,
    /// How many such streams are open, and the newest.
    carriers: u32,
    carrier: Option<Weak<dyn Lever>>,
}

/// What became of a request at the door.
pub(super) enum Admission {
    Admitted(Ticket),
    /// Its body must be read first.
    Read,
    Refused(Refusal),
}

/// A place in an account, given back once, when this is dropped.
pub(super) struct Ticket {
    accounts: Arc<Accounts>,
    shard: u16,
    slot: u32,
    flow: Option<FlowId>,
    /// Reserved and not yet owed by the flow.
    places: u32,
    carrier: bool,
}

impl Accounts {
    pub(super) fn new(terms: Terms, hook: Option<Arc<StalledHook>>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            terms,
            origin: Instant::now(),
            watch: Watch::default(),
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
    fn shard(&self, shard: u16) -> MutexGuard<'_, Shard> {
        // No method of an account panics half-way through a change.
        let shard = &self.shards[usize::from(shard)];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides on a request, and reserves `places` for its answers if it is admitted: one step, so that of several at
    /// once no more are admitted than there is credit for.
    #[inline]
    pub(super) fn admit(self: &Arc<Self>, id: &[u8], wants: Wants, places: u32) -> Admission {
        let hash = self.hasher.hash_one(id);
        // The table itself uses the upper and the lowest bits.
        let number = (hash >> 32) as usize % SHARDS;
        let mut shard = self.shard(number as u16);
        let shard = &mut *shard;
        let found = shard.find(hash, id);
        if let Some(slot) = found {
            let slot = &mut shard.slots[slot as usize];
            let level = slot.account.level(&self.terms);
            let drain = match level {
                Level::Far | Level::Near => Drain::Moves,
                Level::AtCredit | Level::AtHighWater => slot.account.drain(&self.terms, self.now()),
            };
            match decide(wants, level, drain, !slot.asked.is_empty()) {
                Verdict::Admit => {}
                Verdict::Read => return Admission::Read,
                Verdict::Refuse(refusal) => {
                    self.counters.refused.fetch_add(1, Ordering::Relaxed);
                    return Admission::Refused(refusal);
                }
            }
        }
        let slot = match found {
            Some(slot) => slot,
            None => shard.insert(hash, id, &self.hasher),
        };
        let entry = &mut shard.slots[slot as usize];
        entry.users += 1;
        entry.account.reserve(places);
        Admission::Admitted(Ticket {
            accounts: Arc::clone(self),
            shard: number as u16,
            slot,
            flow: None,
            places,
            carrier: false,
        })
    }

    /// A ticket for a stream that nobody has asked for credit.
    pub(super) fn enter(self: &Arc<Self>, id: &[u8]) -> Option<Ticket> {
        match self.admit(id, Wants::Nothing, 0) {
            Admission::Admitted(ticket) => Some(ticket),
            Admission::Read | Admission::Refused(_) => None,
        }
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
    fn find(&self, hash: u64, id: &[u8]) -> Option<u32> {
        let same = |slot: &u32| self.slots[*slot as usize].key.as_bytes() == id;
        self.index.find(hash, same).copied()
    }

    fn insert(&mut self, hash: u64, id: &[u8], hasher: &DefaultHashBuilder) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize].key = Key::new(id);
        let slots = &self.slots;
        let rehash = |slot: &u32| hasher.hash_one(slots[*slot as usize].key.as_bytes());
        self.index.insert_unique(hash, slot, rehash);
        slot
    }

    fn remove(&mut self, slot: u32, hasher: &DefaultHashBuilder) {
        let entry = &mut self.slots[slot as usize];
        debug_assert!(entry.account.is_blank(), "all credit has come back");
        let hash = hasher.hash_one(entry.key.as_bytes());
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

    fn pull(&mut self, flow: FlowId, lever: Option<Weak<dyn Lever>>) {
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
    fn arrived(&mut self, id: u64) {
        if let Some(at) = self.awaited.iter().position(|awaited| *awaited == id) {
            self.awaited.swap_remove(at);
            self.account.release(1);
        }
    }
}

impl Ticket {
    #[inline]
    fn with<T>(&self, change: impl FnOnce(&mut Slot, &Accounts) -> T) -> T {
        let mut shard = self.accounts.shard(self.shard);
        change(&mut shard.slots[self.slot as usize], &self.accounts)
    }

    /// An answer that is not a stream is on its way out: one message, in the place that was reserved for it.
    #[inline]
    pub(super) fn open_plain(&mut self, bytes: u64, shared: bool, lever: Option<Weak<dyn Lever>>) {
        let owes = std::mem::take(&mut self.places);
        let mut shard = self.accounts.shard(self.shard);
        let slot = &mut shard.slots[self.slot as usize];
        let flow = slot.account.open(owes, shared);
        if lever.is_some() || slot.levers.len() > flow.index() {
            slot.pull(flow, lever);
        }
        let mut step = Step::default();
        step.reading.messages = 1;
        step.reading.answers = 1;
        step.reading.bytes = bytes;
        // When it began to wait is noted by whoever first wants to know.
        slot.account.step(flow, &step, &self.accounts.terms, None);
        drop(shard);
        self.flow = Some(flow);
        Watch::wake(&self.accounts);
    }

    /// A stream is on its way out. With `carrier`, it is the one that all answers of the session come on.
    pub(super) fn open(
        &mut self,
        shared: bool,
        lever: Weak<dyn Lever>,
        ender: Option<&Ender>,
        carrier: bool,
    ) {
        let owes = std::mem::take(&mut self.places);
        self.carrier = carrier;
        self.flow = Some(self.with(|slot, _| {
            let flow = slot.account.open(owes, shared);
            if carrier {
                slot.carriers += 1;
                slot.carrier = Some(lever.clone());
            }
            slot.pull(flow, Some(lever));
            if slot.ender.is_none() {
                slot.ender = ender.cloned();
            }
            flow
        }));
    }

    pub(super) fn on_shared(&self, shared: bool) {
        if let Some(flow) = self.flow {
            self.with(|slot, _| slot.account.shared(flow, shared));
        }
    }

    /// Something has happened on the flow. `arrived` are the answers that the client took, where they may belong to
    /// other requests of the session.
    pub(super) fn step(&self, step: &Step, arrived: &[u64]) -> Relief {
        let Some(flow) = self.flow else {
            return Relief::default();
        };
        let now = self.accounts.now();
        let mut shard = self.accounts.shard(self.shard);
        let shard = &mut *shard;
        let slot = &mut shard.slots[self.slot as usize];
        let relieved = slot
            .account
            .step(flow, step, &self.accounts.terms, Some(now));
        arrived.iter().for_each(|id| slot.arrived(*id));
        let (messages, bytes) = slot.account.undrained();
        shard.peak = (shard.peak.0.max(messages), shard.peak.1.max(bytes));
        let relief = match relieved {
            true => slot.relief(),
            false => Relief::default(),
        };
        if messages > 0 {
            Watch::wake(&self.accounts);
        }
        relief
    }

    /// Whether the flow's producer may go on. If not it is told when it may.
    pub(super) fn may_pull(&self) -> bool {
        let Some(flow) = self.flow else {
            return true;
        };
        self.with(|slot, accounts| slot.account.may_pull(flow, &accounts.terms))
    }

    /// Leaves the places to the answers with these ids, which come on another stream of the session. If there is none
    /// they come nowhere, and the places are given back.
    pub(super) fn leave_to(mut self, ids: &[u64]) {
        let places = std::mem::take(&mut self.places);
        self.with(|slot, _| {
            let left = match slot.carriers {
                0 => 0,
                _ => places.min(ids.len() as u32),
            };
            slot.awaited.extend(&ids[..left as usize]);
            slot.account.release(places - left);
        });
    }

    #[cfg(test)]
    pub(super) fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let accounts = Arc::clone(&self.accounts);
        let mut shard = accounts.shard(self.shard);
        let slot = &mut shard.slots[self.slot as usize];
        let mut relief = Relief::default();
        slot.account.release(self.places);
        if let Some(flow) = self.flow {
            slot.asked.retain(|(asked, _)| *asked != flow);
            if slot.account.close(flow, &accounts.terms) {
                relief = slot.relief();
            }
            if let Some(lever) = slot.levers.get_mut(flow.index()) {
                *lever = None;
            }
        }
        if self.carrier {
            slot.carriers -= 1;
            if slot.carriers == 0 {
                let lost = std::mem::take(&mut slot.awaited).len();
                slot.account.release(lost as u32);
            }
        }
        slot.users -= 1;
        if slot.users == 0 {
            shard.remove(self.slot, &accounts.hasher);
        }
        drop(shard);
        relief.wake();
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("flow", &self.flow)
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts")
            .field("figures", &self.figures())
            .finish_non_exhaustive()
    }
}
