//! What a request at its owner costs besides time: no allocation, no call of the store, no look into its body.

mod support;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use allocation_counter::{AllocationInfo, measure};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::Full;
use mcp_session_guard::{
    affinity_guard::{AffinityGuard, AffinityGuardLayer},
    instance::{Heartbeats, Instance},
    store::{MemoryConfig, MemoryStore},
};
use support::{Stage, directory::Faulty};
use tower::{Layer, Service, ServiceExt};

/// Longer than the test, so that no heartbeat falls into it.
const LEASE: Duration = Duration::from_secs(3600);

/// Every verb of a directory.
const VERBS: &str = "lookup register claim heartbeat take_over bury touch terminate leave";

const PONG: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
const OPENED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}"#;

/// Hands out answers that were made beforehand, so that it allocates nothing itself, and never reads a body.
#[derive(Clone, Default)]
struct Prepared(Arc<Mutex<Vec<Response<Full<Bytes>>>>>);

impl Prepared {
    fn prepare(&self, opens: Option<&str>) {
        let body = opens.map_or(PONG, |_| OPENED);
        let mut response = Response::new(Full::from(body));
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        if let Some(id) = opens {
            headers.insert("mcp-session-id", id.parse().expect("an id"));
        }
        self.0.lock().unwrap().push(response);
    }
}

impl<B> Service<Request<B>> for Prepared {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let prepared = self.0.lock().unwrap().pop();
        ready(Ok(prepared.expect("an answer was prepared")))
    }
}

/// A request body that counts how often somebody looks into it.
struct Watched {
    body: Full<Bytes>,
    polls: Arc<AtomicUsize>,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

/// An instance with a guarded service, on a directory that counts.
struct Rig {
    directory: Faulty,
    inner: Prepared,
    guard: AffinityGuard<Prepared>,
    polls: Arc<AtomicUsize>,
}

impl Rig {
    async fn set(layer: impl FnOnce(AffinityGuardLayer) -> AffinityGuardLayer) -> Self {
        let config = MemoryConfig::default().with_max_lease(LEASE);
        let directory = Faulty::new(MemoryStore::with_config(config));
        let instance = Instance::builder("owner")
            .with_lease(LEASE)
            .with_heartbeats(Heartbeats::OnThread)
            .join(directory.clone())
            .expect("joins");
        Self::with(directory, instance, layer).await
    }

    async fn with(
        directory: Faulty,
        instance: Instance,
        layer: impl FnOnce(AffinityGuardLayer) -> AffinityGuardLayer,
    ) -> Self {
        instance.ready().await;
        let inner = Prepared::default();
        let guard = layer(AffinityGuardLayer::new(instance)).layer(inner.clone());
        directory.take_calls("claim");
        Self {
            directory,
            inner,
            guard,
            polls: Arc::default(),
        }
    }

    fn watched(&self, request: Request<Full<Bytes>>) -> Request<Watched> {
        request.map(|body| Watched {
            body,
            polls: Arc::clone(&self.polls),
        })
    }

    /// Sends a request that may wait.
    async fn send(&mut self, request: Request<Full<Bytes>>) -> StatusCode {
        let request = self.watched(request);
        let answer = self.guard.clone().oneshot(request);
        answer.await.expect("an answer").status()
    }

    async fn open(&mut self, id: &str) {
        self.inner.prepare(Some(id));
        let request = support::post(None, support::INITIALIZE);
        assert_eq!(self.send(as_user(request)).await, StatusCode::OK);
    }

    /// Sends a request that is answered at once, drains the answer, and says what was allocated meanwhile.
    fn send_at_once(&mut self, request: Request<Full<Bytes>>) -> AllocationInfo {
        self.inner.prepare(None);
        let mut request = Some(self.watched(request));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Service::<Request<Watched>>::poll_ready(&mut self.guard, &mut cx).is_ready());
        let (mut read, mut status) = (0, None);
        let allocated = measure(|| {
            let request = request.take().expect("measured once");
            let response = self.guard.call(request).now_or_never().expect("no wait");
            let response = response.expect("an answer");
            status = Some(response.status());
            let mut body = std::pin::pin!(response.into_body());
            while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
                read += frame.map_or(0, |frame| frame.data_ref().map_or(0, Bytes::len));
            }
            assert!(body.is_end_stream());
        });
        assert_eq!(status, Some(StatusCode::OK));
        assert_eq!(read, PONG.len(), "the answer came through");
        allocated
    }

    /// The calls of the directory since the last time, by verb; none is left out.
    fn calls(&self) -> Vec<(&'static str, usize)> {
        let calls = VERBS
            .split(' ')
            .map(|verb| (verb, self.directory.take_calls(verb)));
        calls.filter(|(_, count)| *count > 0).collect()
    }

    fn polls(&self) -> usize {
        self.polls.swap(0, Ordering::Relaxed)
    }
}

