//! A request that was let in: the second check, the inner service's work, and its output.

use mcp_session_guard::{
    affinity_guard::decide::{Directory, Local},
    session::Residency,
};

use crate::{
    ghost::Invariant, model::World, mutation::Mutation, node::at, request::Request,
    scenario::Scenario,
};

impl Scenario {
    /// As `Serving::proof`, for a request that has not been lost.
    fn still_proven(&self, world: &World, node: usize) -> bool {
        let one = &world.nodes[node];
        let now = self.clock(world, node);
        let own = one.table.as_ref().filter(|own| !own.ended);
        own.is_some_and(|own| {
            one.tenancy(at(now)) == Some(own.generation) && self.is_kept(own, now)
        })
    }

    /// The second check, and then the inner service.
    pub(crate) fn dispatch(&self, world: &mut World, node: usize) -> Option<()> {
        let Request::Admitted { lost } = world.nodes[node].request else {
            return None;
        };
        let proven = !lost && self.still_proven(world, node);
        let unchecked = self.is(Mutation::SkipsTheSecondCheck);
        let fence = world.nodes[node].table.as_ref().map(|own| own.fence);
        match fence {
            Some(fence) if proven || unchecked => {
                self.check_dispatch(world, node, fence);
                // What a pinned session's work does stays in its owner's memory.
                world.nodes[node].request = match self.residency {
                    Residency::Pinned => Request::Written { fence, lost },
                    _ => Request::Running { fence, lost },
                };
            }
            _ => self.proceed(world, node, Local::Unproven, Directory::NotAsked, None),
        }
        Some(())
    }

    /// The inner service's write, which goes through only under the highest fence that was seen.
    pub(crate) fn write(&self, world: &mut World, node: usize) -> Option<()> {
        let Request::Running { fence, lost } = world.nodes[node].request else {
            return None;
        };
        let takes = fence >= world.sealed || self.is(Mutation::WritesWithoutFence);
        if takes && world.ghost.served > fence {
            world.ghost.breaks(Invariant::NoEffectUnderAnOlderFence);
        }
        world.sealed = world.sealed.max(fence);
        world.nodes[node].request = Request::Written { fence, lost };
        Some(())
    }

    /// The output is shown if the session is proven, cut if it was lost, and held otherwise.
    pub(crate) fn show(&self, world: &mut World, node: usize) -> Option<()> {
        let Request::Written { fence, lost } = world.nodes[node].request else {
            return None;
        };
        if !lost && self.still_proven(world, node) || self.is(Mutation::ShowsWithoutProof) {
            world.ghost.check_service(fence);
        } else if !lost
            && world.nodes[node]
                .table
                .as_ref()
                .is_some_and(|own| !own.ended)
        {
            return None;
        }
        world.nodes[node].request = Request::None;
        Some(())
    }
}
