//! Bodies that are too long, cut off, encoded or not JSON, and what cannot be read in one way only.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use tower::ServiceExt;

use crate::{
    Node, call, is_replay, keyed, memory, modern,
    support::{Answer, post},
    with_header,
};

type Frames = Vec<Result<Frame<Bytes>, std::io::Error>>;

async fn send_frames(node: &Node, request: Request<Full<Bytes>>, frames: Frames) -> Answer {
    let body = StreamBody::new(futures_util::stream::iter(frames));
    let request = request.map(|_| body.boxed_unsync());
    let response = node.service.clone().oneshot(request).await.unwrap();
    Answer::read(response).await
}

fn data(text: &str) -> Result<Frame<Bytes>, std::io::Error> {
    Ok(Frame::data(Bytes::from(text.to_owned())))
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_refused_before_any_claim() {
    let node = Node::with(&memory(), |layer| layer.with_body_limit(200));
    let long = call(1).replace("pay", &"p".repeat(200));
    let known = node.send(keyed("k", long.clone())).await;
    assert_eq!(known.refusal(), (413, "request_too_large"));
    // Some clients wait for ever for an answer under their own id.
    assert_eq!(known.json()["id"], 1);
    // Chunked, it does not say how long it is.
    let (head, tail) = long.split_at(50);
    let chunked = send_frames(&node, keyed("k", ""), vec![data(head), data(tail)]).await;
    assert_eq!(chunked.refusal(), (413, "request_too_large"));
    assert_eq!(chunked.json()["id"], 1);
    assert_eq!((node.runs(), node.ledger.take_calls("begin")), (0, 0));
    assert_eq!(node.call("k", 1).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_cut_off_dispatches_nothing_and_claims_nothing() {
    let node = Node::start();
    let whole = call(1);
    let broken = || Err(std::io::Error::other("reset"));
    for request in [keyed("k", ""), post(Some("s"), "")] {
        // Even when all of it had arrived: whether more was to come is not known.
        for head in [&whole[..40], &whole[..]] {
            let request = request.clone();
            let refused = send_frames(&node, request, vec![data(head), broken()]).await;
            assert_eq!(refused.refusal(), (503, "idempotency_unconfirmed"));
        }
    }
    assert_eq!((node.runs(), node.ledger.take_calls("begin")), (0, 0));
    assert_eq!(node.call("k", 1).await.status, 200);
}

/// A body that never ends.
struct Silent;

impl Body for Silent {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up() {
    let node = Node::with(&memory(), |l| l.with_body_deadline(Duration::from_secs(3)));
    let request = keyed("k", "").map(|_| Silent);
    let response = node.service.clone().oneshot(request).await.unwrap();
    let refused = Answer::read(response).await;
    assert_eq!(refused.refusal(), (503, "idempotency_unconfirmed"));
    assert_eq!((node.runs(), node.ledger.take_calls("begin")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_encoded_is_refused_with_a_key_or_without() {
    let node = Node::start();
    for request in [
        keyed("k", "\u{1f}\u{8b}"),
        post(Some("s"), "\u{1f}\u{8b}"),
        modern("k", "x"),
    ] {
        let refused = node
            .send(with_header(request, "content-encoding", "gzip"))
            .await;
        assert_eq!(refused.refusal(), (400, "idempotency_key_malformed"));
        let detail = refused.json()["error"]["data"]["detail"].clone();
        assert!(detail.as_str().unwrap().contains("content coding"));
    }
    assert_eq!(node.runs(), 0);
    let plain = with_header(keyed("k", call(1)), "content-encoding", "identity");
    assert_eq!(node.send(plain).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_keyed_call_is_json_and_says_so() {
    let node = Node::start();
    let in_body = call(1).replace(r#""name""#, r#""idempotencyKey":"k","name""#);
    for content_type in [
        "text/plain",
        "application/xml",
        "application/jsonx",
        "multipart/form-data",
    ] {
        for request in [keyed("k", call(1)), post(Some("s"), in_body.clone())] {
            let refused = node
                .send(with_header(request, "content-type", content_type))
                .await;
            assert_eq!(
                refused.refusal(),
                (400, "idempotency_key_malformed"),
                "{content_type}"
            );
        }
        // Without a key it is the inner service's to refuse.
        let other = with_header(post(Some("s"), call(1)), "content-type", content_type);
        assert_eq!(node.send(other).await.status, 200);
    }
    node.runs();
    let json = with_header(
        keyed("k", call(2)),
        "content-type",
        "Application/JSON; charset=utf-8",
    );
    assert_eq!(node.send(json).await.status, 200);
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_can_be_read_in_two_ways_is_refused_if_it_may_have_a_key() {
    let node = Node::start();
    for body in [
        "not json",
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","name":"refund"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{}}"#,
    ] {
        let refused = node.send(keyed("k", body)).await;
        assert_eq!(
            refused.refusal(),
            (400, "idempotency_key_malformed"),
            "{body}"
        );
    }
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"idempotencyKey":"a","idempotencyKey":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"idempotency\u004bey":"a"},"params":{}}"#,
    ] {
        let refused = node.send(post(Some("s"), body)).await;
        assert_eq!(
            refused.refusal(),
            (400, "idempotency_key_malformed"),
            "{body}"
        );
    }
    assert_eq!(node.runs(), 0);
    // What has no key is passed on as it is.
    node.inner
        .script(|_| async { crate::support::inner::respond(http::StatusCode::OK, "") });
    assert_eq!(node.send(post(Some("s"), "not json")).await.status, 200);
    assert_eq!(node.inner.take()[0].body, "not json");
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_reads_what_was_sent() {
    let node = Node::start();
    let body = format!(" {}\n", call(1));
    let (head, tail) = body.split_at(30);
    let answer = send_frames(&node, keyed("k", ""), vec![data(head), data(tail)]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(node.inner.take()[0].body, body);
    assert!(is_replay(&node.call("k", 2).await));
}

#[tokio::test(start_paused = true)]
async fn a_modern_request_for_something_else_is_not_looked_into() {
    let node = Node::start();
    let request = with_header(modern("k", ""), "mcp-method", "tools/list").map(|_| Silent);
    let mut response = tokio_test::task::spawn(node.service.clone().oneshot(request));
    // The inner service waits for the body itself: nothing was read, and no deadline runs.
    assert!(response.poll().is_pending());
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(response.poll().is_pending());
}
