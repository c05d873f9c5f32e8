//! The model: two instances, one session, one directory that may lose its memory, and a clock.

use std::time::Duration;

use mcp_session_guard::{
    session::Fence,
    store::{DirectoryState, MemoryConfig, Registered},
};
use stateright::{Model, Property};

use crate::{
    ghost::{Ghost, Invariant},
    mutation::Mutation,
    node::{Keeper, Node, at, secs},
    request::Request,
    scenario::{A, B, Fault, Scenario},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u8,
    /// How far A's clock is behind.
    pub(crate) behind: u8,
    pub(crate) up: bool,
    pub(crate) directory: DirectoryState,
    pub(crate) replica: Option<DirectoryState>,
    pub(crate) may_fail: bool,
    /// When the directory came back.
    pub(crate) restored: Option<u8>,
    pub(crate) nodes: [Node; 2],
    /// The highest fence that the inner service's store of session state has seen.
    pub(crate) sealed: Fence,
    pub(crate) ghost: Ghost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    /// A second passes that A's clock does not count.
    TickUnseen,
    /// A's keeper sends what is due: a heartbeat or a claim.
    Send,
    SendTouch,
    /// What A's keeper sent reaches the directory.
    Apply,
    /// What was sent, or the reply to it, is lost.
    Lose,
    Handle,
    /// A whole round of B's keeper, without delays.
    Beat,
    Arrive(usize),
    Act(usize),
    LoseGrant(usize),
    Adopt(usize),
    Dispatch(usize),
    Write(usize),
    Show(usize),
    FindIdle(usize),
    Delete(usize),
    LandEnding(usize),
    RetryEnding(usize),
    /// A gives up its table, and then its lease.
    Disown,
    Leave,
    Open,
    Register,
    Reveal,
    /// The replica catches up.
    Replicate,
    Stop,
    Restore,
}

impl Model for Scenario {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let config = MemoryConfig::default()
            .with_max_lease(secs(self.lease))
            .with_tombstones(secs(self.tombstones));
        let mut directory = DirectoryState::new(config, self.first());
        let mut nodes = [A, B].map(|node| self.join(&mut directory, node));
        if !self.opening {
            let id = self.instance(A);
            let registered = directory.register(at(0), &self.id, &id, &self.terms());
            let Ok(Registered::Recorded(fence)) = registered else {
                panic!("a new session is registered: {registered:?}");
            };
            let generation = nodes[A].generation();
            nodes[A].table = Some(self.owned(fence, generation, 0));
        }
        let mut world = World {
            now: 0,
            behind: 0,
            up: true,
            directory,
            replica: None,
            may_fail: self.fault != Fault::None,
            restored: None,
            nodes,
            sealed: self.first_fence(),
            ghost: Ghost {
                opened: !self.opening,
                served: self.first_fence(),
                not_found: false,
                buried: false,
                broken: None,
            },
        };
        if self.fault == Fault::FailOver {
            world.replica = Some(self.replicate(&world));
        }
        vec![world]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.ghost.broken.is_some() || self.is_spent(world) {
            return;
        }
        if world.now < self.horizon && !self.waits_for_tombstones(world) {
            steps.push(Step::Tick);
            if self.is(Mutation::ClockSleeps) || self.drift && world.behind < self.margin {
                steps.push(Step::TickUnseen);
            }
        }
        self.keeper_steps(world, steps);
        self.node_steps(world, A, steps);
        self.node_steps(world, B, steps);
        self.fault_steps(world, steps);
        if self.opening && !world.ghost.opened && world.nodes[A].request == Request::None {
            steps.push(Step::Open);
        }
        if self.leaving && world.up {
            let disowns = !self.is(Mutation::LeavesBeforeDisowning);
            steps.push(if world.nodes[A].left || !disowns {
                Step::Leave
            } else {
                Step::Disown
            });
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut next = last.clone();
        let world = &mut next;
        match step {
            Step::Tick => world.now += 1,
            Step::TickUnseen => {
                world.now += 1;
                world.behind += 1;
            }
            Step::Send => self.send(world, A),
            Step::SendTouch => self.send_touch(world, A),
            Step::Apply => self.apply(world, A)?,
            Step::Lose => world.nodes[A].keeper = Keeper::Idle,
            Step::Handle => self.handle(world, A)?,
            Step::Beat => self.beat(world, B),
            Step::Arrive(node) => self.arrive(world, node),
            Step::Act(node) => self.act(world, node)?,
            Step::LoseGrant(node) => world.nodes[node].request = Request::None,
            Step::Adopt(node) => self.adopt(world, node)?,
            Step::Dispatch(node) => self.dispatch(world, node)?,
            Step::Write(node) => self.write(world, node)?,
            Step::Show(node) => self.show(world, node)?,
            Step::FindIdle(node) => self.find_idle(world, node)?,
            Step::Delete(node) => {
                let own = world.nodes[node].table.as_mut()?;
                own.ended = true;
                let fence = own.fence;
                world.nodes[node].ending = Some(Some(fence));
                if !self.deletes_land_late {
                    self.land_ending(world, node)?;
                }
            }
            Step::LandEnding(node) => self.land_ending(world, node)?,
            Step::RetryEnding(node) => {
                let fence = world.nodes[node].table.as_ref()?.fence;
                world.nodes[node].ending = Some(Some(fence));
            }
            Step::Disown => {
                world.nodes[A].left = true;
                world.nodes[A].forget();
            }
            Step::Leave => world.directory.leave(&self.instance(A)),
            Step::Open => self.open(world, A)?,
            Step::Register => self.register(world, A)?,
            Step::Reveal => self.reveal(world, A)?,
            Step::Replicate => world.replica = Some(self.replicate(world)),
            Step::Stop => {
                world.up = false;
                world.may_fail = false;
            }
            Step::Restore => self.restore(world),
        }
        self.normalize(world);
        if self.forgets_silently(world) {
            world.ghost.breaks(Invariant::NoSilentOblivion);
        }
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let holds: [fn(&Self, &World) -> bool; 5] = [
            |_, world| world.ghost.broken != Some(Invariant::NoEffectUnderAnOlderFence),
            |_, world| world.ghost.broken != Some(Invariant::NoNotFoundBeforeService),
            |_, world| world.ghost.broken != Some(Invariant::NoAnswerWithoutProof),
            |_, world| world.ghost.broken != Some(Invariant::TombstonesWin),
            |_, world| world.ghost.broken != Some(Invariant::NoSilentOblivion),
        ];
        let mut properties: Vec<_> = Invariant::ALL
            .iter()
            .zip(holds)
            .map(|(invariant, holds)| Property::always(invariant.name(), holds))
            .collect();
        properties.extend(self.occurrences());
        properties
    }
}

