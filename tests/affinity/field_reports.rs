//! Public bug reports about other servers, as inputs to this layer. Each comment names the report.

use http::{HeaderValue, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use mcp_session_guard::{affinity_guard::AffinityGuardLayer, store::StoreErrorKind};
use tower::{Layer, ServiceExt};

use crate::{
    Node,
    support::{
        Answer, CALL, INITIALIZE, LEASE, Stage, delete,
        directory::Fault,
        get,
        inner::{respond, stream},
        post,
    },
};

// IBM/mcp-context-forge#5485
#[tokio::test(start_paused = true)]
async fn a_killed_owners_session_is_refused_fast_and_gone_only_when_that_is_proven() {
    let stage = Stage::set();
    let (owner, node) = (
        Node::start(&stage, "a").await,
        Node::start(&stage, "b").await,
    );
    let id = owner.open().await;
    owner.crash();
    let mut answers = Vec::new();
    for _ in 0..LEASE.as_secs() {
        let before = tokio::time::Instant::now();
        answers.push(node.send(post(Some(&id), CALL)).await.status);
        assert!(before.elapsed().as_millis() <= 250);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    answers.push(node.send(post(Some(&id), CALL)).await.status);
    assert_eq!(answers.iter().filter(|status| **status == 404).count(), 1);
    assert_eq!(answers.last(), Some(&404));
    assert!(node.inner.take().is_empty());
}

// IBM/mcp-context-forge#5485, the other half
#[tokio::test(start_paused = true)]
async fn a_stalled_owner_that_wakes_up_fences_itself() {
    let stage = Stage::set();
    let (owner, node) = (
        Node::start(&stage, "a").await,
        Node::start(&stage, "b").await,
    );
    let id = owner.open().await;
    // Its heartbeats stand still and its clock goes on: the first thing it does is serve a request.
    owner.directory.set_all(Fault::Hangs);
    tokio::time::sleep(LEASE).await;
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 404);
    let refused = owner.send(post(Some(&id), CALL)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    owner.directory.heal();
    owner.instance.ready().await;
    assert_eq!(owner.send(post(Some(&id), CALL)).await.status, 404);
    assert!(owner.inner.take().is_empty());
}

// modelcontextprotocol/rust-sdk#1244
#[tokio::test(start_paused = true)]
async fn an_id_in_the_table_is_no_proof_once_its_time_is_up() {
    let stage = Stage::set();
    let node = Node::built(
        &stage,
        stage.builder("a").with_idle_limit(LEASE),
        "a",
        |l| l,
    )
    .await;
    let id = node.open().await;
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(
        node.send(post(Some(&id), CALL)).await.refusal(),
        (404, "session_not_found")
    );
    let other = Node::start(&stage, "b").await;
    assert_eq!(other.send(post(Some(&id), CALL)).await.refusal().0, 404);
    assert_eq!(other.directory.take_calls("bury"), 0);
    assert_eq!(node.directory.take_calls("terminate"), 1);
}

// mcp-hangar/mcp-hangar#877
#[tokio::test(start_paused = true)]
async fn a_delete_elsewhere_is_guarded_and_ends_nothing() {
    let stage = Stage::set();
    let (owner, node) = (
        Node::start(&stage, "a").await,
        Node::start(&stage, "b").await,
    );
    let id = owner.open().await;
    assert_eq!(
        node.send(delete(&id)).await.refusal(),
        (409, "session_reassigned")
    );
    assert_eq!(owner.send(post(Some(&id), CALL)).await.status, 200);
}

// bcurts/agentchattr#80
#[tokio::test(start_paused = true)]
async fn two_ids_in_one_request_are_malformed_and_nobody_is_asked() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    let twice = |first: &str, second: &str| {
        let mut request = post(Some(first), CALL);
        let second = HeaderValue::from_str(second).unwrap();
        request.headers_mut().append("mcp-session-id", second);
        request
    };
    for request in [
        twice(&id, "other"),
        twice("other", &id),
        post(Some(&format!("{id},other")), CALL),
        post(Some(&format!("{id}, {id}")), CALL),
        post(Some(&format!("{id},")), CALL),
    ] {
        let refused = node.send(request).await;
        assert_eq!(refused.refusal(), (400, "session_malformed"));
        assert_eq!(refused.json()["id"], 7);
    }
    assert_eq!(node.directory.take_calls("lookup"), 0);
    // The same value twice says one thing.
    assert_eq!(node.send(twice(&id, &id)).await.status, 200);
}

// rust-mcp-stack/rust-mcp-sdk#169
#[tokio::test(start_paused = true)]
async fn a_malformed_id_is_refused_before_anybody_is_asked_and_never_trimmed() {
    let stage = Stage::set();
    let node = Node::with(&stage, "a", |layer| layer.with_max_session_id_len(128)).await;
    let id = node.open().await;
    let too_long = "x".repeat(129);
    let far_too_long = "x".repeat(10_000);
    let padded = format!("{id} ");
    for malformed in [
        b"".as_slice(),
        b" ",
        b"a\tb",
        b"a b",
        padded.as_bytes(),
        "sitzung-\u{e4}".as_bytes(),
        b"\xff\xfe",
        too_long.as_bytes(),
        far_too_long.as_bytes(),
    ] {
        for method in [Method::POST, Method::GET, Method::DELETE] {
            let mut request = crate::support::request(method, None, CALL);
            let value = HeaderValue::from_bytes(malformed).unwrap();
            request.headers_mut().insert("mcp-session-id", value);
            assert_eq!(
                node.send(request).await.refusal(),
                (400, "session_malformed")
            );
        }
    }
    assert_eq!(node.directory.take_calls("lookup"), 0);
    assert!(node.inner.take().is_empty());
    assert_eq!(
        node.send(post(Some(&"x".repeat(128)), CALL)).await.status,
        404
    );
}

// envoyproxy/ai-gateway#1560
#[tokio::test(start_paused = true)]
async fn a_gateways_long_id_is_opaque() {
    let stage = Stage::set();
    let node = Node::with(&stage, "a", |layer| layer.with_max_session_id_len(4096)).await;
    for length in [600, 3000] {
        let id = format!("{}+/=", "Qm9+/YmFzZTY0".repeat(length / 13));
        let minted = id.clone();
        node.inner.script(move |_| {
            let minted = minted.clone();
            async move { crate::support::inner::opening(&minted) }
        });
        assert_eq!(node.send(post(None, INITIALIZE)).await.session(), id);
        node.inner.unscript();
        assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
        let other = id.replace("Qm9", "qm9");
        assert_eq!(node.send(post(Some(&other), CALL)).await.status, 404);
    }
}

// upstash/context7#2655
#[tokio::test(start_paused = true)]
async fn an_id_that_was_never_issued_is_not_told_gone_by_a_store_that_is_down() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    node.directory
        .set_all(Fault::Fails(StoreErrorKind::Unavailable));
    let refused = node.send(post(Some("never-issued"), CALL)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    assert!(node.inner.take().is_empty());
}

// LanternOps/breeze#4256 (the other principal: `verdicts`)
#[tokio::test(start_paused = true)]
async fn steady_traffic_slides_the_idle_limit() {
    let stage = Stage::set();
    let node = Node::built(
        &stage,
        stage.builder("a").with_idle_limit(LEASE),
        "a",
        |l| l,
    )
    .await;
    let id = node.open().await;
    for _ in 0..20 {
        tokio::time::sleep(LEASE * 9 / 10).await;
        assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
    }
}

// joshrotenberg/tower-mcp#782
#[tokio::test(start_paused = true)]
async fn an_unknown_id_is_never_adopted() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    for _ in 0..2 {
        assert_eq!(
            node.send(post(Some("chosen-by-me"), CALL)).await.status,
            404
        );
    }
    let opened = node.send(post(Some("chosen-by-me"), INITIALIZE)).await;
    assert_ne!(opened.session(), "chosen-by-me");
    assert_eq!(
        node.send(post(Some("chosen-by-me"), CALL)).await.status,
        404
    );
    assert_eq!(node.instance.figures().live_sessions, 1);
}

