//! What really happened, as nobody in the system can see it, and the invariants that are stated over it.

use mcp_session_guard::{session::Fence, store::Lookup};

use crate::{
    model::World,
    node::at,
    request::Request,
    scenario::{A, Scenario},
};

/// One of the protocol's invariants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Invariant {
    NoEffectUnderAnOlderFence,
    NoNotFoundBeforeService,
    NoAnswerWithoutProof,
    TombstonesWin,
    NoSilentOblivion,
}

impl Invariant {
    pub(crate) const ALL: [Self; 5] = [
        Self::NoEffectUnderAnOlderFence,
        Self::NoNotFoundBeforeService,
        Self::NoAnswerWithoutProof,
        Self::TombstonesWin,
        Self::NoSilentOblivion,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoEffectUnderAnOlderFence => {
                "I1: no effect under an older fence after service under a newer one"
            }
            Self::NoNotFoundBeforeService => "I2: no 404 for a session that is served afterwards",
            Self::NoAnswerWithoutProof => "I3: no answer without proof",
            Self::TombstonesWin => "I4: a tombstone wins over everything",
            Self::NoSilentOblivion => "I5: no registration is forgotten silently",
        }
    }
}

/// The history that the invariants speak of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    /// Whether a client has seen the session's id.
    pub(crate) opened: bool,
    /// The highest fence that a request was dispatched under; at first that of the opening.
    pub(crate) served: Fence,
    /// Whether a client was told 404.
    pub(crate) not_found: bool,
    /// Whether whoever wrote a tombstone knows that it stands.
    pub(crate) buried: bool,
    /// The first invariant that was broken. Nothing happens after that.
    pub(crate) broken: Option<Invariant>,
}

impl Ghost {
    pub(crate) fn breaks(&mut self, invariant: Invariant) {
        self.broken.get_or_insert(invariant);
    }

    /// What no service may contradict, at its dispatch and when its output is shown.
    pub(crate) fn check_service(&mut self, fence: Fence) {
        if self.served > fence {
            self.breaks(Invariant::NoEffectUnderAnOlderFence);
        }
        if self.not_found {
            self.breaks(Invariant::NoNotFoundBeforeService);
        }
        if self.buried {
            self.breaks(Invariant::TombstonesWin);
        }
    }
}

impl Scenario {
    pub(crate) fn check_dispatch(&self, world: &mut World, node: usize, fence: Fence) {
        world.ghost.check_service(fence);
        let stale = world.nodes[node]
            .table
            .as_ref()
            .is_some_and(|own| own.stale);
        if stale {
            world.ghost.breaks(Invariant::NoEffectUnderAnOlderFence);
        }
        if self.is_proven(world, 1 - node) {
            world.ghost.breaks(Invariant::NoAnswerWithoutProof);
        }
        world.ghost.served = world.ghost.served.max(fence);
    }

    /// A 404 is true when it is said, or it should not have been said.
    pub(crate) fn say_not_found(&self, world: &mut World) {
        if (0..world.nodes.len()).any(|node| self.is_proven(world, node)) {
            world.ghost.breaks(Invariant::NoAnswerWithoutProof);
        }
        world.ghost.not_found = true;
    }

    /// A directory grants nothing that is buried, unless it has forgotten the tombstone and says that it may have.
    pub(crate) fn check_grant(&self, world: &mut World) {
        if world.ghost.buried && !world.directory.is_recovering(at(world.now)) {
            world.ghost.breaks(Invariant::TombstonesWin);
        }
    }

    /// Whether the directory says that an acknowledged registration is not there, and may not.
    pub(crate) fn forgets_silently(&self, world: &World) -> bool {
        // What is yet to be registered cannot be forgotten.
        let opening = matches!(world.nodes[A].request, Request::Opening { .. });
        if !world.up || !world.ghost.opened || opening {
            return false;
        }
        let admits = |since: u8| world.now >= since + self.lease;
        let lookup = world.directory.lookup(at(world.now), &self.session());
        match (lookup, world.restored) {
            (Ok(Lookup::Absent), None) => !world.ghost.buried && self.idle.is_none(),
            (Ok(Lookup::Absent | Lookup::Orphaned(_)), Some(since)) => !admits(since),
            _ => false,
        }
    }
}
