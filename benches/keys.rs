//! Wall time of idempotency keys: one JSON route called directly, inside the layer, and inside axum-idempotent 0.6, in
//! one run.

mod support;

use std::{
    convert::Infallible,
    hint::black_box,
    time::{Duration, Instant},
};

use axum::{Router, body::Body as AxumBody, routing::post};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use criterion::{BatchSize, Criterion};
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use mcp_session_guard::{
    idempotency_key::{IdempotencyKey, IdempotencyKeyLayer},
    instance::Instance,
    mcp::header::{PROTOCOL_VERSION, SESSION_ID},
    stack::{SessionGuard, SessionGuardLayer},
    store::MemoryStore,
};
use ruts::{CookieOptions, Session, SessionLayer, store::moka::MokaStore};
use support::{Body, Inner};
use tokio::runtime::Runtime;
use tower::{Layer, Service, ServiceExt};
use tower_cookies::CookieManagerLayer;

type Keyed = IdempotencyKey<Inner>;

/// A call of about 300 bytes.
fn call(key: Option<&str>) -> Request<Body> {
    let builder = Request::post("/mcp")
        .header("host", "mcp.example")
        .header("accept", "application/json, text/event-stream")
        .header(CONTENT_TYPE, "application/json")
        .header(PROTOCOL_VERSION, "2025-06-18")
        .header(SESSION_ID, support::session_id(0));
    let builder = match key {
        Some(key) => builder.header("idempotency-key", key),
        None => builder,
    };
    builder.body(Full::from(CALL)).expect("a request")
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"transfer","arguments":{"from":"DE02120300000000202051","to":"DE02500105170137075030","amount":"199.90","currency":"EUR","reference":"invoice 2026-11-0042, second instalment","execute_on":"2026-12-01","notify":["payer","payee"]}}}"#;

const _: () = assert!(CALL.len() > 280 && CALL.len() < 320);

fn key(number: usize) -> String {
    support::session_id(number)
}

/// A layer with so many keys that ran.
fn with_keys(runtime: &Runtime, keys: usize) -> Keyed {
    let mut service = IdempotencyKeyLayer::new(MemoryStore::new()).layer(Inner);
    runtime.block_on(async {
        for number in 0..keys {
            let response = service.call(call(Some(&key(number)))).await;
            assert_eq!(response.expect("an answer").status(), StatusCode::OK);
        }
    });
    service
}

/// Times calls whose answers are there at once, answers read to their end; requests are built before.
fn time<S, R, B>(service: &mut S, requests: Vec<R>, status: StatusCode) -> f64
where
    S: Service<R, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = bytes::Bytes>,
{
    let calls = requests.len();
    let mut kept = Vec::with_capacity(calls);
    let start = Instant::now();
    for request in requests {
        let (head, body) = support::call_any(service, black_box(request)).into_parts();
        assert_eq!(head.status, status);
        kept.push((head, support::drain(body)));
    }
    let elapsed = start.elapsed();
    drop(kept);
    elapsed.as_nanos() as f64 / calls as f64
}

const ROUNDS: usize = 201;
const CALLS: usize = 200;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// What a service adds to the bare one: calls in turn, the median of the difference.
fn adds<S, B>(
    what: &str,
    service: &mut S,
    status: StatusCode,
    mut request: impl FnMut() -> Request<Body>,
) -> f64
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = bytes::Bytes>,
{
    let rounds = (0..ROUNDS).map(|_| {
        let for_bare = (0..CALLS).map(|_| call(Some(&key(0)))).collect();
        let for_service = (0..CALLS).map(|_| request()).collect();
        let bare = time(&mut Inner, for_bare, StatusCode::OK);
        time(service, for_service, status) - bare
    });
    let added = median(rounds.collect());
    println!("{what} adds {added:.0} ns (median of {ROUNDS} interleaved rounds)");
    added
}

/// axum-idempotent on the same route, in a session of its own store; and that route alone.
struct Peer {
    bare: Router,
    keyed: Router,
    cookie: String,
}

type Sessions = MokaStore;

