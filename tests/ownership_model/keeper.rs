//! What an instance's keeper says to the directory, and what it does with the replies.

use mcp_session_guard::{
    session::{Fence, Residency},
    store::{Claim, Claimed, ClaimedSession, Heartbeat, Registered, Standing},
};

use crate::{
    model::World,
    mutation::Mutation,
    node::{Call, Keeper, Reply, at, secs},
    scenario::Scenario,
};

impl Scenario {
    pub(crate) fn send(&self, world: &mut World, node: usize) {
        let now = self.clock(world, node);
        let one = &mut world.nodes[node];
        let was_proven = one.table.as_ref().is_some_and(|own| own.generation != 0);
        let mut call = one.next_call(at(now));
        if self.is(Mutation::LapseUnprovesNothing) {
            self.prove_anyway(world, node, was_proven);
        } else if self.is(Mutation::HeartbeatProves) && world.nodes[node].table.is_some() {
            call = Call::Heartbeat;
        }
        let one = &mut world.nodes[node];
        one.unprove_older();
        one.keeper = Keeper::Sent { at: now, call };
    }

    pub(crate) fn send_touch(&self, world: &mut World, node: usize) {
        let now = self.clock(world, node);
        let one = &mut world.nodes[node];
        if let Some(own) = one.table.as_mut().filter(|_| one.request.is_activity()) {
            own.active = now;
        }
        one.keeper = Keeper::Sent {
            at: now,
            call: Call::Touch,
        };
    }

    /// The call reaches the directory.
    pub(crate) fn apply(&self, world: &mut World, node: usize) -> Option<()> {
        let Keeper::Sent { at: sent, call } = world.nodes[node].keeper else {
            return None;
        };
        let (now, id) = (at(world.now), self.instance(node));
        let reply = match call {
            Call::Heartbeat => {
                let mut beat = world.directory.heartbeat(now, &id);
                if self.is(Mutation::HeartbeatCreates) || self.is(Mutation::HeartbeatProves) {
                    if !beat.extended {
                        let _ = world
                            .directory
                            .claim(now, &Claim::new(&id, secs(self.lease)));
                    }
                    beat = Heartbeat::new(self.first(), true);
                }
                Reply::Heartbeat(beat)
            }
            Call::Claim {
                session, tombstone, ..
            } => {
                let repeated = [self.session()];
                let sessions: Vec<_> = session
                    .iter()
                    .map(|(_, fence)| ClaimedSession::new(self.session(), *fence, self.terms()))
                    .collect();
                let mut claim = Claim::new(&id, secs(self.lease));
                claim.standing = session.map_or(Standing::Lapsed, |(standing, _)| standing);
                if self.is(Mutation::StandingIsIgnored) {
                    claim.standing = Standing::Unbroken;
                }
                claim.sessions = &sessions;
                if tombstone && !self.is(Mutation::TombstonesAreNotRepeated) {
                    claim.tombstones = &repeated;
                }
                let reply = world.directory.claim(now, &claim);
                let claimed = reply.sessions.first().copied();
                if matches!(claimed, Some(Claimed::Held(_))) {
                    self.check_grant(world);
                }
                Reply::Claim(reply.incarnation, reply.lease, claimed)
            }
            Call::Touch => {
                let gone = world.directory.touch(now, &id, &[self.session()]);
                Reply::Touch {
                    gone: !gone.is_empty(),
                }
            }
        };
        world.nodes[node].keeper = Keeper::Replied {
            at: sent,
            call,
            reply,
        };
        Some(())
    }