impl Scenario {
    fn restore(&self, world: &mut World) {
        let now = at(world.now);
        let recovered = now.before(if self.is(Mutation::RecoversTooShort) {
            secs(self.lease - 1)
        } else {
            Duration::ZERO
        });
        match (self.fault, world.replica.take()) {
            (Fault::FailOver, Some(replica)) if self.is(Mutation::FailOverUnnoticed) => {
                world.directory = replica;
            }
            (Fault::FailOver, Some(replica)) => {
                world.directory.fail_over_to(replica, recovered, 0, 0);
            }
            _ => world.directory.lose_memory(recovered, 0, 0),
        }
        world.up = true;
        world.restored = Some(world.now);
    }

    /// A copy of what the directory holds, as a replica gets it. Leases are left out, since a replica that is
    /// promoted knows of none.
    fn replicate(&self, world: &World) -> DirectoryState {
        let mut replica = world.directory.clone();
        if !self.is(Mutation::FailOverUnnoticed) {
            replica.leave(&self.instance(A));
            replica.leave(&self.instance(B));
        }
        replica
    }

    fn fences_writes(&self) -> bool {
        !self.is(Mutation::WritesWithoutFence) && !self.is(Mutation::ShowsWithoutProof)
    }

    /// Makes one of states that differ in nothing that can be seen: a lease that has lapsed and one that is gone.
    fn normalize(&self, world: &mut World) {
        for node in &mut world.nodes {
            // It will be refused, cut, or work to no effect.
            let futile = match node.request {
                Request::Admitted { lost } => lost && !self.is(Mutation::SkipsTheSecondCheck),
                Request::Written { lost, .. } => lost && !self.is(Mutation::ShowsWithoutProof),
                Request::Running { fence, lost } => {
                    lost && fence < world.sealed && self.fences_writes()
                }
                _ => false,
            };
            if futile {
                node.request = Request::None;
            }
        }
        for node in [A, B] {
            let id = self.instance(node);
            if !world
                .directory
                .clone()
                .heartbeat(at(world.now), &id)
                .extended
            {
                world.directory.leave(&id);
            }
        }
    }

    fn find_idle(&self, world: &mut World, node: usize) -> Option<()> {
        let now = self.clock(world, node);
        let own = world.nodes[node].table.as_mut()?;
        if self.idle.is_some_and(|limit| now - own.active < limit) {
            return None;
        }
        own.ended = true;
        world.nodes[node].ending = Some(Some(own.fence));
        Some(())
    }
}
