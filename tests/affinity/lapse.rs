//! A lease that lapses while requests run and streams are open; a directory that forgets; sessions that are idle.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use mcp_session_guard::{
    affinity_guard::{AffinityGuardLayer, ResponseBody, SessionLost},
    instance::{Instance, Lost},
    session::Offer,
    store::{MemoryStore, StoreErrorKind},
};
use serde_json::json;
use tower::{Layer, ServiceExt};

use crate::{
    Node,
    support::{
        Answer, CALL, LEASE, Stage,
        directory::{Fault, Faulty},
        get,
        inner::{Inner, InnerBody, Tap, respond, stream},
        post,
    },
};

const DOWN: Fault = Fault::Fails(StoreErrorKind::Unavailable);

fn shared(layer: AffinityGuardLayer) -> AffinityGuardLayer {
    let offer = Offer::new(&json!({"tools": {}})).unwrap();
    layer.externalized().with_offer(offer)
}

/// While the inner service works the directory goes down for a lease, and then for `longer`.
fn lapses(node: &Node, longer: Duration) {
    let directory = node.directory.clone();
    node.inner.script(move |_| {
        let directory = directory.clone();
        async move {
            directory.set_all(DOWN);
            tokio::time::sleep(LEASE).await;
            tokio::spawn(async move {
                tokio::time::sleep(longer).await;
                directory.heal();
            });
            respond(
                StatusCode::OK,
                r#"{"jsonrpc":"2.0","id":7,"result":{"done":true}}"#,
            )
        }
    });
}