// modelcontextprotocol/java-sdk#952
#[tokio::test(start_paused = true)]
async fn a_stream_that_dies_does_not_take_its_session_along() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    let (sender, response) = stream();
    let response = std::sync::Mutex::new(Some(response));
    node.inner.script(move |_| {
        let response = response.lock().unwrap().take().unwrap();
        async move { response }
    });
    sender.send("data: 1\n\n").unwrap();
    let mut body = node
        .guard
        .clone()
        .oneshot(get(&id))
        .await
        .unwrap()
        .into_body();
    assert!(body.frame().await.is_some());
    drop(body);
    node.inner.unscript();
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
    assert_eq!(
        node.instance
            .retire_within(std::time::Duration::ZERO)
            .await
            .unfinished_calls(),
        0
    );
}

// agentgateway/agentgateway#3622
#[tokio::test(start_paused = true)]
async fn the_inner_services_own_session_error_is_its_own() {
    let stage = Stage::set();
    let (node, other) = (
        Node::start(&stage, "a").await,
        Node::start(&stage, "b").await,
    );
    let id = node.open().await;
    let error =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
    node.inner
        .script(move |_| async move { respond(StatusCode::NOT_FOUND, error) });
    let answer = node.send(post(Some(&id), CALL)).await;
    assert_eq!((answer.status, &*answer.text), (404, error));
    assert_eq!(answer.header("mcp-guard-reason"), None);
    node.inner.unscript();
    assert_eq!(node.instance.figures().sessions_not_found, 0);
    assert_eq!(other.send(post(Some(&id), CALL)).await.refusal().0, 409);
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
}

