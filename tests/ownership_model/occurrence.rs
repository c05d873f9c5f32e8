//! What must be able to happen, or the model would say nothing.

use mcp_session_guard::{session::Residency, store::Lookup};
use stateright::Property;

use crate::{
    model::World,
    node::at,
    request::Request,
    scenario::{A, B, Fault, Scenario},
};

type Condition = fn(&Scenario, &World) -> bool;

impl Scenario {
    pub(crate) fn occurrences(&self) -> Vec<Property<Self>> {
        let faulty = self.fault != Fault::None;
        let shared = self.residency == Residency::Externalized;
        let ends = self.idles || self.deletes;
        let table: [(bool, &'static str, Condition); 11] = [
            (ends || !shared, "a 404 is said", |_, world| {
                world.ghost.not_found
            }),
            (
                true,
                "an owner is proven again after a lapse",
                |model, world| world.nodes[A].has_lapsed() && model.is_proven(world, A),
            ),
            (
                self.slow,
                "a request runs while its session is in doubt",
                |model, world| {
                    runs(world, A) && world.nodes[A].table.is_some() && !model.is_proven(world, A)
                },
            ),
            (
                shared && self.slow,
                "a session is taken over and served",
                |model, world| runs(world, B) && model.is_proven(world, B),
            ),
            (
                shared && self.slow,
                "the old owner still runs when the new one serves",
                |_, world| runs(world, A) && runs(world, B),
            ),
            (
                faulty,
                "an owner that never lapsed is proven in the next incarnation",
                |model, world| {
                    !world.nodes[A].has_lapsed()
                        && knows_the_next(model, world, A)
                        && model.is_proven(world, A)
                },
            ),
            (
                faulty,
                "an owner that lapsed serves again once recovery is over",
                |model, world| {
                    world.nodes[A].has_lapsed()
                        && knows_the_next(model, world, A)
                        && model.is_proven(world, A)
                },
            ),
            (
                faulty && shared,
                "what was taken over is served on in the next incarnation",
                |model, world| {
                    let fence = world.nodes[B]
                        .table
                        .as_ref()
                        .map(|own| own.fence.incarnation());
                    fence == Some(model.first())
                        && knows_the_next(model, world, B)
                        && model.is_proven(world, B)
                },
            ),
            (
                faulty && (ends || !shared),
                "a tombstone stands in the next incarnation",
                |model, world| {
                    let lookup = world.directory.lookup(at(world.now), &model.session());
                    world.restored.is_some() && matches!(lookup, Ok(Lookup::Terminated))
                },
            ),
            (
                self.retention().is_some_and(|kept| kept < self.horizon),
                "a session that is used outlives its record's first term",
                |model, world| {
                    let retention = model.retention().unwrap_or_default();
                    world.now > retention && model.is_proven(world, A)
                },
            ),
            (
                self.leaving,
                "a session is asked for after its owner has left",
                |model, world| {
                    let gone = world.ghost.not_found || model.is_proven(world, B);
                    world.nodes[A].left && world.now == 0 && gone
                },
            ),
        ];
        table
            .into_iter()
            .filter(|(possible, ..)| *possible)
            .map(|(_, name, condition)| Property::sometimes(name, condition))
            .collect()
    }
}

fn runs(world: &World, node: usize) -> bool {
    matches!(
        world.nodes[node].request,
        Request::Running { lost: false, .. } | Request::Written { lost: false, .. }
    )
}

fn knows_the_next(model: &Scenario, world: &World, node: usize) -> bool {
    world.nodes[node].known > model.first()
}
