//! Requests that are dropped at every point they can be dropped at, and services that are not ready or fail.

use std::{
    convert::Infallible,
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
use http_body_util::Full;
use mcp_session_guard::{
    body::Replay,
    idempotency_key::{IdempotencyKey, IdempotencyKeyLayer, ResponseBody, ResponseFuture},
};
use serde_json::json;
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};
use tower_test::mock;

use crate::{
    LEASE, Node, answer, call, is_replay, keyed, memory, settle,
    support::{Answer, Sent, directory::Fault, inner::Inner, post},
};

/// Polls a future so many times and drops it; whether it was ready before.
async fn polled<F: Future>(future: F, times: usize) -> bool {
    let mut future = Box::pin(future);
    for _ in 0..times {
        if (&mut future).now_or_never().is_some() {
            return true;
        }
        settle().await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    false
}

/// Every verb and the tool take a while, so that a request can be dropped while it waits for any of them.
#[tokio::test(start_paused = true)]
async fn dropped_at_any_await_it_ran_once_or_not_and_the_truth_is_told() {
    let mut finished = false;
    for times in 1.. {
        if finished {
            break;
        }
        let node = Node::start();
        node.ledger.set_all(Fault::Slow(Duration::from_millis(40)));
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        node.inner.script(move |asked| {
            let runs = Arc::clone(&counted);
            let answer = answer(&asked.body, &json!({"paid": 5}));
            async move {
                tokio::time::sleep(Duration::from_millis(40)).await;
                runs.fetch_add(1, Ordering::SeqCst);
                answer
            }
        });
        finished = polled(node.service.clone().oneshot(keyed("k", call(1))), times).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let ran = runs.load(Ordering::SeqCst);
        let retry = node.call("k", 2).await;
        assert_eq!(retry.status, 200, "dropped after {times} polls: {retry:?}");
        // What ran is replayed, and what did not is run now.
        assert_eq!(is_replay(&retry), ran == 1, "dropped after {times} polls");
        assert_eq!(
            runs.load(Ordering::SeqCst),
            1,
            "dropped after {times} polls"
        );
    }
}

type Handle = mock::Handle<Request<Replay<Sent>>, Response<Full<Bytes>>>;
type Mock = mock::Mock<Request<Replay<Sent>>, Response<Full<Bytes>>>;

fn mocked() -> (IdempotencyKey<Mock>, Handle) {
    let (service, handle) = mock::pair();
    let layer = IdempotencyKeyLayer::new(memory()).with_lease(LEASE);
    (layer.layer(service), handle)
}

#[tokio::test(start_paused = true)]
async fn readiness_is_that_of_the_inner_service() {
    let (mut service, mut handle) = mocked();
    handle.allow(0);
    assert!(ready(&mut service).now_or_never().is_none());
    handle.allow(1);
    ready(&mut service).await;
    let answered = service.call(get());
    let (request, send) = handle.next_request().await.unwrap();
    assert_eq!(request.uri(), "/mcp");
    send.send_response(Response::new(Full::default()));
    assert_eq!(answered.await.unwrap().status(), 200);
}

async fn ready<S>(service: &mut S) -> &mut S
where
    S: Service<Request<Sent>, Error: std::fmt::Debug>,
{
    service.ready().await.expect("ready")
}

fn get() -> Request<Sent> {
    Request::get("/mcp").body(Full::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn inner_errors_pass_through_unchanged_and_leave_the_outcome_unknown() {
    let (mut service, mut handle) = mocked();
    for request in [get(), post(Some("s"), call(1)), keyed("k", call(1))] {
        ready(&mut service).await;
        let answered = tokio::spawn(service.call(request));
        let (_, send) = handle.next_request().await.unwrap();
        send.send_error("the inner one's own");
        let error = answered.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the inner one's own");
    }
    ready(&mut service).await;
    let refused = Answer::read(service.call(keyed("k", call(2))).await.unwrap()).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
    assert!(handle.next_request().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_a_service_that_is_not_ready_and_is_given_back_if_nobody_waits() {
    let (mut service, mut handle) = mocked();
    handle.allow(0);
    {
        let mut answered = Box::pin(service.call(keyed("k", call(1))));
        assert!((&mut answered).now_or_never().is_none());
    }
    settle().await;
    handle.allow(1);
    let answered = tokio::spawn(service.call(keyed("k", call(2))));
    let (_, send) = handle.next_request().await.unwrap();
    send.send_response(Response::new(Full::default()));
    assert_eq!(answered.await.unwrap().unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_breaks_before_it_is_ready_has_run_nothing() {
    let (mut service, mut handle) = mocked();
    handle.send_error("broken");
    assert!(service.call(keyed("k", call(1))).await.is_err());
    settle().await;
    let store = memory();
    drop((service, handle));
    // The same on a service that works: one ledger, two services.
    let layer = IdempotencyKeyLayer::new(store.clone());
    let (broken, mut handle) = mock::pair::<Request<Replay<Sent>>, Response<Full<Bytes>>>();
    handle.send_error("broken");
    assert!(layer.layer(broken).call(keyed("k", call(1))).await.is_err());
    settle().await;
    let node = Node::with(&store, |layer| layer);
    assert!(!is_replay(&node.call("k", 2).await));
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_permit_is_held_while_the_ledger_is_waited_for() {
    let inner = Inner::new("s");
    let node = Node::start();
    node.ledger.set("begin", Fault::Hangs);
    let limited = ConcurrencyLimit::new(inner.clone(), 1);
    let layer = IdempotencyKeyLayer::new(node.ledger.clone());
    let mut service = layer.layer(limited);
    ready(&mut service).await;
    let mut waits = Box::pin(service.call(keyed("k", call(1))));
    assert!((&mut waits).now_or_never().is_none());
    // The one permit is free.
    let other = service.clone().oneshot(post(Some("s"), call(2)));
    assert_eq!(
        other.now_or_never().expect("at once").unwrap().status(),
        200
    );
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
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Debug,
{
    type Response = <Inner as Service<Request<B>>>::Response;
    type Error = Infallible;
    type Future = <Inner as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called before it was ready"
        );
        Service::<Request<B>>::call(&mut self.inner, request)
    }
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_never_called_before_it_is_ready() {
    let inner = Strict {
        inner: Inner::new("s"),
        ready: false,
    };
    let mut service = IdempotencyKeyLayer::new(memory()).layer(inner);
    for request in [
        get(),
        post(Some("s"), call(1)),
        keyed("k", call(7)),
        keyed("k", call(7)),
    ] {
        ready(&mut service).await;
        assert_eq!(service.call(request).await.unwrap().status(), 200);
    }
}

#[test]
fn what_tower_and_axum_need_of_the_types() {
    fn service<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send>() {}
    service::<IdempotencyKeyLayer>();
    service::<IdempotencyKey<Inner>>();
    sent::<ResponseFuture<Pin<Box<dyn Future<Output = ()> + Send>>, Full<Bytes>, Infallible>>();
    sent::<ResponseBody<Full<Bytes>>>();
}
