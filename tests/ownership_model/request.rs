//! A request for the session at one instance: each step is what the crate's verdict table says.

use mcp_session_guard::{
    affinity_guard::decide::{
        Directory, Facts, Header, Local, Offered, Request as Kind, Verdict, decide,
    },
    mcp::Era,
    rejection::Reason,
    session::Fence,
    store::{Bury, Lookup, StoreErrorKind, TakeOver},
};

use crate::{
    model::World,
    mutation::Mutation,
    node::{Owned, at},
    scenario::Scenario,
};

/// How far the one request at an instance has come. It may rest in any of these for as long as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    None,
    /// The directory was asked, and what it said is to be acted on.
    Looked {
        local: Local,
        directory: Directory,
        seen: Fence,
    },
    /// A take-over was granted; the reply is on the way.
    Granted {
        fence: Fence,
        generation: u64,
    },
    /// It was let in, and waits (for a body, for the inner service to be ready) before it is dispatched.
    Admitted {
        lost: bool,
    },
    /// The inner service works on it, under this fence.
    Running {
        fence: Fence,
        lost: bool,
    },
    /// It has done its work, and its output is to be shown.
    Written {
        fence: Fence,
        lost: bool,
    },
    /// An `initialize` was dispatched under this lease.
    Opening {
        generation: u64,
    },
    /// What it opened is registered.
    Registered {
        fence: Fence,
        generation: u64,
    },
}

impl Request {
    /// The session that it is served under has left the table.
    pub(crate) fn lose(&mut self) {
        if let Self::Admitted { lost } | Self::Running { lost, .. } | Self::Written { lost, .. } =
            self
        {
            *lost = true;
        }
    }

    /// Whether it counts as running on the session, which then is not idle.
    pub(crate) fn is_activity(self) -> bool {
        matches!(
            self,
            Self::Admitted { lost: false }
                | Self::Running { lost: false, .. }
                | Self::Written { lost: false, .. }
        )
    }
}

impl Scenario {
    /// What the own table says, as `Shared::admit_to` reads it.
    pub(crate) fn look(&self, world: &World, node: usize) -> Local {
        let now = self.clock(world, node);
        let one = &world.nodes[node];
        let Some(own) = &one.table else {
            return Local::Unknown;
        };
        if own.ended {
            return Local::Over;
        }
        if one.tenancy(at(now)) != Some(own.generation) || !self.is_kept(own, now) {
            return Local::Unproven;
        }
        if self.idle.is_some_and(|limit| now - own.active >= limit) && !one.request.is_activity() {
            return Local::Over;
        }
        Local::Proven
    }

    /// Whether the directory, which keeps a record for a while after a touch, must still have this one.
    pub(crate) fn is_kept(&self, own: &Owned, now: u8) -> bool {
        self.retention().is_none_or(|kept| now - own.touched < kept)
            || self.is(Mutation::ForgetsTheLastTouch)
    }

    /// Whether an instance would serve the session at this moment.
    pub(crate) fn is_proven(&self, world: &World, node: usize) -> bool {
        self.look(world, node) == Local::Proven
    }

    /// A request arrives and goes on until it has something to wait for.
    pub(crate) fn arrive(&self, world: &mut World, node: usize) {
        let local = self.look(world, node);
        self.proceed(world, node, local, Directory::NotAsked, None);
    }

    /// Does what the table says of these facts, up to the next verb that changes the directory.
    pub(crate) fn proceed(
        &self,
        world: &mut World,
        node: usize,
        local: Local,
        directory: Directory,
        seen: Option<Fence>,
    ) {
        let (mut directory, mut seen) = (directory, seen);
        if self.verdict(world, node, local, directory) == Verdict::AskDirectory {
            (directory, seen) = self.ask(world, node);
        }
        let now = self.clock(world, node);
        world.nodes[node].request = Request::None;
        match self.verdict(world, node, local, directory) {
            Verdict::PassOwned => {
                let one = &mut world.nodes[node];
                if let (Some(own), Some(_)) = (&mut one.table, self.idle) {
                    own.active = now;
                }
                let fence = one.table.as_ref().map(|own| own.fence);
                match fence {
                    Some(fence) if !self.slow => self.check_dispatch(world, node, fence),
                    _ => one.request = Request::Admitted { lost: false },
                }
            }
            Verdict::TakeOver | Verdict::Bury | Verdict::End => {
                world.nodes[node].request = Request::Looked {
                    local,
                    directory,
                    seen: seen.unwrap_or(self.first_fence()),
                };
            }
            Verdict::Refuse(Reason::SessionNotFound, _) => self.say_not_found(world),
            // Refused for now, or to look again: the client tries again.
            _ => {}
        }
    }

    fn verdict(&self, world: &World, node: usize, local: Local, directory: Directory) -> Verdict {
        decide(&Facts {
            header: Header::Valid,
            era: Era::Legacy,
            request: Kind::Other,
            local,
            directory,
            retiring: world.nodes[node].left,
            lease: world.nodes[node]
                .tenancy(at(self.clock(world, node)))
                .is_some(),
            strict: false,
            absent_goes_stateless: false,
            forwards: false,
        })
    }