fn as_user(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    request
        .headers_mut()
        .insert("x-user", HeaderValue::from_static("ada"));
    request
}

fn call(session: &str) -> Request<Full<Bytes>> {
    as_user(support::post(Some(session), support::CALL))
}

/// Sends it twice, since the first request on a thread may set up what stays.
fn assert_free(rig: &mut Rig, request: impl Fn() -> Request<Full<Bytes>>) {
    rig.send_at_once(request());
    rig.calls();
    rig.polls();
    let allocated = rig.send_at_once(request());
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
    assert_eq!(rig.calls(), []);
    assert_eq!(rig.polls(), 0);
}

#[test]
fn the_counter_counts() {
    let allocated = measure(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(allocated.count_total, 1);
}

#[tokio::test]
async fn an_owner_hit_is_free() {
    let mut rig = Rig::set(|layer| layer).await;
    rig.open("opened").await;
    assert_free(&mut rig, || call("opened"));
    assert_free(&mut rig, || support::get("opened"));
}

#[tokio::test]
async fn an_owner_hit_with_a_borrowed_principal_is_free() {
    let mut rig = Rig::set(|layer| {
        layer.with_principal(|parts| Some(parts.headers.get("x-user")?.to_str().ok()?.into()))
    })
    .await;
    rig.open("opened").await;
    assert_free(&mut rig, || call("opened"));
}

#[tokio::test]
async fn what_has_no_session_or_is_modern_is_free() {
    let mut rig = Rig::set(|layer| layer).await;
    assert_free(&mut rig, || {
        let mut get = support::get("x");
        get.headers_mut().remove("mcp-session-id");
        get
    });
    assert_free(&mut rig, || {
        let mut post = support::post(None, support::CALL);
        let headers = post.headers_mut();
        let version = HeaderValue::from_static("2026-07-28");
        headers.insert("mcp-protocol-version", version);
        headers.insert("mcp-method", HeaderValue::from_static("tools/call"));
        post
    });
}

#[tokio::test]
async fn the_directory_is_asked_no_more_than_needed() {
    let mut owner = Rig::set(|layer| layer).await;
    owner.open("opened").await;
    assert_eq!(owner.calls(), [("register", 1)]);

    assert_eq!(owner.send(call("not one")).await, StatusCode::BAD_REQUEST);
    assert_eq!(owner.calls(), []);

    let other = Instance::builder("other")
        .with_lease(LEASE)
        .join(owner.directory.clone())
        .expect("joins");
    let mut other = Rig::with(owner.directory.clone(), other, |layer| layer).await;
    assert_eq!(other.send(call("opened")).await, StatusCode::CONFLICT);
    assert_eq!(other.calls(), [("lookup", 1)]);
}

/// Two instances on a directory, the first of which opened a session and was then not heard of for a lease.
async fn orphaned(externalized: bool) -> Rig {
    let stage = Stage::set();
    let layer = |layer: AffinityGuardLayer| match externalized {
        true => layer.externalized(),
        false => layer,
    };
    let directory = Faulty::new(stage.store.clone());
    let crashed = stage.instance("crashed").await;
    let mut crashed = Rig::with(directory.clone(), crashed, layer).await;
    crashed.open("orphan").await;
    drop(crashed);
    tokio::time::sleep(support::LEASE).await;
    let heir = stage.builder("heir").join(directory.clone());
    let mut heir = Rig::with(directory, heir.expect("joins"), layer).await;
    // What it offers is learned from this one.
    heir.open("its-own").await;
    heir.calls();
    heir
}

#[tokio::test(start_paused = true)]
async fn a_burial_takes_two_calls() {
    let mut heir = orphaned(false).await;
    assert_eq!(heir.send(call("orphan")).await, StatusCode::NOT_FOUND);
    assert_eq!(heir.calls(), [("lookup", 1), ("bury", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_take_over_takes_two_calls() {
    let mut heir = orphaned(true).await;
    heir.inner.prepare(None);
    assert_eq!(heir.send(call("orphan")).await, StatusCode::OK);
    assert_eq!(heir.calls(), [("lookup", 1), ("take_over", 1)]);
}
