//! Claims and a ledger that is slow, down or loses replies.

use std::time::Duration;

use mcp_session_guard::store::{StoreErrorKind, StoreErrorKind::Unavailable};

use crate::{
    LEASE, Node, call, is_replay, keyed, memory, settle,
    support::{Answer, directory::Fault, inner::stream},
    until,
};

/// A call that runs until its tap says so.
async fn running(node: &Node) -> (crate::support::inner::Tap, Answered) {
    let (tap, response) = stream();
    let response = std::sync::Mutex::new(Some(response));
    node.inner.script(move |_| {
        let response = response.lock().unwrap().take().expect("asked once");
        async move { response }
    });
    let answered = node.respond(keyed("k", call(1))).await;
    (tap, answered)
}

type Answered = http::Response<
    mcp_session_guard::idempotency_key::ResponseBody<crate::support::inner::InnerBody>,
>;

const PAID: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"paid":5}}"#;

#[tokio::test(start_paused = true)]
async fn a_claim_is_renewed_for_as_long_as_its_call_runs() {
    let store = memory();
    let (node, other) = (Node::with(&store, |l| l), Node::with(&store, |l| l));
    let (tap, answered) = running(&node).await;
    for _ in 0..20 {
        tokio::time::sleep(LEASE / 2).await;
        let refused = other.call("k", 2).await;
        assert_eq!(refused.refusal(), (409, "idempotency_key_in_progress"));
    }
    tap.event("i", PAID);
    drop(tap);
    Answer::read(answered).await;
    assert!(is_replay(&other.call("k", 3).await));
    // Nobody renews what is over.
    node.ledger.take_calls("renew");
    tokio::time::sleep(LEASE * 10).await;
    assert_eq!(node.ledger.take_calls("renew"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_keeps_its_claim() {
    // Nothing polls the body, as when a socket is full.
    let node = Node::start();
    let (_tap, _answered) = running(&node).await;
    tokio::time::sleep(LEASE * 5).await;
    let refused = node.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_key_in_progress"));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_after_a_lapse_is_recorded_if_nobody_claimed_the_key() {
    let store = memory();
    let (node, other) = (Node::with(&store, |l| l), Node::with(&store, |l| l));
    node.ledger.set("renew", Fault::Fails(Unavailable));
    let (tap, answered) = running(&node).await;
    tokio::time::sleep(LEASE * 2).await;
    // It runs on; nobody can tell from outside, and nobody runs it again.
    let refused = other.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
    tap.event("i", PAID);
    drop(tap);
    Answer::read(answered).await;
    assert!(is_replay(&other.call("k", 3).await));
    assert_eq!(other.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_begin_whose_reply_is_lost_is_refused_and_given_back() {
    let node = Node::start();
    node.ledger.set("begin", Fault::LosesReply);
    let refused = node.call("k", 1).await;
    assert_eq!(refused.refusal(), (503, "idempotency_unconfirmed"));
    node.ledger.heal();
    // The claim was taken, and nothing ran under it: the next attempt must not be told otherwise.
    until("given back", || node.ledger.take_calls("release") > 0).await;
    settle().await;
    assert_eq!(node.call("k", 2).await.status, 200);
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_may_have_happened_is_given_back_until_that_is_acknowledged() {
    let node = Node::start();
    node.ledger.set("begin", Fault::LosesReply);
    node.ledger.set("release", Fault::Fails(Unavailable));
    assert_eq!(node.call("k", 1).await.status, 503);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let tries = node.ledger.take_calls("release");
    assert!((3..20).contains(&tries), "{tries}");
    node.ledger.heal();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(node.call("k", 2).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_comes_back_within_the_deadline_is_asked_again_with_the_same_token() {
    let node = Node::start();
    node.ledger.set("begin", Fault::Fails(Unavailable));
    let sent = tokio::spawn({
        let node = node.clone();
        async move { node.respond(keyed("k", call(1))).await.status() }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    node.ledger.heal();
    assert_eq!(sent.await.unwrap(), 200);
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn when_the_outcome_cannot_be_recorded_the_client_is_answered_and_recording_goes_on() {
    let node = Node::start();
    for fault in [
        Fault::Fails(Unavailable),
        Fault::Hangs,
        Fault::Fails(StoreErrorKind::Full),
    ] {
        let key = format!("{fault:?}").replace(['(', ')'], "");
        node.ledger.set("complete", fault);
        let first = node.call(&key, 1).await;
        assert_eq!((first.status, is_replay(&first)), (200, false));
        // For longer than the lease: it is renewed as if it ran.
        tokio::time::sleep(LEASE * 3).await;
        let refused = node.call(&key, 2).await;
        assert_eq!(refused.refusal(), (409, "idempotency_key_in_progress"));
        node.ledger.heal();
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(is_replay(&node.call(&key, 3).await));
        assert_eq!(node.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_reply_is_lost_is_recorded_once() {
    let node = Node::start();
    node.ledger.set("complete", Fault::LosesReply);
    assert_eq!(node.call("k", 1).await.status, 200);
    node.ledger.heal();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(is_replay(&node.call("k", 2).await));
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_ledger_holds_the_answer_back_until_it_has_it() {
    let node = Node::start();
    node.ledger
        .set("complete", Fault::Slow(Duration::from_millis(100)));
    let sent = tokio::spawn({
        let node = node.clone();
        async move { node.respond(keyed("k", call(1))).await.status() }
    });
    tokio::time::sleep(Duration::from_millis(99)).await;
    assert!(!sent.is_finished());
    assert_eq!(sent.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_claim_survives_a_loss_of_memory_while_it_runs() {
    let node = Node::start();
    let (tap, answered) = running(&node).await;
    node.ledger.store.lose_memory();
    // Not known yet, and so not fresh; then its renewal says that it runs.
    let refused = node.call("k", 2).await;
    assert_eq!(refused.refusal(), (503, "idempotency_unconfirmed"));
    tokio::time::sleep(LEASE / 2).await;
    let refused = node.call("k", 3).await;
    assert_eq!(refused.refusal(), (409, "idempotency_key_in_progress"));
    tap.event("i", PAID);
    drop(tap);
    Answer::read(answered).await;
    assert!(is_replay(&node.call("k", 4).await));
    assert_eq!(node.runs(), 1);
}
