//! Wall time of the affinity guard: one service called directly and inside the layer, in one run.

mod support;

use std::{
    convert::Infallible,
    hint::black_box,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion};
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
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
fn interleaved(what: &str, guard: &Guard, mut request: impl FnMut() -> Request<Body>) {
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

    drain(&runtime);
}

/// Admission by what drains, with credit left, while so many other sessions have an answer on its way. Each answer is
/// read before the next call: a session that reads nothing would use its credit up.
fn drain(runtime: &Runtime) {
    for sessions in [400, 10_000] {
        let layer = DrainCreditLayer::new();
        let mut service = layer.layer(Inner);
        let unread: Vec<_> = (0..sessions)
            .map(|n| support::call(&mut service, support::on_session(&support::session_id(n))))
            .collect();
        assert_eq!(layer.figures().sessions, sessions);
        let hot = support::session_id(0);
        admission(&format!("one of {sessions} sessions"), &service, || {
            support::on_session(&hot)
        });
        let mut walk = Walk::over(sessions);
        admission(&format!("{sessions} sessions at random"), &service, || {
            support::on_session(&walk.next())
        });
        drop(unread);
        assert_eq!(layer.figures().sessions, 0);
        let what = format!("{sessions} sessions that have nothing else outstanding");
        admission(&what, &service, || support::on_session(&walk.next()));
    }
    events(runtime);
}

/// What the layer adds from the request to the end of its answer, in turn with the bare service.
fn admission<S, B>(what: &str, service: &S, mut request: impl FnMut() -> Request<Body>)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes>,
{
    const ROUNDS: usize = 301;
    const CALLS: usize = 500;
    fn time<S, B>(service: &mut S, requests: Vec<Request<Body>>) -> Duration
    where
        S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
        B: http_body::Body<Data = Bytes>,
    {
        let start = Instant::now();
        for request in requests {
            let answer = support::call(service, black_box(request));
            black_box(support::drain(answer.into_body()));
        }
        start.elapsed()
    }
    let (mut bare, mut service) = (Inner, service.clone());
    let mut added: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let for_bare = (0..CALLS).map(|_| request()).collect();
            let for_service = (0..CALLS).map(|_| request()).collect();
            let without = time(&mut bare, for_bare);
            let with = time(&mut service, for_service);
            (with.as_nanos() as f64 - without.as_nanos() as f64) / CALLS as f64
        })
        .collect();
    added.sort_unstable_by(f64::total_cmp);
    println!(
        "admission, {what}, to the end of the answer: adds {:.0} ns (median of {ROUNDS} rounds, least {:.0})",
        added[ROUNDS / 2],
        added[0]
    );
}

const EVENTS: usize = 20_000;

/// Answers with a stream of so many events, each ready at once.
#[derive(Clone)]
struct Talker(Bytes);

impl<B> Service<Request<B>> for Talker {
    type Response = Response<UnsyncBoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let event = self.0.clone();
        let frames = (0..EVENTS).map(move |_| Ok::<_, Infallible>(Frame::data(event.clone())));
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let mut response = Response::new(UnsyncBoxBody::new(body));
        let kind = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        std::future::ready(Ok(response))
    }
}

/// What accounting for an event of a stream costs, beside reading the same body directly.
fn events(runtime: &Runtime) {
    const ROUNDS: usize = 31;
    let event = Bytes::from(format!(
        "id: 1\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{{\"data\":\"{}\"}}}}\n\n",
        "x".repeat(140)
    ));
    let inner = Talker(event);
    let layer = DrainCreditLayer::new();
    let mut added: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let bare = runtime.block_on(read(inner.clone()));
            let accounted = runtime.block_on(read(layer.layer(inner.clone())));
            (accounted.as_nanos() as f64 - bare.as_nanos() as f64) / EVENTS as f64
        })
        .collect();
    added.sort_unstable_by(f64::total_cmp);
    println!(
        "an event through the layer's own queue adds {:.0} ns (median of {ROUNDS} rounds)",
        added[ROUNDS / 2]
    );
}

async fn read<S, B>(mut service: S) -> Duration
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let start = Instant::now();
    let request = support::on_session("session");
    let response = service.call(request).await;
    let mut body = response.unwrap_or_else(|never| match never {}).into_body();
    while let Some(frame) = body.frame().await {
        black_box(frame.is_ok());
    }
    start.elapsed()
}