    /// As `Steps::ask` reads a look-up.
    fn ask(&self, world: &World, node: usize) -> (Directory, Option<Fence>) {
        let (record, live) = match world.directory.lookup(at(world.now), &self.session()) {
            Ok(Lookup::Owned { record, .. }) => (record, true),
            Ok(Lookup::Orphaned(record)) => (record, false),
            Ok(Lookup::Terminated) => return (Directory::Terminated, None),
            Ok(Lookup::Absent) => return (Directory::Absent, None),
            Err(_) if self.is(Mutation::UnknownIsAbsent) => return (Directory::Absent, None),
            Err(error) => return (Directory::Unknown(error.kind()), None),
            Ok(_) => return (Directory::Unknown(StoreErrorKind::Corrupt), None),
        };
        let residency = record.terms.residency;
        let directory = match (live, record.owner == self.instance(node)) {
            (true, false) => Directory::Elsewhere,
            (true, true) => Directory::Named(residency, Offered::Same),
            (false, _) => Directory::Orphaned(residency, Offered::Same),
        };
        (directory, Some(record.fence))
    }

    /// Acts on what the directory said a while ago.
    pub(crate) fn act(&self, world: &mut World, node: usize) -> Option<()> {
        let Request::Looked {
            local,
            directory,
            seen,
        } = world.nodes[node].request
        else {
            return None;
        };
        world.nodes[node].request = Request::None;
        match self.verdict(world, node, local, directory) {
            Verdict::TakeOver => self.take_over(world, node, directory, seen),
            Verdict::Bury => {
                let directory = self.bury(world, node, seen);
                self.proceed_if_told(world, node, local, directory);
            }
            Verdict::End => {
                let directory = self.end(world, node, seen);
                self.proceed_if_told(world, node, local, directory);
            }
            _ => {}
        }
        Some(())
    }

    /// Goes on when the verb taught something; otherwise the client's next try looks again.
    fn proceed_if_told(&self, world: &mut World, node: usize, local: Local, directory: Directory) {
        if directory != Directory::NotAsked {
            self.proceed(world, node, local, directory, None);
        }
    }

    fn take_over(&self, world: &mut World, node: usize, directory: Directory, seen: Fence) {
        let (now, id) = (self.clock(world, node), self.instance(node));
        let one = &world.nodes[node];
        let Some(generation) = one.tenancy(at(now)).filter(|_| one.table.is_none()) else {
            return;
        };
        let orphaned = matches!(directory, Directory::Orphaned(..));
        let ungranted = self.is(Mutation::ServesTheOrphan) && orphaned
            || self.is(Mutation::AdoptsTheNamed) && !orphaned;
        if ungranted {
            return self.adopt_as(world, node, seen, generation);
        }
        if self.is(Mutation::TakesOverWithoutComparing) {
            world.directory.leave(&self.instance(1 - node));
        }
        if seen.counter() >= self.grants {
            return;
        }
        let taken = world
            .directory
            .take_over(at(world.now), &self.session(), seen, &id);
        if let Ok(TakeOver::Taken(fence)) = taken {
            self.check_grant(world);
            world.nodes[node].request = Request::Granted { fence, generation };
        }
    }

    /// The reply to a take-over is handled.
    pub(crate) fn adopt(&self, world: &mut World, node: usize) -> Option<()> {
        let Request::Granted { fence, generation } = world.nodes[node].request else {
            return None;
        };
        world.nodes[node].request = Request::None;
        if self.may_adopt(world, node, generation, Mutation::AdoptsAcrossALapse) {
            let generation = world.nodes[node].generation();
            self.adopt_as(world, node, fence, generation);
        }
        Some(())
    }

    /// Whether the lease that something was asked for under is the one that its grant is handled under.
    pub(crate) fn may_adopt(
        &self,
        world: &World,
        node: usize,
        generation: u64,
        unless: Mutation,
    ) -> bool {
        let held = world.nodes[node].tenancy(at(self.clock(world, node)));
        held == Some(generation) || self.is(unless)
    }

    fn adopt_as(&self, world: &mut World, node: usize, fence: Fence, generation: u64) {
        let now = self.clock(world, node);
        world.nodes[node].table = Some(self.owned(fence, generation, now));
        if !self.is(Mutation::SkipsTheSeal) {
            world.sealed = world.sealed.max(fence);
        }
        self.arrive(world, node);
    }

    fn bury(&self, world: &mut World, node: usize, seen: Fence) -> Directory {
        if self.is(Mutation::NotFoundWithoutBurial) {
            return Directory::Terminated;
        }
        if self.is(Mutation::BuriesWithoutComparing) {
            let _ = world
                .directory
                .terminate(at(world.now), &self.session(), None);
        }
        match world.directory.bury(at(world.now), &self.session(), seen) {
            Ok(Bury::Buried) => {
                self.remember_tombstone(world, node);
                Directory::Terminated
            }
            Ok(_) => Directory::NotAsked,
            Err(error) => Directory::Unknown(error.kind()),
        }
    }
}
