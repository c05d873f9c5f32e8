//! Which steps are possible in a state.

use mcp_session_guard::{
    session::Residency,
    store::{Lookup, Standing},
};

use crate::{
    model::{Step, World},
    mutation::Mutation,
    node::{Keeper, at},
    request::Request,
    scenario::{A, B, Fault, Scenario},
};

impl Scenario {
    /// The documented assumption about recovery: whoever wrote a tombstone is alive and repeats it before the
    /// directory trusts its memory again. Without it a 404 may be contradicted, which one of the tests shows.
    pub(crate) fn waits_for_tombstones(&self, world: &World) -> bool {
        let wrote = world.nodes.iter().any(|node| node.tombstone);
        let ends = world.directory.is_recovering(at(world.now))
            && !world.directory.is_recovering(at(world.now + 1));
        let lookup = world.directory.lookup(at(world.now), &self.id);
        let stands = matches!(lookup, Ok(Lookup::Terminated));
        self.buriers_speak_up && world.up && wrote && ends && !stands
    }

    /// Whether nobody can serve the session any more, so that nothing that is left to happen can be wrong.
    pub(crate) fn is_spent(&self, world: &World) -> bool {
        let idle = world.nodes.iter().all(|node| {
            let owns = node.table.as_ref().is_some_and(|own| !own.ended);
            !owns && matches!(node.request, Request::None)
        });
        let over = self.residency == Residency::Pinned && !self.leaving
            || !world.may_fail
                && world
                    .restored
                    .is_none_or(|since| world.now >= since + self.lease)
                && matches!(
                    world.directory.lookup(at(world.now), &self.id),
                    Ok(Lookup::Terminated)
                );
        idle && over && world.ghost.opened
    }

    pub(crate) fn node_steps(&self, world: &World, node: usize, steps: &mut Vec<Step>) {
        let one = &world.nodes[node];
        match one.request {
            Request::None if world.ghost.opened && world.up => steps.push(Step::Arrive(node)),
            // Nobody else is asked while the directory is down: it could only say that it does not know.
            Request::None if world.ghost.opened && self.is_proven(world, node) => {
                steps.push(Step::Arrive(node));
            }
            Request::None => {}
            Request::Looked { .. } if world.up => steps.push(Step::Act(node)),
            Request::Granted { .. } => steps.extend([Step::Adopt(node), Step::LoseGrant(node)]),
            Request::Admitted { .. } => steps.push(Step::Dispatch(node)),
            Request::Running { .. } => steps.push(Step::Write(node)),
            Request::Written { .. } => steps.push(Step::Show(node)),
            Request::Opening { .. } if world.up => steps.push(Step::Register),
            Request::Registered { .. } if world.up => steps.push(Step::Reveal),
            _ => {}
        }
        if one.ending.is_some() {
            if world.up {
                steps.push(Step::LandEnding(node));
            }
        } else if let Some(own) = &one.table {
            if own.ended {
                // A directory that is recovering would say no more than that.
                if world.up && !world.directory.is_recovering(at(world.now)) {
                    steps.push(Step::RetryEnding(node));
                }
            } else {
                if self.idles && node == A && !one.request.is_activity() {
                    steps.push(Step::FindIdle(node));
                }
                if self.deletes && world.up && self.is_proven(world, node) {
                    steps.push(Step::Delete(node));
                }
            }
        }
    }

    pub(crate) fn keeper_steps(&self, world: &World, steps: &mut Vec<Step>) {
        let one = &world.nodes[A];
        match &one.keeper {
            Keeper::Idle if !one.left => {
                steps.push(Step::Send);
                let used = one
                    .table
                    .as_ref()
                    .is_some_and(|own| own.active > own.touched || one.request.is_activity());
                let unbroken = one.tenure.standing() == Standing::Unbroken;
                if self.idle.is_some() && used && unbroken && !one.tenure.claim_due() {
                    steps.push(Step::SendTouch);
                }
            }
            Keeper::Idle => {}
            Keeper::Sent { .. } => {
                if world.up {
                    steps.push(Step::Apply);
                }
                steps.push(Step::Lose);
            }
            Keeper::Replied { .. } => steps.extend([Step::Handle, Step::Lose]),
        }
        // The lease of an instance that can only bury takes no part; its tombstone does.
        let counts = self.residency == Residency::Externalized
            || world.nodes[B].tombstone
            || self.is(Mutation::ComparesNames);
        if world.up && counts {
            steps.push(Step::Beat);
        }
    }

    pub(crate) fn fault_steps(&self, world: &World, steps: &mut Vec<Step>) {
        if !world.up {
            steps.push(Step::Restore);
        } else if world.may_fail {
            steps.push(Step::Stop);
            if self.fault == Fault::FailOver {
                steps.push(Step::Replicate);
            }
        }
    }
}
