//! What the benchmarks share: an inner service that costs next to nothing, requests, and a guard that owns sessions.
#![allow(
    dead_code,
    reason = "each benchmark is a crate of its own and uses a part of this"
)]

use std::{
    convert::Infallible,
    future::{Ready, ready},
    ops::Range,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use mcp_session_guard::{
    affinity_guard::{AffinityGuard, AffinityGuardLayer, ResponseBody},
    instance::{Instance, JoinError},
    mcp::header::{IDEMPOTENCY_KEY, METHOD, PROTOCOL_VERSION, SESSION_ID},
    store::{MemoryConfig, MemoryStore, SessionDirectory},
};
use tokio::runtime::Runtime;
use tower::{Layer, Service};

/// The header by which a benchmark tells the inner service which session id to mint.
const MINT: HeaderName = HeaderName::from_static("x-mint");

/// Longer than any benchmark runs, so that heartbeats stay out of the measurement.
const LEASE: Duration = Duration::from_secs(3600);

pub(crate) type Body = Full<Bytes>;
pub(crate) type Guard = AffinityGuard<Inner>;
pub(crate) type Guarded = Response<ResponseBody<Body>>;

/// Answers JSON at once, and mints a session when it is told to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inner;

impl<B> Service<Request<B>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let mut response = Response::new(Full::new(Bytes::from_static(answer)));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        if let Some(id) = request.headers().get(MINT) {
            response.headers_mut().insert(SESSION_ID, id.clone());
        }
        ready(Ok(response))
    }
}

/// Never answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Never;

impl<B> Service<Request<B>> for Never {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Pending<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        std::future::pending()
    }
}

/// Calls a service whose answer is there at once; no executor has a part in it.
#[inline]
pub(crate) fn call<S, R>(service: &mut S, request: Request<Body>) -> R
where
    S: Service<Request<Body>, Response = R, Error = Infallible>,
{
    call_any(service, request)
}

/// As [`call`], whatever the request's body.
#[inline]
pub(crate) fn call_any<S, Q, R>(service: &mut S, request: Q) -> R
where
    S: Service<Q, Response = R, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    // Polled where it is, as a server does it: moving a future costs more than polling some.
    match std::pin::pin!(service.call(request)).poll(&mut cx) {
        Poll::Ready(Ok(response)) => response,
        Poll::Ready(Err(never)) => match never {},
        Poll::Pending => unreachable!("the answer is there at once"),
    }
}

/// Reads a body whose frames are there at once, and returns how many bytes it had.
#[inline]
pub(crate) fn drain<B>(body: B) -> usize
where
    B: http_body::Body<Data = Bytes>,
{
    let mut body = std::pin::pin!(body);
    let mut cx = Context::from_waker(Waker::noop());
    let mut read = 0;
    while let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(&mut cx) {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
    read
}

/// The id of the `n`th session, shaped like the UUIDs that servers mint.
pub(crate) fn session_id(n: usize) -> String {
    let (high, low) = ((n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), n);
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{low:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        (high >> 4) & 0xfff,
        high & 0xfff
    )
}

fn post() -> http::request::Builder {
    Request::post("/mcp")
        .header("host", "mcp.example")
        .header("accept", "application/json, text/event-stream")
        .header(CONTENT_TYPE, "application/json")
}

fn with_body(builder: http::request::Builder, body: &'static [u8]) -> Request<Body> {
    let body = Full::new(Bytes::from_static(body));
    builder.body(body).expect("the parts are valid")
}

/// A tool call on a session, as a client of MCP 2025-06-18 sends it.
pub(crate) fn on_session(id: &str) -> Request<Body> {
    let builder = post()
        .header(PROTOCOL_VERSION, "2025-06-18")
        .header(SESSION_ID, id);
    with_body(
        builder,
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#,
    )
}

/// A GET that names no session.
pub(crate) fn without_session() -> Request<Body> {
    let builder = Request::get("/mcp")
        .header("host", "mcp.example")
        .header("accept", "text/event-stream")
        .header(PROTOCOL_VERSION, "2025-06-18");
    with_body(builder, b"")
}

/// A tool call of MCP 2026-07-28.
pub(crate) fn modern() -> Request<Body> {
    let builder = post()
        .header(PROTOCOL_VERSION, "2026-07-28")
        .header(METHOD, "tools/call")
        .header("mcp-name", "echo");
    with_body(
        builder,
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#,
    )
}

/// A request of MCP 2026-07-28 that is no call.
pub(crate) fn modern_list() -> Request<Body> {
    let mut request = modern();
    let list = HeaderValue::from_static("tools/list");
    request.headers_mut().insert(METHOD, list);
    request
}

/// A tool call with an idempotency key.
pub(crate) fn with_key(key: &str) -> Request<Body> {
    let mut request = on_session(&session_id(0));
    let key = HeaderValue::from_str(key).expect("a key");
    request.headers_mut().insert(IDEMPOTENCY_KEY, key);
    request
}

/// A tool call whose session header cannot be one.
pub(crate) fn malformed() -> Request<Body> {
    on_session("not a session")
}

fn initialize(mint: &str) -> Request<Body> {
    with_body(
        post().header(MINT, mint),
        br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
    )
}

/// Opens the `n`th session.
pub(crate) fn initialize_session(n: usize) -> Request<Body> {
    initialize(&session_id(n))
}

/// The runtime on which sessions are opened.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be built")
}

/// An instance that has joined `directory` and holds a lease.
pub(crate) async fn instance(directory: impl SessionDirectory) -> Result<Instance, JoinError> {
    let instance = Instance::builder("bench")
        .with_lease(LEASE)
        .join(directory)?;
    instance.ready().await;
    Ok(instance)
}

/// A store that grants leases as long as [`instance`] asks for.
pub(crate) fn store() -> MemoryStore {
    MemoryStore::with_config(MemoryConfig::default().with_max_lease(LEASE))
}

/// A guarded service.
pub(crate) fn guard(instance: &Instance) -> Guard {
    AffinityGuardLayer::new(instance.clone()).layer(Inner)
}

/// Opens sessions through the guard, as clients would.
pub(crate) async fn open(guard: &mut Guard, sessions: Range<usize>) {
    for n in sessions {
        let response = guard.call(initialize(&session_id(n))).await;
        let status = response.map_or_else(|never| match never {}, |response| response.status());
        assert_eq!(status, StatusCode::OK, "a session could not be opened");
    }
}

/// A guard whose instance owns the first `count` sessions.
pub(crate) async fn owner(directory: impl SessionDirectory, count: usize) -> Guard {
    let instance = instance(directory).await.expect("the instance can join");
    let mut guard = guard(&instance);
    open(&mut guard, 0..count).await;
    guard
}
