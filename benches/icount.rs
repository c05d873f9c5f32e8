//! Instruction counts of the affinity guard, of the drain layer's admission and of idempotency keys, which repeat where
//! wall time does not, with the limit that is promised.
#![allow(
    missing_docs,
    reason = "the macros make items that nobody can document"
)]

mod support;

use std::{convert::Infallible, hint::black_box};

use bytes::Bytes;
use gungraun::{Callgrind, EventKind, main, prelude::*};
use http::{Request, Response};
use mcp_session_guard::{
    drain_credit::{self, DrainCredit, DrainCreditLayer},
    idempotency_key::{self, IdempotencyKey, IdempotencyKeyLayer},
    store::MemoryStore,
};
use support::{Body, Guard, Guarded, Inner};
use tokio::runtime::Runtime;
use tower::{Layer, Service};

/// How many sessions the instance owns: few, since opening them runs under Valgrind too.
const SESSIONS: usize = 2_000;

/// The most that the bare service may take. A limit can only be absolute, so this one holds the other in place.
const BARE: u64 = 2_000;

/// The most that an owner hit may take: it may add 1,500.
const OWNER_HIT: u64 = BARE + 1_500;

fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut limited = Callgrind::default();
    limited.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(limited);
    config
}

struct Setup<S> {
    service: S,
    request: Request<Body>,
    guard: Guard,
    runtime: Runtime,
}

impl<S> Setup<S> {
    /// The guard is there in every case, so that the allocator is found in the same state in every case.
    fn of(make: impl FnOnce(&Guard) -> S, request: Request<Body>) -> Self {
        let runtime = support::runtime();
        let mut guard = runtime.block_on(support::owner(support::store(), SESSIONS));
        let service = make(&guard);
        // Once before, so that nothing is counted that only a first call does.
        drop(support::call(&mut guard, hit()));
        Self {
            service,
            request,
            guard,
            runtime,
        }
    }
}

fn bare(request: Request<Body>) -> Setup<Inner> {
    Setup::of(|_| Inner, request)
}

fn guarded(request: Request<Body>) -> Setup<Guard> {
    Setup::of(Guard::clone, request)
}

/// With credit left, and other sessions that have an answer on its way.
fn admitting(request: Request<Body>) -> Setup<DrainCredit<Inner>> {
    Setup::of(
        |_| {
            let mut service = DrainCreditLayer::new().layer(Inner);
            for n in 0..SESSIONS {
                // Kept for good, and a few calls that came and went.
                let answer =
                    support::call(&mut service, support::on_session(&support::session_id(n)));
                std::mem::forget(answer);
                let answer = support::call(&mut service, hit());
                support::drain(answer.into_body());
            }
            service
        },
        request,
    )
}

/// Another instance owns the session.
fn elsewhere(request: Request<Body>) -> Setup<Guard> {
    let store = support::store();
    let runtime = support::runtime();
    let guard = runtime.block_on(support::owner(store.clone(), SESSIONS));
    let service = runtime.block_on(support::owner(store, 0));
    Setup {
        service,
        request,
        guard,
        runtime,
    }
}

fn hit() -> Request<Body> {
    support::on_session(&support::session_id(SESSIONS / 2))
}

/// What is dropped after the measurement.
type Rest<S> = (S, Guard, Runtime);

/// Calls the service; dropping the answer is not counted.
fn answer<S, R>(setup: Setup<S>) -> (R, Rest<S>)
where
    S: Service<Request<Body>, Response = R, Error = Infallible>,
{
    let Setup {
        mut service,
        request,
        guard,
        runtime,
    } = setup;
    let answer = black_box(support::call(&mut service, black_box(request)));
    (answer, (service, guard, runtime))
}

/// As [`answer`], and reads the body to its end.
fn drained<S, B>(setup: Setup<S>) -> (http::response::Parts, Rest<S>)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes>,
{
    let (answer, rest) = answer(setup);
    let (head, body) = answer.into_parts();
    black_box(support::drain(body));
    (head, rest)
}

