//! Public reports, each as an input and the outcome that is owed.

use std::time::Duration;

use serde_json::json;

use crate::{
    LEASE, Node, answer, by_user, call, call_of, is_replay, keyed, memory, settle,
    support::{
        INITIALIZE,
        directory::Fault,
        inner::{respond, stream},
        post,
    },
    with_header,
};
use mcp_session_guard::store::StoreErrorKind;

// modelcontextprotocol/python-sdk#3060
#[tokio::test(start_paused = true)]
async fn calls_that_share_a_json_rpc_id_are_no_duplicates() {
    let node = Node::start();
    node.inner.script(|asked| {
        let body: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
        let answer = answer(&asked.body, &body["params"]["name"]);
        async move { answer }
    });
    let (one, other, text) = (
        post(Some("s"), call_of("a", &json!(1))),
        post(Some("s"), call_of("b", &json!(1))),
        post(Some("s"), call_of("a", &json!("1"))),
    );
    let (one, other, text) = tokio::join!(node.send(one), node.send(other), node.send(text));
    assert_eq!(one.json()["result"], "a");
    assert_eq!(other.json()["result"], "b");
    assert_eq!(
        (&text.json()["id"], &text.json()["result"]),
        (&json!("1"), &json!("a"))
    );
    assert_eq!(node.runs(), 3);
}

// idempot-dev/idempot-js#182
#[tokio::test(start_paused = true)]
async fn one_key_at_two_instances_at_once_runs_once() {
    let store = memory();
    let nodes = [Node::with(&store, |l| l), Node::with(&store, |l| l)];
    for node in &nodes {
        node.inner.script(|asked| {
            let answer = answer(&asked.body, &json!({}));
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                answer
            }
        });
    }
    let (one, other) = tokio::join!(nodes[0].call("k", 1), nodes[1].call("k", 2));
    assert_eq!(one.status, 200);
    assert_eq!(other.refusal(), (409, "idempotency_key_in_progress"));
    assert_eq!(nodes[0].runs() + nodes[1].runs(), 1);
}

// first-tree-ai/opentag#652
#[tokio::test(start_paused = true)]
async fn a_retry_under_a_new_id_is_answered_under_that_id_with_its_type() {
    let node = Node::start();
    node.call("k", 1).await;
    for id in [json!("1"), json!(-5), json!("a\"b"), json!(0)] {
        let again = node.send(keyed("k", call_of("pay", &id))).await;
        assert!(is_replay(&again));
        assert_eq!(again.json()["id"], id);
    }
    assert_eq!(node.runs(), 1);
}

// KanishJebaMathewM/Truxify#4623
#[tokio::test(start_paused = true)]
async fn an_instance_that_outlives_its_lease_completes_by_compare_and_set() {
    let store = memory();
    let (a, b) = (Node::with(&store, |l| l), Node::with(&store, |l| l));
    a.ledger
        .set("renew", Fault::Fails(StoreErrorKind::Unavailable));
    let (tap, response) = stream();
    let response = std::sync::Mutex::new(Some(response));
    a.inner.script(move |_| {
        let response = response.lock().unwrap().take().expect("asked once");
        async move { response }
    });
    let running = a.respond(keyed("k", call(1))).await;
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    let refused = b.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
    tap.event("1", r#"{"jsonrpc":"2.0","id":1,"result":{"paid":5}}"#);
    drop(tap);
    crate::support::Answer::read(running).await;
    assert!(is_replay(&b.call("k", 3).await));
    assert_eq!(b.runs(), 0);
}

// nensii21/devlink#1195
#[tokio::test(start_paused = true)]
async fn arguments_and_tool_are_the_keys_own_and_a_principal_has_its_own_keys() {
    let node = Node::with(&memory(), by_user);
    let of = |user: &str, body: String| with_header(keyed("k", body), "x-user", user);
    assert_eq!(node.send(of("alice", call(1))).await.status, 200);
    for body in [call(2).replace('5', "7"), call_of("refund", &json!(2))] {
        let refused = node.send(of("alice", body)).await;
        assert_eq!(refused.refusal(), (422, "idempotency_key_conflict"));
    }
    let bob = node.send(of("bob", call(3).replace('5', "7"))).await;
    assert_eq!((bob.status, is_replay(&bob)), (200, false));
}

// golang/go#19943
#[tokio::test(start_paused = true)]
async fn a_client_that_sends_again_because_there_is_a_key_runs_nothing_while_the_ledger_is_down() {
    let node = Node::start();
    node.ledger
        .set_all(Fault::Fails(StoreErrorKind::Unavailable));
    for id in 1..5 {
        let refused = node.call("k", id).await;
        assert_eq!(refused.refusal(), (503, "idempotency_unconfirmed"));
    }
    assert_eq!(node.runs(), 0);
}

// theoriclabs/LeanDB#64
#[tokio::test(start_paused = true)]
async fn a_keyed_call_without_an_id_is_never_recorded_and_one_with_null_is_refused() {
    let node = Node::start();
    node.inner
        .script(|_| async { respond(http::StatusCode::ACCEPTED, "") });
    let without = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"pay","arguments":{"amount":5}}}"#;
    assert_eq!(node.send(keyed("k", without)).await.status, 202);
    assert_eq!(node.ledger.take_calls("begin"), 0);
    node.runs();
    let null = node.send(keyed("k", call_of("pay", &json!(null)))).await;
    assert_eq!(null.refusal(), (400, "idempotency_key_malformed"));
    assert_eq!(node.runs(), 0);
}

// modelcontextprotocol/typescript-sdk#2670
#[tokio::test(start_paused = true)]
async fn a_batch_is_no_way_round() {
    let node = Node::start();
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for body in [
        format!("[{},{INITIALIZE},{note}]", call(1)),
        format!("[{}]", call(1)),
        format!("[{note},{}]", call(1)),
    ] {
        let refused = node.send(keyed("k", body)).await;
        assert_eq!(refused.status, 400);
    }
    assert_eq!(node.runs(), 0);
}

// pathosDev/actor-ts#984
#[tokio::test(start_paused = true)]
async fn lease_and_record_are_two_things() {
    let node = Node::start();
    // Longer than any lease after it ended, the outcome is there.
    node.call("done", 1).await;
    tokio::time::sleep(LEASE * 100).await;
    assert!(is_replay(&node.call("done", 2).await));
    // Killed in the middle, it is unknown and stays so.
    node.inner
        .script(|_| async { std::future::pending().await });
    node.ledger.set("renew", Fault::Hangs);
    let running = tokio::spawn({
        let node = node.clone();
        async move { drop(node.respond(keyed("killed", call(1))).await) }
    });
    settle().await;
    node.ledger.set("complete", Fault::Hangs);
    running.abort();
    tokio::time::sleep(LEASE * 100).await;
    let refused = node.call("killed", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
}

// modelcontextprotocol/rust-sdk#967
#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_has_cancelled_nothing() {
    let node = Node::start();
    node.inner.script(|asked| {
        let answer = answer(&asked.body, &json!({"slow": true}));
        async move {
            tokio::time::sleep(Duration::from_secs(20)).await;
            answer
        }
    });
    let gone = tokio::time::timeout(Duration::from_secs(5), node.respond(keyed("k", call(1))));
    assert!(gone.await.is_err());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let again = node.call("k", 2).await;
    assert!(is_replay(&again));
    assert_eq!(again.json()["result"], json!({"slow": true}));
}
