//! What reviewers of tower middleware look for: readiness, clones, permits, errors, and drops at every await.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use mcp_session_guard::{
    affinity_guard::{AffinityGuard, AffinityGuardLayer, ResponseBody, ResponseFuture},
    body::Replay,
    instance::Instance,
    rejection::Reason,
    session::SessionId,
    store::{MemoryStore, SharedDirectory, StoreErrorKind},
};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};
use tower_test::mock;

use crate::{
    Node,
    support::{
        CALL, INITIALIZE, LEASE, Sent, Stage,
        directory::Fault,
        get,
        inner::{Inner, InnerBody},
        post,
    },
};

type Mock = mock::Mock<Request<Replay<Sent>>, Response<Full<Bytes>>>;

async fn mocked(
    stage: &Stage,
) -> (
    AffinityGuard<Mock>,
    mock::Handle<Request<Replay<Sent>>, Response<Full<Bytes>>>,
) {
    let instance = stage.instance("a").await;
    let (service, handle) = mock::pair();
    (AffinityGuardLayer::new(instance).layer(service), handle)
}

async fn ready<S>(service: &mut S) -> &mut S
where
    S: Service<Request<Sent>, Error: std::fmt::Debug>,
{
    service.ready().await.expect("ready")
}

#[tokio::test(start_paused = true)]
async fn readiness_is_that_of_the_inner_service() {
    let stage = Stage::set();
    let (mut guard, mut handle) = mocked(&stage).await;
    handle.allow(0);
    assert!(ready(&mut guard).now_or_never().is_none());
    handle.allow(1);
    ready(&mut guard).await;
    let response = guard.call(get_without_session());
    let (request, send) = handle.next_request().await.unwrap();
    assert_eq!(request.uri(), "/mcp");
    send.send_response(Response::new(Full::default()));
    assert_eq!(response.await.unwrap().status(), 200);
}

