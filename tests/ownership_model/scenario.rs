//! What is explored: the residency, the fault, the rule that is left out, and the bounds.

use mcp_session_guard::{
    instance::Tenure,
    session::{Epoch, Fence, Incarnation, InstanceId, Residency, SessionId, SessionTerms},
    store::{Claim, DirectoryState, Standing},
};

use crate::{
    model::World,
    mutation::Mutation,
    node::{Node, at, secs},
};

/// The instance that opened the session.
pub(crate) const A: usize = 0;
/// The other one, which is asked for it.
pub(crate) const B: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The directory stops and comes back with nothing.
    EmptyRestart,
    /// The directory stops and a replica that missed the last writes takes its place.
    FailOver,
}

/// What is explored.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) residency: Residency,
    pub(crate) fault: Fault,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) horizon: u8,
    pub(crate) lease: u8,
    pub(crate) margin: u8,
    /// How long a tombstone is kept.
    pub(crate) tombstones: u8,
    /// The idle limit. Without one, an owner may find a session idle at any time.
    pub(crate) idle: Option<u8>,
    /// Whether A may find the session idle and end it.
    pub(crate) idles: bool,
    /// Whether its client may end it.
    pub(crate) deletes: bool,
    /// Whether a request takes time: between its admission, its dispatch, its effect and its answer.
    pub(crate) slow: bool,
    /// Whether the session is yet to be opened when the model begins.
    pub(crate) opening: bool,
    /// Whether A may leave as planned.
    pub(crate) leaving: bool,
    /// Whether A's clock may run slow, by no more than the margin.
    pub(crate) drift: bool,
    /// Whether those who wrote a tombstone repeat it before the directory stops recovering.
    pub(crate) buriers_speak_up: bool,
    /// Whether a DELETE may reach the directory after the lease of the instance that took it has lapsed.
    pub(crate) deletes_land_late: bool,
    /// How often the session may be granted in one incarnation.
    pub(crate) grants: u64,
    pub(crate) id: SessionId,
}

impl Scenario {
    pub(crate) fn new(residency: Residency, fault: Fault) -> Self {
        Self {
            residency,
            fault,
            mutation: None,
            horizon: 5,
            lease: 2,
            margin: 0,
            tombstones: 2,
            idle: None,
            idles: false,
            deletes: false,
            slow: true,
            opening: false,
            leaving: false,
            drift: false,
            buriers_speak_up: true,
            deletes_land_late: false,
            grants: 3,
            id: SessionId::parse("session").expect("an id"),
        }
    }

    pub(crate) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// The incarnation that the model begins in.
    pub(crate) fn first(&self) -> Incarnation {
        Incarnation::new(1, 0)
    }

    pub(crate) fn first_fence(&self) -> Fence {
        Fence::new(self.first(), 1)
    }

    /// Both processes were given the same name; what tells them apart is the epoch.
    pub(crate) fn instance(&self, node: usize) -> InstanceId {
        let epoch = if self.is(Mutation::ComparesNames) {
            0
        } else {
            node
        };
        InstanceId::new("pod", Epoch::from_u128(epoch as u128 + 1))
    }

    pub(crate) fn retention(&self) -> Option<u8> {
        let slack = self.lease + 1;
        self.idle.map(|limit| limit + slack)
    }

    pub(crate) fn terms(&self) -> SessionTerms {
        let kept = match self.idle {
            Some(limit) if self.is(Mutation::DirectoryDecidesIdleness) => Some(limit),
            _ => self.retention(),
        };
        SessionTerms::new(self.residency).with_retention(kept.map(secs))
    }

    /// What a node's own clock shows.
    pub(crate) fn clock(&self, world: &World, node: usize) -> u8 {
        if node == A {
            world.now - world.behind
        } else {
            world.now
        }
    }

    fn margin(&self) -> u8 {
        if self.is(Mutation::NoMargin) {
            0
        } else {
            self.margin
        }
    }

    /// Joins the directory as a new instance does.
    pub(crate) fn join(&self, directory: &mut DirectoryState, node: usize) -> Node {
        let mut tenure = Tenure::new(secs(self.lease), secs(self.margin()));
        let id = self.instance(node);
        let reply = directory.claim(at(0), &Claim::new(&id, tenure.lease()));
        let held = tenure.on_claim(
            at(0),
            at(0),
            Standing::Lapsed,
            reply.incarnation,
            reply.lease,
        );
        assert!(held, "a new instance gets a lease");
        Node::new(tenure, reply.incarnation)
    }

    pub(crate) fn session(&self) -> SessionId {
        self.id.clone()
    }
}
