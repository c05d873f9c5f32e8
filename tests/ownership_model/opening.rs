//! How the session is opened: dispatched, registered, and only then seen by the client.

use mcp_session_guard::{
    affinity_guard::decide::{Directory, Facts, Header, Local, Request as Kind, Verdict, decide},
    mcp::Era,
    store::Registered,
};

use crate::{model::World, mutation::Mutation, node::at, request::Request, scenario::Scenario};

impl Scenario {
    /// An `initialize` is dispatched.
    pub(crate) fn open(&self, world: &mut World, node: usize) -> Option<()> {
        let generation = world.nodes[node].tenancy(at(self.clock(world, node)));
        let verdict = decide(&Facts {
            header: Header::Missing,
            era: Era::Legacy,
            request: Kind::Initialize,
            local: Local::Unknown,
            directory: Directory::NotAsked,
            retiring: world.nodes[node].left,
            lease: generation.is_some(),
            strict: false,
            absent_goes_stateless: false,
            forwards: false,
        });
        if verdict != Verdict::PassOpening {
            return None;
        }
        let generation = generation?;
        world.nodes[node].request = Request::Opening { generation };
        if self.is(Mutation::ShowsTheIdFirst) {
            let own = self.owned(self.first_fence(), generation, self.clock(world, node));
            world.nodes[node].table = Some(own);
            world.ghost.opened = true;
        }
        Some(())
    }

    /// The inner service has answered it, and the session is registered.
    pub(crate) fn register(&self, world: &mut World, node: usize) -> Option<()> {
        let Request::Opening { generation } = world.nodes[node].request else {
            return None;
        };
        let (now, id) = (at(world.now), self.instance(node));
        let registered = world
            .directory
            .register(now, &self.session(), &id, &self.terms());
        world.nodes[node].request = match registered {
            Ok(Registered::Recorded(fence)) => Request::Registered { fence, generation },
            _ => Request::None,
        };
        Some(())
    }

    /// The reply of the registration is handled, and the client sees the id.
    pub(crate) fn reveal(&self, world: &mut World, node: usize) -> Option<()> {
        let Request::Registered { fence, generation } = world.nodes[node].request else {
            return None;
        };
        world.nodes[node].request = Request::None;
        let now = self.clock(world, node);
        if self.may_adopt(world, node, generation, Mutation::OpensAcrossALapse) {
            let generation = world.nodes[node].generation();
            world.nodes[node].table = Some(self.owned(fence, generation, now));
            world.ghost.opened = true;
        } else {
            let _ = world
                .directory
                .terminate(at(world.now), &self.session(), Some(fence));
        }
        Some(())
    }
}
