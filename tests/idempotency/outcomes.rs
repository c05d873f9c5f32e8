//! What a retry is told, row by row.

use http::StatusCode;
use serde_json::json;

use crate::{
    LEASE, Node, answer, by_user, call, call_of, is_replay, keyed, memory, modern,
    support::{
        CALL,
        directory::Fault,
        inner::{respond, stream},
        post,
    },
    with_header,
};
use mcp_session_guard::store::StoreErrorKind;

#[tokio::test(start_paused = true)]
async fn a_fresh_call_runs_and_a_retry_gets_its_outcome() {
    let node = Node::start();
    let first = node.call("k", 1).await;
    assert_eq!((first.status, is_replay(&first)), (200, false));
    assert_eq!(first.json()["result"], json!({"done": true}));
    for id in 2..5 {
        let again = node.call("k", id).await;
        assert_eq!((again.status, is_replay(&again)), (200, true));
        assert_eq!(again.json()["id"], json!(id));
        assert_eq!(again.json()["result"], json!({"done": true}));
        assert_eq!(again.header("cache-control"), Some("no-store"));
    }
    assert_eq!(node.runs(), 1);
    assert_eq!(node.call("other", 9).await.status, 200);
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn errors_are_outcomes_too() {
    let node = Node::start();
    node.inner.script(|_| async {
        let body =
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such account"}}"#;
        respond(StatusCode::OK, body)
    });
    let first = node.call("k", 1).await;
    let again = node.call("k", 2).await;
    assert!(is_replay(&again));
    assert_eq!(again.json()["error"], first.json()["error"]);
    assert_eq!(again.json()["id"], 2);
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_is_in_progress_for_everybody_else() {
    let store = memory();
    let (one, other) = (Node::with(&store, |l| l), Node::with(&store, |l| l));
    let (tap, response) = stream();
    let response = std::sync::Mutex::new(Some(response));
    one.inner.script(move |_| {
        let response = response.lock().unwrap().take().expect("asked once");
        async move { response }
    });
    let running = one.respond(keyed("k", call(1))).await;
    for node in [&one, &other] {
        let refused = node.call("k", 2).await;
        assert_eq!(refused.refusal(), (409, "idempotency_key_in_progress"));
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused.json()["id"], 2);
        assert_eq!(refused.json()["error"]["data"]["retryable"], true);
    }
    tap.event("i", r#"{"jsonrpc":"2.0","id":1,"result":{"paid":5}}"#);
    drop(tap);
    let first = crate::support::Answer::read(running).await;
    assert!(first.text.contains(r#""paid":5"#));
    let again = other.call("k", 3).await;
    assert_eq!(again.json()["result"], json!({"paid": 5}));
    assert_eq!((one.runs(), other.runs()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn another_request_under_the_same_key_is_a_conflict() {
    let node = Node::start();
    node.call("k", 1).await;
    for other in [
        call_of("refund", &json!(1)),
        call(1).replace("5", "6"),
        call(1).replace("5", "5.0"),
        call(1).replace(r#""arguments":{"amount":5},"#, ""),
    ] {
        let refused = node.send(keyed("k", other)).await;
        assert_eq!(refused.refusal(), (422, "idempotency_key_conflict"));
    }
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_process_died_is_unknown_and_never_runs_again() {
    let store = memory();
    let (dead, alive) = (Node::with(&store, |l| l), Node::with(&store, |l| l));
    // As when the process is killed: nothing is renewed and nothing is told.
    dead.inner
        .script(|_| async { std::future::pending().await });
    dead.ledger.set("renew", Fault::Hangs);
    dead.ledger.set("complete", Fault::Hangs);
    let running = tokio::spawn({
        let dead = dead.clone();
        async move { drop(dead.respond(keyed("k", call(1))).await) }
    });
    crate::settle().await;
    running.abort();
    let refused = alive.call("k", 2).await;
    assert_eq!(refused.refusal(), (409, "idempotency_key_in_progress"));
    tokio::time::advance(LEASE).await;
    for id in 3..5 {
        let refused = alive.call("k", id).await;
        assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
        assert_eq!(refused.json()["error"]["data"]["action"], "give_up");
    }
    assert_eq!(alive.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_while_the_ledger_does_not_answer() {
    let node = Node::start();
    for fault in [
        Fault::Fails(StoreErrorKind::Unavailable),
        Fault::Fails(StoreErrorKind::Recovering),
        Fault::Fails(StoreErrorKind::Full),
        Fault::Fails(StoreErrorKind::Corrupt),
        Fault::Hangs,
    ] {
        node.ledger.set("begin", fault);
        let refused = node.call("k", 1).await;
        assert_eq!(
            refused.refusal(),
            (503, "idempotency_unconfirmed"),
            "{fault:?}"
        );
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    assert_eq!(node.runs(), 0);
    node.ledger.heal();
    assert_eq!(node.call("k", 1).await.status, 200);
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_lost_its_memory_runs_no_key_that_it_has_not_seen_since() {
    let node = Node::start();
    node.call("k", 1).await;
    node.ledger.store.lose_memory();
    for key in ["k", "never-seen"] {
        let refused = node.call(key, 2).await;
        assert_eq!(refused.refusal(), (503, "idempotency_unconfirmed"));
    }
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_did_not_run_leaves_the_key_free() {
    let node = Node::start();
    for status in [400, 401, 403, 404, 405, 406, 411, 413, 415, 421, 429, 503] {
        node.inner.script(move |_| async move {
            let status = StatusCode::from_u16(status).unwrap();
            respond(
                status,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}"#,
            )
        });
        let refused = node.call("k", 1).await;
        // The service's own words, unchanged.
        assert_eq!(refused.status, status);
        assert_eq!(refused.header("mcp-guard-reason"), None);
    }
    assert_eq!(node.runs(), 12);
    node.inner.script(|asked| {
        let answer = answer(&asked.body, &json!({}));
        async move { answer }
    });
    assert_eq!(node.call("k", 2).await.status, 200);
    assert!(is_replay(&node.call("k", 3).await));
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_run_does_not() {
    let node = Node::start();
    for (key, status, body) in [
        (
            "500",
            500,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#,
        ),
        ("502", 502, ""),
        ("504", 504, ""),
        ("302", 302, ""),
        ("202", 202, ""),
        ("garbage", 200, "not json"),
        (
            "another id",
            200,
            r#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
        ),
        (
            "null id",
            200,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#,
        ),
        (
            "a request",
            200,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        ),
        ("empty", 200, ""),
        ("418", 418, "short and stout"),
    ] {
        node.inner
            .script(move |_| async move { respond(StatusCode::from_u16(status).unwrap(), body) });
        let first = node.send(keyed(&format!("\"{key}\""), call(1))).await;
        assert_eq!((first.status, &*first.text), (status, body), "{key}");
        let refused = node.send(keyed(&format!("\"{key}\""), call(2))).await;
        assert_eq!(
            refused.refusal(),
            (409, "idempotency_outcome_unknown"),
            "{key}"
        );
        assert_eq!(node.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_error_that_answers_is_an_outcome() {
    let node = Node::start();
    node.inner.script(|_| async {
        let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no funds"}}"#;
        respond(StatusCode::UNPROCESSABLE_ENTITY, body)
    });
    assert_eq!(node.call("k", 1).await.status, 422);
    let again = node.call("k", 2).await;
    assert_eq!((again.status, is_replay(&again)), (200, true));
    assert_eq!(again.json()["error"]["message"], "no funds");
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn which_statuses_mean_that_it_did_not_run_can_be_chosen() {
    let node = Node::with(&memory(), |layer| {
        layer.with_did_not_run([StatusCode::IM_A_TEAPOT])
    });
    for (status, runs) in [(418, 2), (503, 1)] {
        node.inner
            .script(move |_| async move { respond(StatusCode::from_u16(status).unwrap(), "") });
        let key = status.to_string();
        node.call(&key, 1).await;
        node.call(&key, 2).await;
        assert_eq!(node.runs(), runs, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_too_large_is_remembered_as_run() {
    let node = Node::with(&memory(), |layer| layer.with_outcome_limit(100));
    node.inner.script(|asked| {
        let answer = answer(&asked.body, &json!("x".repeat(200)));
        async move { answer }
    });
    // Whoever called gets all of it.
    let first = node.call("k", 1).await;
    assert_eq!(first.json()["result"].as_str().unwrap().len(), 200);
    for id in 2..4 {
        let refused = node.call("k", id).await;
        assert_eq!(refused.refusal(), (409, "idempotency_outcome_unknown"));
        let detail = refused.json()["error"]["data"]["detail"].clone();
        assert_eq!(
            detail,
            "it ran once, and its outcome was too large to be kept"
        );
    }
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn replays_are_json_or_a_stream_as_the_client_takes_them() {
    let node = Node::start();
    node.inner.script(|_| async {
        let mut response = respond(
            StatusCode::OK,
            "{\"jsonrpc\":\"2.0\",\r\n\"id\":1,\r\n\"result\":{\r\n\"a\":1}}",
        );
        let headers = response.headers_mut();
        headers.insert("set-cookie", "a=b".parse().unwrap());
        headers.insert("mcp-session-id", "s".parse().unwrap());
        response
    });
    node.call("k", 1).await;
    let json = with_header(
        keyed("k", call(2)),
        "accept",
        "application/json, text/event-stream",
    );
    let json = node.send(json).await;
    assert_eq!(json.header("content-type"), Some("application/json"));
    assert_eq!(
        json.json(),
        json!({"jsonrpc": "2.0", "id": 2, "result": {"a": 1}})
    );
    let stream = with_header(keyed("k", call(3)), "accept", "text/event-stream");
    let stream = node.send(stream).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert!(is_replay(&stream));
    let data: String = stream
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    let message: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!(
        message,
        json!({"jsonrpc": "2.0", "id": 3, "result": {"a": 1}})
    );
    for answer in [json, stream] {
        assert_eq!(answer.header("set-cookie"), None);
        assert_eq!(answer.header("mcp-session-id"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_of_another_session_is_told_as_such() {
    let node = Node::with(&memory(), |layer| by_user(layer).free_of_session("convert"));
    let of = |session: &'static str, tool: &str, id: u64| {
        let request = post(Some(session), call_of(tool, &json!(id)));
        let request = with_header(request, "idempotency-key", tool);
        with_header(request, "x-user", "u")
    };
    node.send(of("s-1", "pay", 1)).await;
    node.send(of("s-1", "convert", 2)).await;
    assert!(is_replay(&node.send(of("s-1", "pay", 3)).await));
    let told = node.send(of("s-2", "pay", 4)).await;
    assert_eq!(told.refusal(), (409, "idempotency_ran_in_other_session"));
    let error = &told.json()["error"];
    assert_eq!(error["data"]["outcome"], json!({"result": {"done": true}}));
    assert_eq!(error["data"]["retryable"], false);
    // Declared to leave nothing behind in its session.
    assert!(is_replay(&node.send(of("s-2", "convert", 5)).await));
    assert_eq!(node.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_key_passes_as_often_as_it_comes() {
    let node = Node::start();
    for _ in 0..2 {
        assert_eq!(node.send(post(Some("s"), CALL)).await.status, 200);
    }
    assert_eq!(node.runs(), 2);
    assert_eq!(node.ledger.take_calls("begin"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_round_that_asks_for_more_leaves_the_key_free_and_each_round_runs_once() {
    let node = Node::with(&memory(), |layer| {
        layer.with_principal(|_| Some("u".into()))
    });
    node.inner.script(|asked| {
        let result = if asked.body.contains("requestState") {
            json!({"resultType": "complete", "content": []})
        } else {
            json!({"resultType": "input_required", "requestState": "r", "inputRequests": {}})
        };
        let answer = answer(&asked.body, &result);
        async move { answer }
    });
    for id in 1..3 {
        let asked = node.send(modern("k", call(id))).await;
        assert_eq!(asked.json()["result"]["resultType"], "input_required");
        assert!(!is_replay(&asked));
    }
    assert_eq!(node.runs(), 2);
    let round = |id: u64, answers: &str| {
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "pay", "arguments": {"amount": 5},
            "requestState": "r", "inputResponses": {"confirm": answers}}});
        modern("k", body.to_string())
    };
    assert_eq!(
        node.send(round(3, "yes")).await.json()["result"]["resultType"],
        "complete"
    );
    assert!(is_replay(&node.send(round(4, "yes")).await));
    let refused = node.send(round(5, "no")).await;
    assert_eq!(refused.refusal(), (422, "idempotency_key_conflict"));
    assert_eq!(node.runs(), 1);
}