fn get_without_session() -> Request<Sent> {
    Request::get("/mcp").body(Full::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn inner_errors_pass_through_unchanged_on_both_ways() {
    let stage = Stage::set();
    let (mut guard, mut handle) = mocked(&stage).await;
    for request in [
        get_without_session(),
        post(None, INITIALIZE),
        post(None, CALL),
    ] {
        ready(&mut guard).await;
        let response = tokio::spawn(guard.call(request));
        let (_, send) = handle.next_request().await.unwrap();
        send.send_error("the inner one's own");
        let error = response.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the inner one's own");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_response_and_the_inner_service_hears_nothing_of_it() {
    let stage = Stage::set();
    let (mut guard, mut handle) = mocked(&stage).await;
    ready(&mut guard).await;
    let response = guard.call(get("never-was")).await.unwrap();
    assert_eq!(response.extensions().get(), Some(&Reason::SessionNotFound));
    assert!(handle.next_request().now_or_never().is_none());
    // The permit that was readied for it was given back: the next request gets through.
    ready(&mut guard).await;
    let _response = guard.call(get_without_session());
    let (request, send) = handle.next_request().await.unwrap();
    assert_eq!(request.headers().get("mcp-session-id"), None);
    send.send_response(Response::new(Full::default()));
}

/// A service that panics when it is called without having been ready, as the contract allows.
struct Strict {
    inner: Inner,
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            ready: false,
        }
    }
}

impl<B> Service<Request<B>> for Strict
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Debug,
{
    type Response = Response<InnerBody>;
    type Error = std::convert::Infallible;
    type Future = <Inner as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        self.inner.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn no_clone_is_called_without_being_ready() {
    let stage = Stage::set();
    let instance = stage.instance("a").await;
    let strict = Strict {
        inner: Inner::new("a"),
        ready: false,
    };
    let mut guard = AffinityGuardLayer::new(instance).layer(strict);
    let mut id = None;
    for round in 0..3 {
        for request in [
            post(id.as_deref(), INITIALIZE),
            post(id.as_deref(), CALL),
            get("never-was"),
            get_without_session(),
        ] {
            let response = ready(&mut guard).await.call(request).await.unwrap();
            if let Some(opened) = response.headers().get("mcp-session-id") {
                id = Some(opened.to_str().unwrap().to_owned());
            }
        }
        assert!(id.is_some(), "{round}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_holds_no_permit() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    node.directory.set("lookup", Fault::Hangs);
    let limited = ConcurrencyLimit::new(node.inner.clone(), 1);
    let mut guard = AffinityGuardLayer::new(node.instance.clone()).layer(limited);
    let waiting = ready(&mut guard).await.call(get("elsewhere"));
    tokio::pin!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    // The one permit is free while the first request waits for the directory.
    let free = ready(&mut guard).now_or_never();
    let served = free.expect("a permit").call(post(Some(&id), CALL));
    assert_eq!(served.await.unwrap().status(), 200);
    assert_eq!(waiting.await.unwrap().status(), 503);
}

/// The second check: what was admitted is not dispatched when the lease lapses before the service is ready.
#[tokio::test(start_paused = true)]
async fn a_lease_that_lapses_before_dispatch_dispatches_nothing() {
    let stage = Stage::set();
    let offer = mcp_session_guard::session::Offer::new(&serde_json::json!({"tools": {}})).unwrap();
    let owner = Node::with(&stage, "a", |l| l.externalized().with_offer(offer)).await;
    let id = owner.open().await;
    owner.crash();
    tokio::time::sleep(LEASE).await;
    let node = Node::with(&stage, "b", |l| l.externalized().with_offer(offer)).await;
    let limited = ConcurrencyLimit::new(node.inner.clone(), 1);
    let guard = AffinityGuardLayer::new(node.instance.clone())
        .externalized()
        .with_offer(offer)
        .layer(limited);
    node.directory
        .set("lookup", Fault::Slow(Duration::from_millis(10)));
    let (mut first, mut holder) = (guard.clone(), guard);
    let request = ready(&mut first).await.call(post(Some(&id), CALL));
    let mut waiting = tokio_test::task::spawn(request);
    assert!(waiting.poll().is_pending());
    // Somebody else gets the permit meanwhile, so the request has to wait for it once it owns the session.
    ready(&mut holder).await;
    while node.directory.take_calls("take_over") == 0 {
        assert!(waiting.poll().is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(waiting.poll().is_pending());
    node.directory
        .set_all(Fault::Fails(StoreErrorKind::Unavailable));
    tokio::time::sleep(LEASE).await;
    drop(holder);
    let refused = waiting.await.unwrap();
    assert_eq!(
        refused.extensions().get(),
        Some(&Reason::SessionUnconfirmed)
    );
    assert!(node.inner.take().is_empty());
}

/// Yields once before whatever it wraps, so that a future can be dropped at each of its awaits.
struct Yielding<S>(S);

impl<S: Clone> Clone for Yielding<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S, B> Service<Request<B>> for Yielding<S>
where
    S: Service<Request<B>, Response: Send, Error: Send>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let call = self.0.call(request);
        Box::pin(async move {
            tokio::task::yield_now().await;
            let response = call.await;
            tokio::task::yield_now().await;
            response
        })
    }
}

/// Each kind of request is dropped after each number of polls; afterwards the session is where it was, or gone as
/// the client asked, and nothing runs on it.
#[tokio::test(start_paused = true)]
async fn dropped_at_every_await_nothing_is_left_half_done() {
    let offer = mcp_session_guard::session::Offer::new(&serde_json::json!({"tools": {}})).unwrap();
    for polls in 0..12 {
        let stage = Stage::set();
        let node = Node::with(&stage, "a", |l| l.externalized().with_offer(offer)).await;
        let id = node.open().await;
        let orphan = {
            let doomed = Node::with(&stage, "c", |l| l.externalized().with_offer(offer)).await;
            let id = doomed.open().await;
            doomed.crash();
            tokio::time::sleep(LEASE).await;
            id
        };
        let slow = Duration::from_millis(1);
        for verb in ["lookup", "register", "take_over", "terminate"] {
            node.directory.set(verb, Fault::Slow(slow));
        }
        let guard = AffinityGuardLayer::new(node.instance.clone())
            .externalized()
            .with_offer(offer)
            .layer(Yielding(node.inner.clone()));
        for request in [
            post(None, INITIALIZE),
            post(Some(&id), CALL),
            post(Some(&orphan), CALL),
            get(&id),
            get("never-was"),
        ] {
            let mut future = tokio_test::task::spawn(guard.clone().oneshot(request));
            for _ in 0..polls {
                if future.poll().is_ready() {
                    break;
                }
                tokio::time::sleep(slow).await;
            }
            drop(future);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        node.directory.heal();
        for id in [&id, &orphan] {
            let answer = node.send(post(Some(id), CALL)).await;
            assert_eq!(answer.status, 200, "after {polls} polls: {answer:?}");
        }
        let retirement = node.instance.retire_within(Duration::ZERO).await;
        assert_eq!(retirement.unfinished_calls(), 0, "after {polls} polls");
    }
}

/// A request body that must not be polled at its owner.
struct Untouchable(Arc<AtomicUsize>);

impl Body for Untouchable {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(None)
    }
}

#[tokio::test(start_paused = true)]
async fn size_trailers_and_extensions_survive() {
    #[derive(Debug, Clone, PartialEq)]
    struct Marker;
    let stage = Stage::set();
    let instance = stage.instance("a").await;
    let inner = tower::service_fn(|request: Request<Replay<Untouchable>>| async move {
        assert_eq!(request.extensions().get(), Some(&Marker));
        let trailers = async {
            Some(Ok(http::HeaderMap::from_iter([(
                "x-t".parse().unwrap(),
                "1".parse().unwrap(),
            )])))
        };
        let body = Full::new(Bytes::from_static(b"hello")).with_trailers(trailers);
        let mut response = Response::new(body);
        response.extensions_mut().insert(Marker);
        Ok::<_, std::convert::Infallible>(response)
    });
    let guard = AffinityGuardLayer::new(instance).layer(inner);
    let polls = Arc::new(AtomicUsize::new(0));
    let request = Request::get("/mcp")
        .extension(Marker)
        .body(Untouchable(Arc::clone(&polls)))
        .unwrap();
    let response = guard.oneshot(request).await.unwrap();
    assert_eq!(response.extensions().get(), Some(&Marker));
    assert_eq!(response.body().size_hint().lower(), 5);
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-t"], "1");
    assert_eq!(collected.to_bytes(), "hello");
    assert_eq!(polls.load(Ordering::SeqCst), 0);
}

#[test]
fn everything_is_send_and_what_is_shared_is_sync() {
    fn send<T: Send>() {}
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn unpin<T: Unpin>() {}
    shared::<Instance>();
    shared::<MemoryStore>();
    shared::<SharedDirectory>();
    shared::<SessionId>();
    shared::<AffinityGuardLayer>();
    shared::<AffinityGuard<Inner>>();
    send::<ResponseBody<InnerBody>>();
    send::<ResponseFuture<std::future::Ready<()>, InnerBody, std::convert::Infallible>>();
    send::<Replay<InnerBody>>();
    unpin::<Replay<Full<Bytes>>>();
    unpin::<ResponseBody<Full<Bytes>>>();
}
