//! Clients that leave: what runs on, what is cancelled, and what a handler that panics leaves behind.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use serde_json::json;
use tokio::sync::Notify;
use tower::ServiceExt;

use crate::{
    Node, answer, call, is_replay, keyed, memory, modern, settle,
    support::{
        Sent,
        inner::{Tap, stream},
        post,
    },
    with_header,
};
use mcp_session_guard::idempotency_key::IdempotencyKeyLayer;

fn anyone(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    layer.with_principal(|_| Some("u".into()))
}

/// Has calls run until they are let go, and counts those that ended.
fn held(node: &Node) -> (Arc<Notify>, Arc<AtomicUsize>) {
    let (go, ended) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (inner_go, inner_ended) = (Arc::clone(&go), Arc::clone(&ended));
    node.inner.script(move |asked| {
        let (go, ended) = (Arc::clone(&inner_go), Arc::clone(&inner_ended));
        let answer = answer(&asked.body, &json!({"paid": 5}));
        async move {
            go.notified().await;
            ended.fetch_add(1, Ordering::SeqCst);
            answer
        }
    });
    (go, ended)
}

/// Sends a request whose client leaves when the call has been dispatched.
async fn abandoned(node: &Node, request: http::Request<Sent>) {
    let mut future = Box::pin(node.service.clone().oneshot(request));
    assert!((&mut future).now_or_never().is_none());
    assert_eq!(node.inner.take().len(), 1, "dispatched");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_cancels_nothing_and_its_retry_gets_the_outcome() {
    let node = Node::start();
    let (go, ended) = held(&node);
    abandoned(&node, keyed("k", call(1))).await;
    settle().await;
    let refused = node.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_key_in_progress"));
    go.notify_one();
    settle().await;
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    let again = node.call("k", 3).await;
    assert!(is_replay(&again));
    assert_eq!(again.json()["result"], json!({"paid": 5}));
    assert_eq!(node.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn in_the_modern_era_a_disconnect_cancels_and_the_outcome_is_unknown() {
    let node = Node::with(&memory(), anyone);
    let (go, ended) = held(&node);
    abandoned(&node, modern("k", call(1))).await;
    settle().await;
    go.notify_one();
    settle().await;
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    // At once, and not after a lease.
    let refused = node.send(modern("k", call(2))).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
}

#[tokio::test(start_paused = true)]
async fn the_era_may_be_named_in_the_body() {
    let node = Node::with(&memory(), anyone);
    let (go, ended) = held(&node);
    let body = call(1).replace(
        r#""name""#,
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name""#,
    );
    let request = with_header(post(None, body), "idempotency-key", "k");
    abandoned(&node, request).await;
    go.notify_one();
    settle().await;
    assert_eq!(ended.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn the_modern_era_may_be_detached_too() {
    let node = Node::with(&memory(), |layer| anyone(layer).detach_modern());
    let (go, ended) = held(&node);
    abandoned(&node, modern("k", call(1))).await;
    go.notify_one();
    settle().await;
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    assert!(is_replay(&node.send(modern("k", call(2))).await));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_key_is_cancelled_as_ever() {
    let node = Node::start();
    let (go, ended) = held(&node);
    abandoned(&node, post(Some("s"), call(1))).await;
    go.notify_one();
    settle().await;
    assert_eq!(ended.load(Ordering::SeqCst), 0);
}

async fn streaming(node: &Node, request: http::Request<Sent>) -> Tap {
    let (tap, response) = stream();
    let response = Mutex::new(Some(response));
    node.inner.script(move |_| {
        let response = response.lock().unwrap().take().expect("asked once");
        async move { response }
    });
    let response = node.respond(request).await;
    assert_eq!(response.status(), 200);
    // The headers have come, and then the client leaves.
    drop(response);
    settle().await;
    tap
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_its_stream_cancels_nothing() {
    let node = Node::start();
    let tap = streaming(&node, keyed("k", call(1))).await;
    assert!(!tap.is_closed());
    tap.event("1", r#"{"jsonrpc":"2.0","method":"notifications/message"}"#);
    settle().await;
    let refused = node.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_key_in_progress"));
    tap.event("2", r#"{"jsonrpc":"2.0","id":1,"result":{"paid":5}}"#);
    settle().await;
    assert!(is_replay(&node.call("k", 3).await));
    // Nobody waits for what comes after the answer.
    assert!(tap.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_modern_era_is_cancelled() {
    let node = Node::with(&memory(), anyone);
    let tap = streaming(&node, modern("k", call(1))).await;
    assert!(tap.is_closed());
    let refused = node.send(modern("k", call(2))).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_reads_and_that_fails_is_unknown() {
    let node = Node::start();
    let tap = streaming(&node, keyed("k", call(1))).await;
    tap.fail();
    settle().await;
    let refused = node.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_leaves_an_unknown_outcome_and_no_claim() {
    for after in [false, true] {
        let node = Node::start();
        let effects = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&effects);
        node.inner.script(move |_| {
            let effects = Arc::clone(&counted);
            async move {
                if after {
                    effects.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
                panic!("a bug in the tool");
            }
        });
        let service = node.service.clone();
        let call = tokio::spawn(service.oneshot(keyed("k", call(1))));
        assert!(call.await.unwrap_err().is_panic());
        settle().await;
        for id in 2..4 {
            let refused = node.send(keyed("k", crate::call(id))).await;
            assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
        }
        assert_eq!(effects.load(Ordering::SeqCst), usize::from(after));
        assert_eq!(node.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_after_its_client_has_left_is_unknown_too() {
    let node = Node::start();
    let go = Arc::new(Notify::new());
    let inner_go = Arc::clone(&go);
    node.inner.script(move |_| {
        let go = Arc::clone(&inner_go);
        async move {
            go.notified().await;
            panic!("a bug in the tool");
        }
    });
    abandoned(&node, keyed("k", call(1))).await;
    go.notify_one();
    settle().await;
    let refused = node.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
}
