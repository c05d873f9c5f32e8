//! How the session ends: idle, deleted, or over, with the tombstone that is then remembered.

use mcp_session_guard::{
    affinity_guard::decide::{Directory, Local},
    session::Fence,
    store::{Lookup, StoreError, Terminated},
};

use crate::{model::World, mutation::Mutation, node::at, scenario::Scenario};

impl Scenario {
    /// As `Steps::end`: what is over here, or what the directory says is here and is not.
    pub(crate) fn end(&self, world: &mut World, node: usize, seen: Fence) -> Directory {
        let fence = match (self.look(world, node), &mut world.nodes[node].table) {
            (Local::Over, Some(own)) => {
                own.ended = true;
                own.fence
            }
            (Local::Unknown, _) => seen,
            _ => return Directory::NotAsked,
        };
        let known = world.nodes[node].table.is_some();
        let ended = self.terminate(world, Some(fence));
        self.ended(world, node, ended.as_ref().ok().copied());
        match ended {
            Ok(Terminated::Fenced) => Directory::NotAsked,
            Ok(Terminated::Absent) if !known => Directory::Absent,
            Ok(_) => Directory::Terminated,
            Err(error) => Directory::Unknown(error.kind()),
        }
    }

    /// A `terminate` that was decided a while ago reaches the directory.
    pub(crate) fn land_ending(&self, world: &mut World, node: usize) -> Option<()> {
        let fence = world.nodes[node].ending.take()?;
        let fence = fence.filter(|_| !self.is(Mutation::TerminatesWithoutFence));
        let ended = self.terminate(world, fence);
        self.ended(world, node, ended.ok());
        Some(())
    }

    pub(crate) fn terminate(
        &self,
        world: &mut World,
        fence: Option<Fence>,
    ) -> Result<Terminated, StoreError> {
        let (now, id) = (at(world.now), self.session());
        let lookup = world.directory.lookup(now, &id);
        let stands =
            matches!(lookup, Ok(Lookup::Owned { record, .. }) if Some(record.fence) == fence);
        let fence = fence.filter(|_| !stands || !self.is(Mutation::TerminatesWhileRecovering));
        world.directory.terminate(now, &id, fence)
    }

    /// The outcome of a `terminate` by `node`; without one, it stays ended and tries again.
    pub(crate) fn ended(&self, world: &mut World, node: usize, outcome: Option<Terminated>) {
        match outcome {
            Some(Terminated::Ended) => self.remember_tombstone(world, node),
            None => return,
            _ => {}
        }
        // One that was granted again since is not the one that was ended.
        if world.nodes[node]
            .table
            .as_ref()
            .is_some_and(|own| own.ended)
        {
            world.nodes[node].forget();
        }
    }

    pub(crate) fn remember_tombstone(&self, world: &mut World, node: usize) {
        world.nodes[node].tombstone = true;
        world.ghost.buried = true;
    }
}
