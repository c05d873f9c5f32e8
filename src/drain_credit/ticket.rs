//! A place in a session's account, from the moment a request is admitted until its answer has drained.

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak, atomic::Ordering},
};

use std::hash::BuildHasher;

use super::{
    account::{Drain, FlowId, Level, Refusal, Step, Verdict, Wants, decide},
    accounts::{Accounts, SHARDS, Slot},
    layer::Shared,
    watchdog::{Ender, Watch},
};
use crate::outbox::{Lever, Relief};

/// What the tickets of one service share.
pub(super) struct Core {
    pub(super) shared: Arc<Shared>,
    pub(super) ender: OnceLock<Ender>,
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
    core: Arc<Core>,
    shard: u16,
    slot: u32,
    flow: Option<FlowId>,
    /// Reserved and not yet owed by the flow.
    places: u32,
    carrier: bool,
}

impl Core {
    pub(super) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            ender: OnceLock::new(),
        })
    }

    pub(super) fn accounts(&self) -> &Arc<Accounts> {
        &self.shared.accounts
    }

    /// Decides on a request, and reserves `places` for its answers if it is admitted: one step, so that of several at
    /// once no more are admitted than there is credit for.
    #[inline]
    pub(super) fn admit(self: &Arc<Self>, id: &[u8], wants: Wants, places: u32) -> Admission {
        let accounts = self.accounts();
        let hash = accounts.hasher.hash_one(id);
        // The table itself uses the upper and the lowest bits.
        let number = (hash >> 32) as usize % SHARDS;
        let mut shard = accounts.shard(number as u16);
        let shard = &mut *shard;
        let found = shard.find(hash, id);
        if let Some(slot) = found {
            let slot = &mut shard.slots[slot as usize];
            let level = slot.account.level(&accounts.terms);
            let drain = match level {
                Level::Far | Level::Near => Drain::Moves,
                Level::AtCredit | Level::AtHighWater => {
                    slot.account.drain(&accounts.terms, accounts.now())
                }
            };
            match decide(wants, level, drain, !slot.asked.is_empty()) {
                Verdict::Admit => {}
                Verdict::Read => return Admission::Read,
                Verdict::Refuse(refusal) => {
                    accounts.counters.refused.fetch_add(1, Ordering::Relaxed);
                    return Admission::Refused(refusal);
                }
            }
        }
        let slot = match found {
            Some(slot) => slot,
            None => shard.insert(hash, id),
        };
        let entry = &mut shard.slots[slot as usize];
        entry.users += 1;
        entry.account.reserve(places);
        Admission::Admitted(Ticket {
            core: Arc::clone(self),
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
}

impl Ticket {
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    #[inline]
    fn with<T>(&self, change: impl FnOnce(&mut Slot, &Accounts) -> T) -> T {
        let mut shard = self.core.accounts().shard(self.shard);
        change(&mut shard.slots[self.slot as usize], self.core.accounts())
    }

    /// An answer that is not a stream is on its way out: one message, in the place that was reserved for it.
    #[inline]
    pub(super) fn open_plain(&mut self, bytes: u64, shared: bool, lever: Option<Weak<dyn Lever>>) {
        let owes = std::mem::take(&mut self.places);
        let mut shard = self.core.accounts().shard(self.shard);
        let slot = &mut shard.slots[self.slot as usize];
        let flow = slot.account.open(owes, shared);
        if lever.is_some() || slot.levers.len() > flow.index() {
            slot.pull(flow, lever);
        }
        // When it began to wait is noted by whoever first wants to know.
        slot.account.deliverable(flow, bytes);
        let (messages, undrained) = slot.account.undrained();
        shard.peak = (shard.peak.0.max(messages), shard.peak.1.max(undrained));
        drop(shard);
        self.flow = Some(flow);
        Watch::wake(self.core.accounts());
    }

    /// A stream is on its way out. With `carrier`, it is the one that all answers of the session come on.
    pub(super) fn open(&mut self, shared: bool, lever: Weak<dyn Lever>, carrier: bool) {
        let owes = std::mem::take(&mut self.places);
        self.carrier = carrier;
        self.flow = Some(self.with(|slot, _| {
            let flow = slot.account.open(owes, shared);
            if carrier {
                slot.carriers += 1;
                slot.carrier = Some(lever.clone());
            }
            slot.pull(flow, Some(lever));
            // When a carrier is torn down its inner stream is dropped, and that is how such a session ends.
            if slot.ender.is_none() && !carrier {
                slot.ender = self.core.ender.get().cloned();
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
        let now = self.core.accounts().now();
        let mut shard = self.core.accounts().shard(self.shard);
        let shard = &mut *shard;
        let slot = &mut shard.slots[self.slot as usize];
        let relieved = slot
            .account
            .step(flow, step, &self.core.accounts().terms, Some(now));
        arrived.iter().for_each(|id| slot.arrived(*id));
        let (messages, bytes) = slot.account.undrained();
        shard.peak = (shard.peak.0.max(messages), shard.peak.1.max(bytes));
        let relief = match relieved {
            true => slot.relief(),
            false => Relief::default(),
        };
        if messages > 0 {
            Watch::wake(self.core.accounts());
        }
        relief
    }

    /// How many messages the flow's producer may bring. If it is none, it is told when there is room again.
    pub(super) fn room(&self) -> u32 {
        let Some(flow) = self.flow else {
            return u32::MAX;
        };
        self.with(|slot, accounts| slot.account.room(flow, &accounts.terms))
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
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let accounts = self.core.accounts();
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
            shard.remove(self.slot);
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