// modelcontextprotocol/typescript-sdk#2670
#[tokio::test(start_paused = true)]
async fn an_initialize_in_a_batch_is_an_initialize() {
    let stage = Stage::set();
    let node = Node::with(&stage, "a", |layer| layer.strict()).await;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for batch in [
        format!("[{CALL},{INITIALIZE},{note}]"),
        format!("[{INITIALIZE}]"),
    ] {
        let answer = node.send(post(Some("stale"), batch.clone())).await;
        assert_eq!(answer.status, 200);
        assert_eq!(node.inner.take()[0].session, None);
        assert_eq!(node.directory.take_calls("register"), 1);
        node.directory
            .set_all(Fault::Fails(StoreErrorKind::Unavailable));
        let refused = node.send(post(None, batch)).await;
        assert_eq!(refused.status, 503);
        let errors = refused.json();
        let ids = errors.as_array().unwrap().iter().map(|error| &error["id"]);
        assert!(ids.eq(if errors.as_array().unwrap().len() == 2 {
            &[7, 0][..]
        } else {
            &[0][..]
        }));
        node.directory.heal();
        node.directory.take_calls("register");
        node.inner.take();
    }
}

// tower-rs/tower-http#610
#[tokio::test(start_paused = true)]
async fn a_chunked_body_over_the_limit_is_too_large() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let guard = AffinityGuardLayer::new(node.instance.clone())
        .with_body_limit(1000)
        .layer(node.inner.clone());
    let chunk = || Ok::<_, std::convert::Infallible>(Frame::data("x".repeat(100).into()));
    for session in [None, Some("never-was")] {
        let chunks = futures_util::stream::iter(std::iter::repeat_with(chunk).take(1_000_000));
        let mut request = Request::post("/mcp");
        if let Some(session) = session {
            request = request.header("mcp-session-id", session);
        }
        let request = request.body(StreamBody::new(chunks)).unwrap();
        let response = guard.clone().oneshot(request).await.unwrap();
        assert_eq!(
            Answer::read(response).await.refusal(),
            (413, "request_too_large")
        );
    }
    assert!(node.inner.take().is_empty());
}
