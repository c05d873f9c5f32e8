//! Where keys stand, whose they are, and what is no key.

use serde_json::json;

use crate::{
    Node, by_user, call, is_replay, keyed, memory, modern,
    support::{INITIALIZE, post},
    with_header,
};

fn with_params(id: u64, extra: &serde_json::Value) -> String {
    let mut params = json!({"name": "pay", "arguments": {"amount": 5}});
    for (name, value) in extra.as_object().unwrap() {
        params[name] = value.clone();
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

#[tokio::test(start_paused = true)]
async fn one_key_in_three_places() {
    let node = Node::start();
    assert_eq!(node.call("\"k\"", 1).await.status, 200);
    let meta = json!({"_meta": {"mcp-session-guard/idempotencyKey": "k"}});
    for retry in [
        keyed("k", call(2)),
        post(Some("s"), with_params(3, &meta)),
        post(Some("s"), with_params(4, &json!({"idempotencyKey": "k"}))),
        keyed("k", with_params(5, &meta)),
    ] {
        assert!(is_replay(&node.send(retry).await));
    }
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_key_or_two_is_refused() {
    let node = Node::start();
    let long = "k".repeat(256);
    let requests = [
        keyed("", call(1)),
        keyed("\"\"", call(1)),
        keyed("a, b", call(1)),
        keyed("a b", call(1)),
        keyed(&long, call(1)),
        post(Some("s"), with_params(1, &json!({"idempotencyKey": 7}))),
        post(Some("s"), with_params(1, &json!({"idempotencyKey": null}))),
        post(Some("s"), with_params(1, &json!({"idempotencyKey": long}))),
        keyed("a", with_params(1, &json!({"idempotencyKey": "b"}))),
        post(
            Some("s"),
            with_params(
                1,
                &json!({"idempotencyKey": "a", "_meta": {"mcp-session-guard/idempotencyKey": "b"}}),
            ),
        ),
    ];
    for request in requests {
        let shown = format!("{request:?}");
        let refused = node.send(request).await;
        assert_eq!(
            refused.refusal(),
            (400, "idempotency_key_malformed"),
            "{shown}"
        );
        assert_eq!(refused.json()["id"], 1);
    }
    let mut twice = keyed("a", call(1));
    twice
        .headers_mut()
        .append("idempotency-key", "b".parse().unwrap());
    assert_eq!(node.send(twice).await.status, 400);
    assert_eq!(node.runs(), 0);
    assert_eq!(node.ledger.take_calls("begin"), 0);
}

#[tokio::test(start_paused = true)]
async fn where_a_key_is_required_a_call_without_one_is_refused() {
    let node = Node::with(&memory(), |layer| layer.required());
    for body in [call(1), format!("[{}]", call(1))] {
        let refused = node.send(post(Some("s"), body)).await;
        assert!(refused.text.contains("idempotency_key_required"));
        assert_eq!(refused.status, 400);
    }
    assert_eq!(node.runs(), 0);
    for other in [
        INITIALIZE,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
    ] {
        assert_eq!(node.send(post(Some("s"), other)).await.status, 200);
    }
    assert_eq!(node.call("k", 2).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn on_anything_but_a_call_a_key_is_ignored() {
    let node = Node::start();
    for body in [
        INITIALIZE,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}"#,
    ] {
        for _ in 0..2 {
            let answer = node.send(keyed("k", body)).await;
            assert!(answer.status == 200 && !is_replay(&answer));
        }
    }
    assert_eq!(node.ledger.take_calls("begin"), 0);
    assert_eq!(node.runs(), 6);
}

#[tokio::test(start_paused = true)]
async fn keys_in_a_batch_are_refused_however_it_is_written() {
    let node = Node::start();
    let list = r#"{"jsonrpc":"2.0","id":8,"method":"tools/list"}"#;
    let in_body = with_params(9, &json!({"idempotencyKey": "k"}));
    for (request, ids) in [
        (keyed("k", format!("[{}]", call(1))), vec![1]),
        (keyed("k", format!("[{list},{}]", call(1))), vec![8, 1]),
        (
            post(Some("s"), format!("[{},{in_body}]", call(1))),
            vec![1, 9],
        ),
    ] {
        let refused = node.send(request).await;
        assert_eq!(refused.status, 400);
        assert_eq!(
            refused.header("mcp-guard-reason"),
            Some("idempotency_key_malformed")
        );
        let errors = refused.json();
        let errors = errors.as_array().expect("a batch");
        let told: Vec<_> = errors
            .iter()
            .map(|error| error["id"].as_u64().unwrap())
            .collect();
        assert_eq!(told, ids);
        for error in errors {
            let detail = error["error"]["data"]["detail"].as_str().unwrap();
            assert!(detail.contains("batch"), "{detail}");
        }
    }
    assert_eq!(node.runs(), 0);
    // Without a key it is the inner service's business.
    node.inner
        .script(|_| async { crate::support::inner::respond(http::StatusCode::OK, "[]") });
    assert_eq!(
        node.send(post(Some("s"), format!("[{}]", call(1))))
            .await
            .status,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_is_its_principals_in_every_session() {
    let node = Node::with(&memory(), |layer| by_user(layer).free_of_session("pay"));
    let of = |session, user: &str, id| {
        let request = with_header(post(Some(session), call(id)), "idempotency-key", "k");
        with_header(request, "x-user", user)
    };
    assert!(!is_replay(&node.send(of("s-1", "alice", 1)).await));
    assert!(is_replay(&node.send(of("s-2", "alice", 2)).await));
    assert!(!is_replay(&node.send(of("s-1", "bob", 3)).await));
    assert_eq!(node.runs(), 2);
    // One who is not known has the session's.
    let unknown = |session, id| with_header(post(Some(session), call(id)), "idempotency-key", "k");
    assert!(!is_replay(&node.send(unknown("s-1", 4)).await));
    assert!(is_replay(&node.send(unknown("s-1", 5)).await));
    assert!(!is_replay(&node.send(unknown("s-2", 6)).await));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_nobodys_is_refused() {
    let node = Node::start();
    for request in [
        modern("k", call(1)),
        with_header(post(None, call(1)), "idempotency-key", "k"),
        // A session header means nothing in the era without sessions.
        with_header(modern("k", call(1)), "mcp-session-id", "s"),
    ] {
        let refused = node.send(request).await;
        assert_eq!(refused.refusal(), (400, "idempotency_key_malformed"));
    }
    assert_eq!(node.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn servers_that_share_a_ledger_may_keep_their_keys_apart() {
    let store = memory();
    let one = Node::with(&store, |layer| layer.with_namespace("one"));
    let other = Node::with(&store, |layer| layer.with_namespace("other"));
    for node in [&one, &other] {
        assert!(!is_replay(&node.call("k", 1).await));
        assert!(is_replay(&node.call("k", 2).await));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_may_be_derived_from_session_and_id() {
    let node = Node::with(&memory(), |layer| layer.derive_from_request_id());
    assert!(!is_replay(&node.send(post(Some("s"), call(1))).await));
    assert!(is_replay(&node.send(post(Some("s"), call(1))).await));
    for other in [
        post(Some("s"), call(2)),
        post(Some("other"), call(1)),
        post(Some("s"), call(1).replace(r#""id":1"#, r#""id":"1""#)),
    ] {
        assert!(!is_replay(&node.send(other).await));
    }
    // A key of the client's own comes first, and none that it could choose is the same.
    assert!(!is_replay(&node.send(keyed("1", call(1))).await));
    let refused = node.send(post(Some("s"), call(1).replace('5', "6"))).await;
    assert_eq!(refused.refusal(), (422, "idempotency_key_conflict"));
    assert_eq!(node.send(post(None, call(1))).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn the_service_finds_a_key_for_what_it_calls_in_turn() {
    let node = Node::start();
    node.call("k", 1).await;
    node.call("l", 2).await;
    node.send(post(Some("s"), call(3))).await;
    let asked = node.inner.take();
    let [one, other] = [0, 1].map(|at| asked[at].downstream.expect("a key"));
    assert_eq!((one.attempt(), one.key().len()), (1, 32));
    assert_ne!(one.key(), other.key());
    assert!(!one.key().contains('k'));
    assert_eq!(asked[2].downstream, None);
}
