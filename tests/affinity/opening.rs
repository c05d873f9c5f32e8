//! How a session is opened: recorded before the client sees its id, or not at all; and how its client ends it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, StatusCode};
use mcp_session_guard::store::StoreErrorKind;
use tower::ServiceExt;

use crate::{
    Node,
    support::{
        Answer, CALL, INITIALIZE, LEASE, Stage, delete,
        directory::Fault,
        inner::{opening, respond, stream},
        post,
    },
};

const RESULT: &str = "data: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}}}}\n\n";

/// Polls until the detached work behind a response has been done.
async fn eventually(mut done: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("did not happen");
}

#[tokio::test(start_paused = true)]
async fn an_answer_by_sse_with_a_priming_event_first_is_registered_and_not_changed() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let frames = [
        "id: 0\nretry: 3000\n",
        "data:\n\n",
        ": ping\n\n",
        "event: message\n",
        RESULT,
    ];
    node.inner.script(move |_| async move {
        let (sender, mut response) = stream();
        for frame in frames {
            sender.send(frame).unwrap();
        }
        let id = "sse-1".parse().unwrap();
        response.headers_mut().insert("mcp-session-id", id);
        response
    });
    let answer = node.send(post(None, INITIALIZE)).await;
    assert_eq!(answer.session(), "sse-1");
    assert_eq!(answer.text, frames.concat());
    assert_eq!(node.directory.take_calls("register"), 1);
    node.inner.unscript();
    assert_eq!(node.send(post(Some("sse-1"), CALL)).await.status, 200);
    // What was negotiated is known to whoever looks it up.
    let id = mcp_session_guard::session::SessionId::parse("sse-1").unwrap();
    let lookup = mcp_session_guard::store::SessionDirectory::lookup(&stage.store, &id).await;
    let mcp_session_guard::store::Lookup::Owned { record, .. } = lookup.unwrap() else {
        panic!("not owned");
    };
    assert!(record.terms.capabilities.is_some());
    assert!(record.terms.opened > 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_goes_on_after_the_result_goes_on() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let (sender, response) = stream();
    let response = std::sync::Mutex::new(Some(response));
    node.inner.script(move |_| {
        let mut response = response.lock().unwrap().take().unwrap();
        let id = "sse-2".parse().unwrap();
        response.headers_mut().insert("mcp-session-id", id);
        async move { response }
    });
    sender.send(RESULT).unwrap();
    let response = node
        .guard
        .clone()
        .oneshot(post(None, INITIALIZE))
        .await
        .unwrap();
    sender.send("data: later\n\n").unwrap();
    drop(sender);
    let answer = Answer::read(response).await;
    assert_eq!(answer.text, format!("{RESULT}data: later\n\n"));
}