#[tokio::test(start_paused = true)]
async fn what_ran_when_the_lease_lapsed_has_an_unknown_outcome() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    lapses(&node, LEASE);
    let refused = node.send(post(Some(&id), CALL)).await;
    assert_eq!(refused.refusal(), (503, "outcome_unknown"));
    let json = refused.json();
    // Nobody read the request; its id is in the answer that is withheld.
    assert_eq!(json["id"], 7);
    assert_eq!(json["error"]["data"]["retryable"], false);
    assert_eq!(refused.header("retry-after"), None);
    // A stream has done nothing by being opened.
    tokio::time::sleep(LEASE).await;
    assert_eq!(
        node.send(get(&id)).await.refusal(),
        (503, "session_unconfirmed")
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_proven_again_in_time_is_answered() {
    let stage = Stage::set();
    let patient = |layer: AffinityGuardLayer| layer.with_store_deadline(LEASE);
    let node = Node::with(&stage, "a", patient).await;
    let id = node.open().await;
    lapses(&node, Duration::ZERO);
    let answer = node.send(post(Some(&id), CALL)).await;
    assert_eq!(
        (answer.status, &answer.json()["result"]["done"]),
        (200, &json!(true))
    );
}

/// A stream of a session, open.
async fn open_stream(node: &Node, id: &str) -> (Tap, ResponseBody<InnerBody>) {
    let (sender, response) = stream();
    let response = Mutex::new(Some(response));
    node.inner.script(move |_| {
        let response = response.lock().unwrap().take().unwrap();
        async move { response }
    });
    let response: Response<_> = node.guard.clone().oneshot(get(id)).await.unwrap();
    node.inner.unscript();
    (sender, response.into_body())
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_held_while_in_doubt_and_goes_on_when_proven() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    let (sender, mut body) = open_stream(&node, &id).await;
    sender.send("one").unwrap();
    assert_eq!(next(&mut body).await.unwrap(), "one");
    node.directory.set_all(DOWN);
    tokio::time::sleep(LEASE).await;
    sender.send("two").unwrap();
    for _ in 0..3 {
        assert!(next(&mut body).now_or_never().is_none());
        tokio::time::sleep(LEASE).await;
    }
    node.directory.heal();
    assert_eq!(next(&mut body).await.unwrap(), "two");
    drop(sender);
    assert!(body.frame().await.is_none());
}

async fn next(body: &mut ResponseBody<InnerBody>) -> Result<Bytes, String> {
    match body.frame().await {
        Some(Ok(frame)) => Ok(frame.into_data().expect("data")),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("ended".into()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_cut_when_its_session_is_lost_however_silent_it_is() {
    let stage = Stage::set();
    let old = Node::with(&stage, "a", shared).await;
    let new = Node::with(&stage, "b", shared).await;
    let id = old.open().await;
    let (silent, mut body) = open_stream(&old, &id).await;
    let (talking, mut other) = open_stream(&old, &id).await;
    let waiting = tokio::spawn(async move { body.frame().await });
    tokio::task::yield_now().await;
    old.directory.set_all(DOWN);
    tokio::time::sleep(LEASE).await;
    assert_eq!(new.send(post(Some(&id), CALL)).await.status, 200);
    talking.send("too late").unwrap();
    assert!(next(&mut other).now_or_never().is_none());
    old.directory.heal();
    let frame = waiting.await.unwrap();
    let error = frame.expect("an end that shows").unwrap_err();
    assert!(error.is::<SessionLost>());
    assert_eq!(next(&mut other).await.unwrap_err(), SessionLost.to_string());
    assert_eq!(next(&mut other).await.unwrap_err(), "ended");
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_restarts_empty_costs_no_session_and_no_false_404() {
    let stage = Stage::set();
    let (owner, node) = (
        Node::start(&stage, "a").await,
        Node::start(&stage, "b").await,
    );
    let id = owner.open().await;
    let buried = {
        let doomed = Node::start(&stage, "c").await;
        let id = doomed.open().await;
        doomed.crash();
        tokio::time::sleep(LEASE).await;
        assert_eq!(node.send(post(Some(&id), CALL)).await.status, 404);
        id
    };
    stage.store.lose_memory();
    assert_eq!(owner.send(post(Some(&id), CALL)).await.status, 200);
    for unknown in [&*id, "never-was"] {
        let refused = node.send(post(Some(unknown), CALL)).await;
        assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    }
    // A heartbeat later the owner has claimed what it owns, and the burier repeated its tombstone.
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(node.send(post(Some(&id), CALL)).await.refusal().0, 409);
    assert_eq!(node.send(post(Some(&buried), CALL)).await.refusal().0, 404);
    assert_eq!(
        node.send(post(Some("never-was"), CALL)).await.refusal().0,
        503
    );
    assert_eq!(owner.send(post(Some(&id), CALL)).await.status, 200);
    owner.open().await;
    tokio::time::sleep(LEASE).await;
    assert_eq!(
        node.send(post(Some("never-was"), CALL)).await.refusal().0,
        404
    );
    assert_eq!(owner.send(post(Some(&id), CALL)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_lapsed_and_a_directory_that_forgot_serve_again_after_the_recovery() {
    let stage = Stage::set();
    let owner = Node::start(&stage, "a").await;
    let id = owner.open().await;
    owner.directory.set_all(DOWN);
    tokio::time::sleep(LEASE).await;
    stage.store.lose_memory();
    owner.directory.heal();
    owner.instance.ready().await;
    let refused = owner.send(post(Some(&id), CALL)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    tokio::time::sleep(LEASE + LEASE / 2).await;
    assert_eq!(owner.send(post(Some(&id), CALL)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn what_the_directory_forgot_for_good_is_dropped_and_not_registered_again() {
    let stage = Stage::set();
    let lost = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lost);
    let builder = stage.builder("a").on_lost(move |_, _, why| {
        log.lock().unwrap().push(why);
        panic!("in the user's hook");
    });
    let owner = Node::built(&stage, builder, "a", |layer| layer).await;
    let id = owner.open().await;
    owner.directory.set_all(DOWN);
    stage.store.lose_memory();
    tokio::time::sleep(LEASE * 3).await;
    owner.directory.heal();
    owner.instance.ready().await;
    assert_eq!(
        owner.send(post(Some(&id), CALL)).await.refusal(),
        (404, "session_not_found")
    );
    assert_eq!(*lost.lock().unwrap(), [Lost::Absent]);
    // Whatever the hook did, the heartbeats go on.
    tokio::time::sleep(LEASE * 2).await;
    assert!(owner.instance.is_ready());
    assert_eq!(owner.directory.take_calls("register"), 1);
}

#[tokio::test(start_paused = true)]
async fn idle_sessions_end_and_busy_ones_do_not() {
    let stage = Stage::set();
    let limit = LEASE * 6;
    let lost = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lost);
    let builder = stage
        .builder("a")
        .with_idle_limit(limit)
        .on_lost(move |id, _, why| log.lock().unwrap().push((id.as_str().to_owned(), why)));
    let owner = Node::built(&stage, builder, "a", |layer| layer).await;
    let other = Node::start(&stage, "b").await;
    let (idle, busy, streaming) = (owner.open().await, owner.open().await, owner.open().await);
    let (sender, mut body) = open_stream(&owner, &streaming).await;
    for _ in 0..5 {
        tokio::time::sleep(limit / 3).await;
        assert_eq!(owner.send(post(Some(&busy), CALL)).await.status, 200);
    }
    assert_eq!(*lost.lock().unwrap(), [(idle.clone(), Lost::Idle)]);
    owner.inner.take();
    for node in [&owner, &other] {
        assert_eq!(node.send(post(Some(&idle), CALL)).await.refusal().0, 404);
        assert!(node.inner.take().is_empty());
    }
    sender.send("still here").unwrap();
    assert_eq!(next(&mut body).await.unwrap(), "still here");
    assert_eq!(
        other.send(post(Some(&streaming), CALL)).await.refusal().0,
        409
    );
    drop((sender, body));
    tokio::time::sleep(limit + LEASE).await;
    assert_eq!(
        other.send(post(Some(&streaming), CALL)).await.refusal().0,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn time_is_up_before_the_heartbeat_has_looked() {
    let stage = Stage::set();
    let limit = Duration::from_secs(1);
    let owner = Node::built(
        &stage,
        stage.builder("a").with_idle_limit(limit),
        "a",
        |l| l,
    )
    .await;
    let id = owner.open().await;
    tokio::time::sleep(limit).await;
    // A map entry alone is no proof once its time is up.
    assert_eq!(
        owner.send(post(Some(&id), CALL)).await.refusal(),
        (404, "session_not_found")
    );
    assert_eq!(owner.directory.take_calls("terminate"), 1);
    assert!(owner.inner.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn retiring_cuts_what_does_not_end_by_itself() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    let (sender, mut body) = open_stream(&node, &id).await;
    node.inner.script(|_| std::future::pending());
    let stuck = tokio::spawn(node.guard.clone().oneshot(post(Some(&id), CALL)));
    tokio::task::yield_now().await;
    let retirement = node.instance.retire_within(Duration::from_secs(5)).await;
    assert_eq!(retirement.unfinished_calls(), 1);
    assert_eq!(next(&mut body).await.unwrap_err(), SessionLost.to_string());
    drop(sender);
    stuck.abort();
    // A second time it is over already.
    assert_eq!(node.instance.retire().await.unfinished_calls(), 0);
    assert!(!node.instance.is_ready());
}

/// On the wall clock, since it is a real thread that must not be held up: no figure is asserted, only that the lease
/// is extended while the only runtime thread of the handlers does nothing else than block.
#[test]
fn a_handler_that_blocks_its_runtime_does_not_cost_the_lease() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let directory = Faulty::new(MemoryStore::new());
        let instance = Instance::builder("a")
            .with_lease(Duration::from_secs(2))
            .join(directory.clone())
            .unwrap();
        instance.ready().await;
        let guard = AffinityGuardLayer::new(instance).layer(Inner::new("a"));
        let opened = guard
            .clone()
            .oneshot(post(None, crate::support::INITIALIZE));
        let id = Answer::read(opened.await.unwrap())
            .await
            .session()
            .to_owned();
        let mut extended = 0;
        for _ in 0..3000 {
            std::thread::sleep(Duration::from_millis(10));
            extended += directory.take_calls("heartbeat");
            if extended >= 6 {
                break;
            }
        }
        assert!(extended >= 6, "{extended}");
        let answer = guard.oneshot(post(Some(&id), CALL)).await.unwrap();
        assert_eq!(answer.status(), 200);
    });
}
