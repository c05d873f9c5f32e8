//! Answers that are streams: what passes, what is held, and what is recorded.

use std::{sync::Mutex, time::Duration};

use futures_util::FutureExt;
use http::Response;
use http_body_util::BodyExt;
use mcp_session_guard::idempotency_key::ResponseBody;
use serde_json::json;

use crate::{
    Node, call, is_replay, keyed, memory,
    support::{
        directory::Fault,
        inner::{InnerBody, Tap, stream},
    },
};

const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}"#;
const PAID: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"paid":5}}"#;

async fn streaming(node: &Node) -> (Tap, Response<ResponseBody<InnerBody>>) {
    let (tap, response) = stream();
    let response = Mutex::new(Some(response));
    node.inner.script(move |_| {
        let response = response.lock().unwrap().take().expect("asked once");
        async move { response }
    });
    (tap, node.respond(keyed("k", call(1))).await)
}

/// What is there now.
fn next(body: &mut ResponseBody<InnerBody>) -> Option<String> {
    let frame = body.frame().now_or_never()??.expect("no break");
    Some(String::from_utf8(frame.into_data().ok()?.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn events_pass_as_they_come_and_the_final_one_when_it_is_recorded() {
    let node = Node::start();
    let (tap, response) = streaming(&node).await;
    let mut body = response.into_body();
    assert_eq!(next(&mut body), None);
    tap.send(": hello\n\nid: 7\nretry: 10\ndata:\n\n").unwrap();
    assert_eq!(
        next(&mut body).unwrap(),
        ": hello\n\nid: 7\nretry: 10\ndata:\n\n"
    );
    tap.event("8", NOTE);
    assert_eq!(next(&mut body).unwrap(), format!("id: 8\ndata: {NOTE}\n\n"));
    node.ledger
        .set("complete", Fault::Slow(Duration::from_millis(50)));
    tap.event("9", PAID);
    assert_eq!(next(&mut body), None);
    let refused = node.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_key_in_progress"));
    tokio::time::sleep(Duration::from_millis(51)).await;
    assert_eq!(next(&mut body).unwrap(), format!("id: 9\ndata: {PAID}\n\n"));
    assert!(is_replay(&node.call("k", 3).await));
    // What comes after it is passed on too.
    tap.send(": bye\n\n").unwrap();
    assert_eq!(next(&mut body).unwrap(), ": bye\n\n");
    drop(tap);
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_pieces_is_found() {
    let node = Node::start();
    let (tap, response) = streaming(&node).await;
    let text = format!("event: message\r\ndata: {PAID}\r\n\r\n");
    for piece in text.as_bytes().chunks(3) {
        tap.send(piece.to_vec()).unwrap();
    }
    drop(tap);
    let read = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(read, text);
    let again = node.call("k", 2).await;
    assert_eq!(again.json()["result"], json!({"paid": 5}));
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_the_answer_leaves_its_outcome_unknown() {
    type End = fn(Tap);
    let ends: [(&str, End); 5] = [
        ("closed", |tap| drop(tap)),
        ("broken", Tap::fail),
        ("another request's answer", |tap| {
            tap.event("1", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
        }),
        ("a question", |tap| {
            tap.event("1", r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
        }),
        ("cut off before the empty line", |tap| {
            tap.send(format!("data: {PAID}\n")).unwrap();
        }),
    ];
    for (what, end) in ends {
        let node = Node::start();
        let (tap, response) = streaming(&node).await;
        end(tap);
        let _ = response.into_body().collect().await;
        let refused = node.call("k", 2).await;
        assert_eq!(
            refused.refusal(),
            (409, "idempotency_outcome_unknown"),
            "{what}"
        );
        assert_eq!(node.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_too_large_passes_and_nothing_is_claimed_of_it() {
    let node = Node::with(&memory(), |layer| layer.with_event_limit(100));
    let (tap, response) = streaming(&node).await;
    let long = NOTE.replace("progress\":1", &"x".repeat(200));
    tap.event("1", &long);
    tap.event("2", PAID);
    drop(tap);
    let read = response.into_body().collect().await.unwrap().to_bytes();
    assert!(read.ends_with(format!("id: 2\ndata: {PAID}\n\n").as_bytes()));
    let refused = node.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_too_large_is_remembered_as_run() {
    let node = Node::with(&memory(), |layer| layer.with_outcome_limit(5));
    let (tap, response) = streaming(&node).await;
    tap.event("1", PAID);
    drop(tap);
    let read = response.into_body().collect().await.unwrap().to_bytes();
    assert!(read.ends_with(format!("{PAID}\n\n").as_bytes()));
    let refused = node.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
    assert!(refused.text.contains("too large to be kept"));
}

#[tokio::test(start_paused = true)]
async fn an_encoded_answer_is_not_asked_for_and_not_recorded() {
    let node = Node::start();
    let (tap, mut response) = stream();
    response
        .headers_mut()
        .insert("content-encoding", "gzip".parse().unwrap());
    let response = Mutex::new(Some(response));
    node.inner.script(move |_| {
        let response = response.lock().unwrap().take().expect("asked once");
        async move { response }
    });
    let answered = node.respond(keyed("k", call(1))).await;
    tap.send("\u{1f}\u{8b}").unwrap();
    drop(tap);
    assert_eq!(
        answered
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .len(),
        3
    );
    let refused = node.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
}
