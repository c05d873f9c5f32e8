//! Wall time of the affinity guard: one service called directly and inside the layer, in one run.

mod support;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{BatchSize, BenchmarkId, Criterion};
use http::{Request, Response, StatusCode};
use mcp_session_guard::drain_credit::DrainCreditLayer;
use support::{Body, Guard, Inner};
use tokio::runtime::Runtime;
use tower::{Layer, Service};

/// How many sessions the instance owns.
const SESSIONS: usize = 100_000;

/// A walk over the first sessions that a prefetcher cannot follow.
struct Walk {
    at: usize,
    sessions: usize,
}

impl Walk {
    fn over(sessions: usize) -> Self {
        Self { at: 0, sessions }
    }

    fn next(&mut self) -> String {
        // Far from any small fraction of a round number, and without a factor in common with it.
        self.at = (self.at + 61_803) % self.sessions;
        support::session_id(self.at)
    }
}

/// Compares the bare and the guarded service on the same requests. Neither building a request nor dropping an
/// answer is measured.
fn compare(
    criterion: &mut Criterion,
    name: &str,
    guard: &Guard,
    mut request: impl FnMut() -> Request<Body>,
) {
    let mut group = criterion.benchmark_group(name);
    group.bench_function(BenchmarkId::from_parameter("bare"), |bencher| {
        let mut bare = Inner;
        bencher.iter_batched(
            &mut request,
            |request| support::call(&mut bare, request),
            BatchSize::SmallInput,
        );
    });
    group.bench_function(BenchmarkId::from_parameter("guarded"), |bencher| {
        let mut guard = guard.clone();
        bencher.iter_batched(
            &mut request,
            |request| support::call(&mut guard, request),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// As [`compare`], with the answer's body read to its end.
fn compare_with_body(criterion: &mut Criterion, guard: &Guard) {
    let mut group = criterion.benchmark_group("owner_hit_with_body");
    let mut walk = Walk::over(SESSIONS);
    let mut request = || support::on_session(&walk.next());
    group.bench_function(BenchmarkId::from_parameter("bare"), |bencher| {
        let mut bare = Inner;
        bencher.iter_batched(
            &mut request,
            |request| drained(support::call(&mut bare, request)),
            BatchSize::SmallInput,
        );
    });
    group.bench_function(BenchmarkId::from_parameter("guarded"), |bencher| {
        let mut guard = guard.clone();
        bencher.iter_batched(
            &mut request,
            |request| drained(support::call(&mut guard, request)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// The head is kept, so that dropping it is measured as little as elsewhere.
fn drained<B: http_body::Body<Data = bytes::Bytes>>(
    response: Response<B>,
) -> (http::response::Parts, usize) {
    let (parts, body) = response.into_parts();
    (parts, support::drain(body))
}

/// The slow path, which may wait, on a runtime.
fn slow(
    criterion: &mut Criterion,
    name: &str,
    runtime: &Runtime,
    guard: &Guard,
    mut request: impl FnMut() -> Request<Body>,
    status: StatusCode,
) {
    let answer = runtime.block_on(guard.clone().call(request()));
    let answer = answer.unwrap_or_else(|never| match never {});
    assert_eq!(answer.status(), status);
    criterion
        .benchmark_group(name)
        .bench_function("guarded", |bencher| {
            let mut guard = guard.clone();
            bencher.to_async(runtime).iter_batched(
                &mut request,
                |request| guard.call(request),
                BatchSize::SmallInput,
            );
        });
}

/// Times `calls` calls of a service; requests are built before and answers dropped after.
fn time<S, R>(service: &mut S, requests: Vec<Request<Body>>, answers: &mut Vec<R>) -> Duration
where
    S: Service<Request<Body>, Response = R, Error = std::convert::Infallible>,
{
    answers.reserve(requests.len());
    let start = Instant::now();
    for request in requests {
        answers.push(support::call(service, black_box(request)));
    }
    start.elapsed()
}

/// What a noisy machine cannot hide: bare and guarded calls in turn, and the median of the difference.
fn interleaved<S, R>(what: &str, guard: &S, mut request: impl FnMut() -> Request<Body>) -> f64
where
    S: Service<Request<Body>, Response = R, Error = std::convert::Infallible> + Clone,
{
    const ROUNDS: usize = 301;
    const CALLS: usize = 1000;
    let (mut bare, mut guard) = (Inner, guard.clone());
    let (mut bare_answers, mut guarded_answers) = (Vec::new(), Vec::new());
    let mut added: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            // Before the requests are made: dropping a guarded answer touches its session.
            bare_answers.clear();
            guarded_answers.clear();
            let for_bare = (0..CALLS).map(|_| request()).collect();
            let for_guard = (0..CALLS).map(|_| request()).collect();
            let without = time(&mut bare, for_bare, &mut bare_answers);
            let with = time(&mut guard, for_guard, &mut guarded_answers);
            (with.as_nanos() as f64 - without.as_nanos() as f64) / CALLS as f64
        })
        .collect();
    added.sort_unstable_by(f64::total_cmp);
    let median = added[ROUNDS / 2];
    println!("{what} adds {median:.0} ns (median of {ROUNDS} interleaved rounds)");
    median
}

fn main() {
    let runtime = support::runtime();
    let store = support::store();
    let guard = runtime.block_on(support::owner(store.clone(), SESSIONS));
    let other = runtime.block_on(support::owner(store, 0));
    let mut criterion = Criterion::default().configure_from_args();
    let mut walk = Walk::over(SESSIONS);

    compare(&mut criterion, "owner_hit", &guard, || {
        support::on_session(&walk.next())
    });
    let hot = support::session_id(0);
    compare(&mut criterion, "owner_hit_same_session", &guard, || {
        support::on_session(&hot)
    });
    compare_with_body(&mut criterion, &guard);
    compare(
        &mut criterion,
        "no_session",
        &guard,
        support::without_session,
    );
    compare(&mut criterion, "modern", &guard, support::modern);
    slow(
        &mut criterion,
        "malformed",
        &runtime,
        &guard,
        support::malformed,
        StatusCode::BAD_REQUEST,
    );
    slow(
        &mut criterion,
        "not_owned",
        &runtime,
        &other,
        || support::on_session(&walk.next()),
        StatusCode::CONFLICT,
    );
    criterion.final_summary();

    interleaved("owner hit", &guard, || support::on_session(&walk.next()));
    let mut few = Walk::over(SESSIONS / 100);
    interleaved("owner hit, one session in 100 active,", &guard, || {
        support::on_session(&few.next())
    });
    interleaved("owner hit, always the same session,", &guard, || {
        support::on_session(&hot)
    });

    drain();
}

/// Admission by what drains, with credit left: what the layer adds to the same calls, and the same with many sessions
/// that have an answer on its way.
fn drain() {
    let hot = support::session_id(0);
    for sessions in [400, 10_000] {
        let layer = DrainCreditLayer::new();
        let mut service = layer.layer(Inner);
        let unread: Vec<_> = (1..=sessions)
            .map(|n| support::call(&mut service, support::on_session(&support::session_id(n))))
            .collect();
        assert_eq!(layer.figures().sessions, sessions);
        let what = format!("admission, {sessions} sessions, always the same session,");
        interleaved(&what, &service, || support::on_session(&hot));
        let mut walk = Walk::over(sessions);
        let what = format!("admission, {sessions} sessions, at random,");
        interleaved(&what, &service, || support::on_session(&walk.next()));
        drop(unread);
        assert_eq!(layer.figures().sessions, 0);
    }
}