    /// The reply is handled, however late.
    pub(crate) fn handle(&self, world: &mut World, node: usize) -> Option<()> {
        let now = self.clock(world, node);
        let one = &mut world.nodes[node];
        let Keeper::Replied {
            at: mut sent,
            call,
            reply,
        } = std::mem::replace(&mut one.keeper, Keeper::Idle)
        else {
            return None;
        };
        if self.is(Mutation::CountsFromTheReply) {
            sent = now;
        }
        let was_proven = one.table.as_ref().is_some_and(|own| own.generation != 0);
        match (reply, call) {
            (Reply::Heartbeat(beat), _) => self.handle_heartbeat(world, node, sent, beat),
            (
                Reply::Claim(incarnation, lease, claimed),
                Call::Claim {
                    tenure, session, ..
                },
            ) => {
                let before = one.tenure.generation();
                let counts = one
                    .tenure
                    .on_claim(at(sent), at(now), tenure, incarnation, lease);
                if counts {
                    one.known = incarnation;
                    one.renewals += one.tenure.generation() - before;
                }
                if counts && self.is(Mutation::ProofOutlivesTheIncarnation) {
                    one.overlooked += one.tenure.generation() - before;
                }
                if let (true, Some((standing, fence)), Some(claimed)) = (counts, session, claimed) {
                    self.settle(world, node, standing, fence, claimed);
                }
                world.nodes[node].claim_the_unproven();
            }
            (Reply::Touch { gone: true }, _) if !self.is(Mutation::ForgetsTheLastTouch) => {
                one.forget();
            }
            (Reply::Touch { .. }, _) => {
                if let Some(own) = &mut one.table {
                    own.touched = sent;
                }
            }
            _ => return None,
        }
        self.prove_anyway(
            world,
            node,
            was_proven && self.is(Mutation::LapseUnprovesNothing),
        );
        world.nodes[node].unprove_older();
        Some(())
    }

    fn handle_heartbeat(&self, world: &mut World, node: usize, sent: u8, mut beat: Heartbeat) {
        let mut now = self.clock(world, node);
        if self.is(Mutation::OnlyTheTimerNotices) {
            (now, beat.extended) = (sent, true);
        }
        let one = &mut world.nodes[node];
        one.tenure.on_heartbeat(at(sent), at(now), &beat);
        if self.is(Mutation::ExtendsBeforeClaiming) && one.tenure.standing() == Standing::Unbroken
            || self.is(Mutation::HeartbeatProves)
        {
            let (standing, lease) = (one.tenure.standing(), secs(self.lease));
            let held = one
                .tenure
                .on_claim(at(sent), at(now), standing, self.first(), lease);
            self.prove_anyway(world, node, held);
        }
    }

    /// Carries the proof of an older lease over into the present one, against the rules.
    fn prove_anyway(&self, world: &mut World, node: usize, really: bool) {
        let one = &mut world.nodes[node];
        let generation = one.generation();
        if let (true, Some(own)) = (really, &mut one.table) {
            own.generation = generation;
        }
    }

    /// What the directory said of the session, as `Keeper::claim` takes it.
    fn settle(
        &self,
        world: &mut World,
        node: usize,
        standing: Standing,
        claimed_at: Fence,
        claimed: Claimed,
    ) {
        let (now, served) = (self.clock(world, node), world.ghost.served);
        let one = &mut world.nodes[node];
        let generation = one.generation();
        // One that was lost and granted again in the meantime is not the one that was claimed.
        let Some(own) = one.table.as_mut().filter(|own| own.fence == claimed_at) else {
            return;
        };
        match (claimed, standing) {
            (Claimed::Held(_), Standing::Unbroken) => own.generation = generation,
            // Another fence says that somebody may have served it since: the old copy of its state is dropped, and
            // what still runs on it is cut. The next request takes the session over afresh.
            (Claimed::Held(fence), Standing::Lapsed)
                if fence != own.fence && self.starts_afresh() =>
            {
                one.forget();
            }
            (Claimed::Held(fence), Standing::Lapsed) => {
                own.stale = served > own.fence;
                if !self.is(Mutation::FencesFallBack) {
                    own.fence = fence;
                }
                own.generation = generation;
            }
            (Claimed::Noted, _) if self.is(Mutation::NotedIsHeld) => own.generation = generation,
            (Claimed::Noted, _) => one.tenure.want_claim(),
            (Claimed::Absent, _) if self.is(Mutation::RegistersTheAbsent) => {
                let id = self.instance(node);
                let registered =
                    world
                        .directory
                        .register(at(world.now), &self.session(), &id, &self.terms());
                if let Ok(Registered::Recorded(fence)) = registered {
                    let own = self.owned(fence, generation, now);
                    world.nodes[node].table = Some(own);
                }
            }
            _ => one.forget(),
        }
    }

    fn starts_afresh(&self) -> bool {
        let kept = self.is(Mutation::KeepsTheOldCopy) || self.is(Mutation::FencesFallBack);
        self.residency == Residency::Externalized && !kept
    }

    /// A whole round of a keeper that meets no delay: what it sends is handled in the same moment.
    pub(crate) fn beat(&self, world: &mut World, node: usize) {
        for _ in 0..2 {
            self.send(world, node);
            let _ = self
                .apply(world, node)
                .and_then(|()| self.handle(world, node));
            if !world.nodes[node].tenure.claim_due() {
                break;
            }
        }
    }
}
