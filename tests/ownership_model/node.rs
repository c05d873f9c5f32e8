//! An instance: its tenure, its table of one session, and what it has under way.

use std::time::Duration;

use mcp_session_guard::{
    clock::Timestamp,
    instance::Tenure,
    session::{Fence, Incarnation},
    store::{Claimed, Heartbeat, Standing},
};

use crate::{request::Request, scenario::Scenario};

pub(crate) fn at(seconds: u8) -> Timestamp {
    Timestamp::ORIGIN.after(secs(seconds))
}

pub(crate) fn secs(seconds: u8) -> Duration {
    Duration::from_secs(seconds.into())
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) tenure: Tenure,
    /// The incarnation that its last claim was answered by.
    pub(crate) known: Incarnation,
    /// How often its lease went on into another incarnation.
    pub(crate) renewals: u64,
    /// How often it did so without its noticing, against the rules.
    pub(crate) overlooked: u64,
    pub(crate) table: Option<Owned>,
    pub(crate) keeper: Keeper,
    /// A `terminate` that was decided and may land at any later time, with what it carries.
    pub(crate) ending: Option<Option<Fence>>,
    pub(crate) request: Request,
    /// Whether it wrote a tombstone, which it then repeats.
    pub(crate) tombstone: bool,
    pub(crate) left: bool,
}

/// The session as its owner holds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owned {
    pub(crate) fence: Fence,
    /// The lease that it was proven under; zero once that is not the present one.
    pub(crate) generation: u64,
    /// Serves nothing any more; its tombstone may be on the way.
    pub(crate) ended: bool,
    /// Whether somebody else has served it since this copy of its state was current.
    pub(crate) stale: bool,
    pub(crate) active: u8,
    pub(crate) touched: u8,
}

/// The keeper's one call under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Keeper {
    Idle,
    Sent { at: u8, call: Call },
    Replied { at: u8, call: Call, reply: Reply },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Heartbeat,
    Claim {
        tenure: Standing,
        session: Option<(Standing, Fence)>,
        tombstone: bool,
    },
    Touch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Heartbeat(Heartbeat),
    Claim(Incarnation, Duration, Option<Claimed>),
    Touch { gone: bool },
}

impl Node {
    pub(crate) fn new(tenure: Tenure, known: Incarnation) -> Self {
        Self {
            tenure,
            known,
            renewals: 0,
            overlooked: 0,
            table: None,
            keeper: Keeper::Idle,
            ending: None,
            request: Request::None,
            tombstone: false,
            left: false,
        }
    }

    /// What a proof is stamped with: the unbroken lease, and the incarnation it is kept in. What was granted in one
    /// incarnation and is not in the claim under the next is proven no more.
    pub(crate) fn generation(&self) -> u64 {
        self.tenure.generation() - self.overlooked
    }

    /// Whether its lease ever lapsed, by its own count.
    pub(crate) fn has_lapsed(&self) -> bool {
        self.tenure.generation() - self.renewals > 1
    }

    /// The lease at this moment, if it is good.
    pub(crate) fn tenancy(&self, now: Timestamp) -> Option<u64> {
        (!self.left && self.tenure.holds(now)).then(|| self.generation())
    }

    /// Drops the session, and with it whatever is being served under it.
    pub(crate) fn forget(&mut self) {
        self.table = None;
        self.request.lose();
    }

    /// What the keeper says next, as `Keeper::beat` does.
    pub(crate) fn next_call(&mut self, now: Timestamp) -> Call {
        self.tenure.notice(now);
        if !self.tenure.claim_due() {
            return Call::Heartbeat;
        }
        let tenure = self.tenure.standing();
        let generation = self.generation();
        let session = self.table.as_ref().map(|own| {
            let proven = own.generation == generation;
            // What a lapse left unproven is claimed as lapsed, even under a lease that is good again.
            let standing = if proven { tenure } else { Standing::Lapsed };
            (standing, own.fence)
        });
        Call::Claim {
            tenure,
            session,
            tombstone: self.tombstone,
        }
    }
}

impl Node {
    /// What came into the table while a claim was under way may have been granted by an older incarnation.
    pub(crate) fn claim_the_unproven(&mut self) {
        let generation = self.generation();
        if self
            .table
            .as_ref()
            .is_some_and(|own| own.generation != generation)
        {
            self.tenure.want_claim();
        }
    }

    /// Older generations differ in nothing but their number.
    pub(crate) fn unprove_older(&mut self) {
        let generation = self.generation();
        if let Some(own) = self
            .table
            .as_mut()
            .filter(|own| own.generation != generation)
        {
            own.generation = 0;
        }
    }
}

impl Scenario {
    pub(crate) fn owned(&self, fence: Fence, generation: u64, now: u8) -> Owned {
        // Times that nobody looks at would only multiply the states.
        let seen = self.idle.map_or(0, |_| now);
        Owned {
            fence,
            generation,
            ended: false,
            stale: false,
            active: seen,
            touched: seen,
        }
    }
}