#[library_benchmark]
#[bench::owner_hit(args = (hit()), setup = bare, config = at_most(BARE))]
#[bench::no_session(args = (support::without_session()), setup = bare)]
#[bench::modern(args = (support::modern()), setup = bare)]
fn bare_call(setup: Setup<Inner>) -> (Response<Body>, Rest<Inner>) {
    answer(setup)
}

#[library_benchmark]
#[bench::owner_hit(args = (hit()), setup = guarded, config = at_most(OWNER_HIT))]
#[bench::no_session(args = (support::without_session()), setup = guarded)]
#[bench::modern(args = (support::modern()), setup = guarded)]
fn guarded_call(setup: Setup<Guard>) -> (Guarded, Rest<Guard>) {
    answer(setup)
}

#[library_benchmark]
#[bench::owner_hit(args = (hit()), setup = bare)]
fn bare_with_body(setup: Setup<Inner>) -> (http::response::Parts, Rest<Inner>) {
    drained(setup)
}

#[library_benchmark]
#[bench::owner_hit(args = (hit()), setup = guarded)]
fn guarded_with_body(setup: Setup<Guard>) -> (http::response::Parts, Rest<Guard>) {
    drained(setup)
}

#[library_benchmark]
#[bench::credit_left(args = (hit()), setup = admitting)]
#[bench::no_session(args = (support::without_session()), setup = admitting)]
#[bench::modern(args = (support::modern()), setup = admitting)]
fn admitted_call(
    setup: Setup<DrainCredit<Inner>>,
) -> (
    Response<drain_credit::ResponseBody<Body>>,
    Rest<DrainCredit<Inner>>,
) {
    answer(setup)
}

#[library_benchmark]
#[bench::credit_left(args = (hit()), setup = admitting)]
fn admitted_with_body(
    setup: Setup<DrainCredit<Inner>>,
) -> (http::response::Parts, Rest<DrainCredit<Inner>>) {
    drained(setup)
}

#[library_benchmark]
#[bench::malformed(args = (support::malformed()), setup = guarded)]
#[bench::not_owned(args = (hit()), setup = elsewhere)]
fn refused(setup: Setup<Guard>) -> (Guarded, Rest<Guard>) {
    let Setup {
        mut service,
        request,
        guard,
        runtime,
    } = setup;
    let answer = runtime.block_on(service.call(black_box(request)));
    let answer = answer.unwrap_or_else(|never| match never {});
    (black_box(answer), (service, guard, runtime))
}

/// A layer of idempotency keys that has seen a key.
fn keyed(request: Request<Body>) -> Setup<Keyed> {
    let mut service = IdempotencyKeyLayer::new(MemoryStore::new()).layer(Inner);
    drop(support::call(&mut service, support::with_key("seen")));
    // Once more, so that nothing is counted that only a first call does.
    drop(support::call(&mut service, support::with_key("seen")));
    Setup::of(|_| service, request)
}

type Keyed = IdempotencyKey<Inner>;

#[library_benchmark]
#[bench::without_a_key(args = (hit()), setup = keyed)]
#[bench::modern_not_a_call(args = (support::modern_list()), setup = keyed)]
#[bench::fresh(args = (support::with_key("fresh")), setup = keyed)]
#[bench::replay(args = (support::with_key("seen")), setup = keyed)]
fn keyed_call(setup: Setup<Keyed>) -> (Response<idempotency_key::ResponseBody<Body>>, Rest<Keyed>) {
    answer(setup)
}

library_benchmark_group!(
    name = affinity_guard,
    benchmarks = [
        bare_call,
        guarded_call,
        bare_with_body,
        guarded_with_body,
        refused
    ]
);

library_benchmark_group!(
    name = drain_credit_admission,
    benchmarks = [admitted_call, admitted_with_body]
);

library_benchmark_group!(name = keys, benchmarks = keyed_call);

main!(library_benchmark_groups = [affinity_guard, drain_credit_admission, keys]);