#[tokio::test(start_paused = true)]
async fn reading_the_answer_is_bounded_in_time_and_size() {
    let stage = Stage::set();
    let node = Node::with(&stage, "a", |layer| {
        layer
            .with_answer_deadline(Duration::from_secs(2))
            .with_body_limit(4096)
    })
    .await;
    // A result that never comes, and one behind more than is read: both are recorded, as a session whose
    // handshake was not seen.
    let chatter: &str = Box::leak(format!(": {}\n\n", "x".repeat(5000)).into_boxed_str());
    for (id, first) in [("slow", ": nothing yet\n\n"), ("large", chatter)] {
        let (sender, response) = stream();
        sender.send(first).unwrap();
        let response = std::sync::Mutex::new(Some(response));
        node.inner.script(move |_| {
            let mut response = response.lock().unwrap().take().unwrap();
            response
                .headers_mut()
                .insert("mcp-session-id", id.parse().unwrap());
            async move { response }
        });
        let response = node
            .guard
            .clone()
            .oneshot(post(None, INITIALIZE))
            .await
            .unwrap();
        assert_eq!(response.headers()["mcp-session-id"], id);
        sender.send(RESULT).unwrap();
        drop(sender);
        let answer = Answer::read(response).await;
        assert_eq!(answer.text, format!("{first}{RESULT}"));
        node.inner.unscript();
        assert_eq!(node.send(post(Some(id), CALL)).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_recorded_is_not_handed_out_and_is_closed() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    for fault in [
        Fault::Hangs,
        Fault::LosesReply,
        Fault::Fails(StoreErrorKind::Full),
        Fault::Fails(StoreErrorKind::Unavailable),
    ] {
        node.directory.set("register", fault);
        let refused = node.send(post(None, INITIALIZE)).await;
        assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
        assert_eq!(refused.json()["id"], 0);
        assert_eq!(refused.header("mcp-session-id"), None);
        let mut asked = Vec::new();
        eventually(|| {
            asked.extend(node.inner.take());
            asked.len() == 2
        })
        .await;
        assert_eq!(asked[1].method, Method::DELETE);
        let minted = asked[1].session.clone().unwrap();
        node.directory.heal();
        // Whoever guesses the id gets no answer from it.
        let guessed = node.send(post(Some(&minted), CALL)).await;
        assert_eq!(guessed.refusal(), (404, "session_not_found"));
        assert!(node.inner.take().is_empty());
    }
    assert_eq!(node.instance.figures().live_sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_exists_already_is_not_handed_out_again() {
    let stage = Stage::set();
    let (node, other) = (
        Node::start(&stage, "a").await,
        Node::start(&stage, "b").await,
    );
    let id = node.open().await;
    let minted = id.clone();
    other.inner.script(move |_| {
        let minted = minted.clone();
        async move { opening(&minted) }
    });
    let refused = other.send(post(None, INITIALIZE)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_no_request_could_carry_is_not_handed_out() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    for id in ["a,b", &"x".repeat(1025)] {
        let minted = id.to_owned();
        node.inner.script(move |_| {
            let minted = minted.clone();
            async move { opening(&minted) }
        });
        let refused = node.send(post(None, INITIALIZE)).await;
        assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    }
    assert_eq!(node.directory.take_calls("register"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_inner_service_opens_nothing() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let error = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no such version"}}"#;
    for status in [StatusCode::OK, StatusCode::BAD_REQUEST] {
        node.inner.script(move |_| async move {
            let mut response = respond(status, error);
            response
                .headers_mut()
                .insert("mcp-session-id", "half".parse().unwrap());
            response
        });
        let answer = node.send(post(None, INITIALIZE)).await;
        assert_eq!((answer.status, &*answer.text), (status.as_u16(), error));
        // Some clients adopt an id from any answer.
        assert_eq!(answer.header("mcp-session-id"), None);
        assert_eq!(answer.header("mcp-guard-reason"), None);
    }
    assert_eq!(node.directory.take_calls("register"), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_lease_nothing_is_opened() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    node.directory
        .set_all(Fault::Fails(StoreErrorKind::Unavailable));
    tokio::time::sleep(LEASE).await;
    let refused = node.send(post(None, INITIALIZE)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    assert!(node.inner.take().is_empty());
    node.directory.heal();
    node.instance.ready().await;
    node.open().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lapses_while_a_session_is_opened_opens_nothing() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let directory = node.directory.clone();
    node.inner.script(move |asked| {
        let (directory, opens) = (directory.clone(), asked.method == Method::POST);
        async move {
            if opens {
                directory.set("heartbeat", Fault::Hangs);
                tokio::time::sleep(LEASE).await;
                directory.heal();
            }
            opening("late")
        }
    });
    let refused = node.send(post(None, INITIALIZE)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    eventually(|| {
        node.inner
            .take()
            .iter()
            .any(|asked| asked.method == Method::DELETE)
    })
    .await;
    node.inner.unscript();
    node.instance.ready().await;
    assert_eq!(node.send(post(Some("late"), CALL)).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_its_session_is_recorded_leaves_nothing_behind() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    node.directory
        .set("register", Fault::Slow(Duration::from_millis(100)));
    let mut opening = Box::pin(node.guard.clone().oneshot(post(None, INITIALIZE)));
    // As far as the directory.
    while node.directory.take_calls("register") == 0 {
        assert!(opening.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(opening);
    eventually(|| node.directory.take_calls("terminate") == 1).await;
    eventually(|| {
        node.inner
            .take()
            .iter()
            .any(|asked| asked.method == Method::DELETE)
    })
    .await;
    assert_eq!(node.instance.figures().live_sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn an_initialize_that_opens_no_session_passes() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    node.inner
        .script(|_| async { respond(StatusCode::OK, r#"{"jsonrpc":"2.0","id":0,"result":{}}"#) });
    let answer = node.send(post(None, INITIALIZE)).await;
    assert_eq!(
        (answer.status, answer.header("mcp-session-id")),
        (200, None)
    );
    assert_eq!(node.directory.take_calls("register"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_the_inner_service_refuses_ends_nothing() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    for status in [
        StatusCode::METHOD_NOT_ALLOWED,
        StatusCode::NOT_FOUND,
        StatusCode::BAD_GATEWAY,
    ] {
        node.inner
            .script(move |_| async move { respond(status, Bytes::new()) });
        assert_eq!(node.send(delete(&id)).await.status, status.as_u16());
    }
    node.inner.unscript();
    assert_eq!(node.directory.take_calls("terminate"), 0);
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_told_only_when_it_is_recorded_and_serves_nothing_meanwhile() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    node.directory.set("terminate", Fault::Hangs);
    let refused = node.send(delete(&id)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    node.inner.take();
    let refused = node.send(post(Some(&id), CALL)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    assert!(node.inner.take().is_empty());
    node.directory.heal();
    // The heartbeat writes the tombstone that is owed.
    eventually(|| node.instance.figures().live_sessions == 0).await;
    let other = Node::start(&stage, "b").await;
    assert_eq!(other.send(post(Some(&id), CALL)).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_during_its_delete_has_ended_its_session() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    node.directory
        .set("terminate", Fault::Slow(Duration::from_millis(100)));
    let mut deleting = Box::pin(node.guard.clone().oneshot(delete(&id)));
    while node.directory.take_calls("terminate") == 0 {
        assert!(deleting.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(deleting);
    eventually(|| node.instance.figures().live_sessions == 0).await;
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn a_retiring_instance_opens_nothing_and_serves_what_it_has() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let gone = std::sync::Mutex::new(Some(gone));
    node.inner.script(move |_| {
        let gone = gone.lock().unwrap().take();
        async move {
            if let Some(gone) = gone {
                gone.await.unwrap();
            }
            respond(StatusCode::OK, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)
        }
    });
    let running = tokio::spawn(node.guard.clone().oneshot(post(Some(&id), CALL)));
    eventually(|| !node.inner.take().is_empty()).await;
    let retiring = tokio::spawn({
        let instance = node.instance.clone();
        async move { instance.retire().await }
    });
    eventually(|| node.instance.is_retiring()).await;
    assert!(!node.instance.is_ready());
    let refused = node.send(post(None, INITIALIZE)).await;
    assert_eq!(refused.refusal(), (503, "instance_retiring"));
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
    assert!(!retiring.is_finished());
    go.send(()).unwrap();
    assert_eq!(
        Answer::read(running.await.unwrap().unwrap()).await.status,
        200
    );
    let retirement = retiring.await.unwrap();
    assert_eq!(retirement.unfinished_calls(), 0);
    retirement.lease_ended().unwrap();
    // At once, and not after a lease.
    let other = Node::start(&stage, "b").await;
    assert_eq!(other.send(post(Some(&id), CALL)).await.refusal().0, 404);
    assert_eq!(node.send(post(Some(&id), CALL)).await.refusal().0, 404);
}