impl Peer {
    async fn open() -> Self {
        async fn answer(_: bytes::Bytes) -> ([(http::HeaderName, &'static str); 1], &'static str) {
            let json = [(CONTENT_TYPE, "application/json")];
            (json, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)
        }
        async fn login(session: Session<Sessions>) {
            let stored = session.set(
                "user",
                &1,
                ruts::store::Ttl::new(3600).expect("a ttl"),
                None,
            );
            stored.await.expect("a session");
        }
        let options =
            IdempotentOptions::new(3600).use_idempotency_key_header(Some("idempotency-key"), false);
        let sessions = SessionLayer::new(std::sync::Arc::new(Sessions::builder().build()))
            .with_cookie_options(CookieOptions::build().name("session").path("/"));
        let keyed = Router::new()
            .route("/mcp", post(answer))
            .layer(IdempotentLayer::<Sessions>::new(options))
            .route("/login", post(login))
            .layer(sessions)
            .layer(CookieManagerLayer::new());
        let login = Request::post("/login")
            .body(AxumBody::empty())
            .expect("a request");
        let response = keyed.clone().oneshot(login).await.expect("an answer");
        let cookie = response.headers()["set-cookie"].to_str().expect("text");
        let cookie = cookie.split(';').next().expect("a cookie").to_owned();
        Self {
            bare: Router::new().route("/mcp", post(answer)),
            keyed,
            cookie,
        }
    }

    fn request(&self, number: usize) -> Request<AxumBody> {
        let mut request = call(Some(&key(number))).map(AxumBody::new);
        let cookie = self.cookie.parse().expect("a cookie");
        request.headers_mut().insert("cookie", cookie);
        request
    }

    async fn time(service: &mut Router, requests: Vec<Request<AxumBody>>) -> f64 {
        let calls = requests.len();
        let start = Instant::now();
        for request in requests {
            let response = service.call(request).await.expect("an answer");
            black_box(response.into_body().collect().await.expect("a body"));
        }
        start.elapsed().as_nanos() as f64 / calls as f64
    }

    /// What it adds to the route alone; and what this crate's layer adds to the same route, in the same rounds.
    async fn compare(&mut self, what: &str, stored: usize, mut number: impl FnMut() -> usize) {
        let (mut peer, mut own) = (Vec::new(), Vec::new());
        let layer = IdempotencyKeyLayer::new(MemoryStore::new());
        let mut guarded = self.bare.clone().layer(layer);
        for number in 0..stored {
            Self::time(&mut guarded, vec![self.request(number)]).await;
        }
        for _ in 0..ROUNDS / 4 {
            let numbers: Vec<_> = (0..CALLS).map(|_| number()).collect();
            let requests = || numbers.iter().map(|number| self.request(*number)).collect();
            let (for_bare, for_peer, for_own) = (requests(), requests(), requests());
            let bare = Self::time(&mut self.bare, for_bare).await;
            peer.push(Self::time(&mut self.keyed, for_peer).await - bare);
            own.push(Self::time(&mut guarded, for_own).await - bare);
        }
        println!(
            "{what}, on one axum route with about {stored} keys: axum-idempotent adds {:.0} ns, this layer {:.0} ns",
            median(peer),
            median(own)
        );
    }
}

/// The guards stacked, on a session that is the instance's own.
fn stacked(runtime: &Runtime) -> SessionGuard<Inner> {
    let store = support::store();
    runtime.block_on(async {
        let instance: Instance = support::instance(store.clone()).await.expect("joins");
        let layer = SessionGuardLayer::new(&instance, store);
        let mut service = layer.layer(Inner);
        let opened = service.call(support::initialize_session(0)).await;
        assert_eq!(opened.expect("an answer").status(), StatusCode::OK);
        service
    })
}

fn main() {
    let runtime = support::runtime();
    let _entered = runtime.enter();
    let mut criterion = Criterion::default()
        .configure_from_args()
        .measurement_time(Duration::from_secs(2));
    let mut next = 1_000_000;
    let mut fresh = move || {
        next += 1;
        call(Some(&key(next)))
    };

    let mut empty = with_keys(&runtime, 1);
    let mut group = criterion.benchmark_group("keys");
    group.bench_function("bare", |bencher| {
        bencher.iter_batched(
            || call(None),
            |request| support::call(&mut Inner, request),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("fresh", |bencher| {
        bencher.iter_batched(
            &mut fresh,
            |request| support::call(&mut empty, request),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("replay", |bencher| {
        bencher.iter_batched(
            || call(Some(&key(0))),
            |request| support::call(&mut empty, request),
            BatchSize::SmallInput,
        );
    });
    group.finish();
    criterion.final_summary();

    adds("no key, 300 B,", &mut empty, StatusCode::OK, || call(None));
    adds("modern, not a call,", &mut empty, StatusCode::OK, || {
        let mut request = call(None);
        let headers = request.headers_mut();
        headers.insert(
            "mcp-protocol-version",
            "2026-07-28".parse().expect("a version"),
        );
        headers.insert("mcp-method", "tools/list".parse().expect("a method"));
        request
    });
    for keys in [100, 1_000, 10_000, 100_000] {
        let mut service = with_keys(&runtime, keys);
        let what = format!("fresh, {keys} keys stored,");
        adds(&what, &mut service, StatusCode::OK, &mut fresh);
        let mut service = with_keys(&runtime, keys);
        let mut number = 0;
        let what = format!("replay, {keys} keys stored,");
        adds(&what, &mut service, StatusCode::OK, || {
            // A walk that a prefetcher cannot follow.
            number = (number + 61_803) % keys;
            call(Some(&key(number)))
        });
    }
    let mut service = with_keys(&runtime, 1);
    adds(
        "conflict",
        &mut service,
        StatusCode::UNPROCESSABLE_ENTITY,
        || call(Some(&key(0))).map(|_| Full::from(CALL.replace("199", "299"))),
    );
    let mut service = IdempotencyKeyLayer::new(MemoryStore::new()).layer(support::Never);
    let mut running = Box::pin(service.call(call(Some(&key(0)))));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(running.as_mut().poll(&mut cx).is_pending());
    adds("in flight", &mut service, StatusCode::CONFLICT, || {
        call(Some(&key(0)))
    });

    let mut stack = stacked(&runtime);
    adds(
        "three layers, owner hit without a key,",
        &mut stack,
        StatusCode::OK,
        || call(None),
    );

    runtime.block_on(async {
        for stored in [100, 10_000] {
            let mut peer = Peer::open().await;
            for number in 0..stored {
                let request = vec![peer.request(number)];
                Peer::time(&mut peer.keyed, request).await;
            }
            let mut number = 0;
            peer.compare("replay", stored, || {
                number = (number + 61_803) % stored;
                number
            })
            .await;
            let mut number = stored;
            peer.compare("fresh", stored, || {
                number += 1;
                number
            })
            .await;
        }
    });
}
