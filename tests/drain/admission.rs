//! Who is admitted and who is refused, and how that is told.

use std::time::Duration;

use http::Method;
use mcp_session_guard::{drain_credit::DrainCreditLayer, rejection::RefusalStyle};

use super::{
    Rig, SESSION, WINDOW, call, event, note, over_http2, ping, raw, result, settle,
    support::{Answer, delete, post, request},
};

#[tokio::test(start_paused = true)]
async fn a_session_with_credit_left_is_served_however_slow_its_client_is() {
    let rig = Rig::new();
    let (_tap, _client) = rig.stuck(3).await;
    assert_eq!(rig.ping("1").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_half_open_session_is_refused_before_anything_runs() {
    let rig = Rig::new();
    let (_tap, mut client) = rig.stuck(4).await;
    rig.inner.take();
    let refused = rig.answer(post(Some(SESSION), call("\"a\""))).await;
    assert_eq!(refused.refusal(), (429, "stream_half_open"));
    assert_eq!(refused.json()["id"], "a");
    assert_eq!(refused.json()["error"]["data"]["action"], "retry");
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert_eq!(rig.inner.take(), []);
    // It reads again, so it is served again.
    client.read().await.unwrap();
    assert_eq!(rig.ping("1").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_half_open_session_is_no_other_sessions_trouble() {
    let rig = Rig::new();
    let (_tap, _client) = rig.stuck(8).await;
    for number in 0..500 {
        let other = format!("other-{number}");
        let answer = rig.answer(post(Some(&other), ping("1"))).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(rig.ping("1").await.status, 429);
    assert_eq!(rig.answer(post(None, ping("1"))).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_session_at_credit_that_drains_is_admitted_up_to_the_high_water_mark() {
    let rig = Rig::new();
    let (tap, mut client) = rig.listen().await;
    for number in 0..4 {
        tap.event(&number.to_string(), &note("x"));
    }
    settle().await;
    let mut calls = Vec::new();
    for number in 0..4 {
        calls.push(rig.call(&number.to_string()).await);
        tokio::time::sleep(WINDOW / 2).await;
        // It takes one and is sent another: always at credit, never still.
        client.read().await.unwrap();
        tap.event("n", &note("x"));
        settle().await;
    }
    rig.inner.take();
    let refused = rig.ping("9").await;
    assert_eq!(refused.refusal(), (429, "stream_half_open"));
    assert!(refused.text.contains("outstanding"), "{}", refused.text);
    assert_eq!(rig.inner.take(), []);
    drop(calls);
    assert_eq!(rig.ping("9").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn what_frees_work_or_expects_nothing_is_never_refused() {
    let rig = Rig::new();
    let (_tap, _client) = rig.stuck(8).await;
    for passes in [
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"resources/unsubscribe","params":{"uri":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}"#,
    ] {
        let answer = rig.answer(post(Some(SESSION), passes)).await;
        assert!(answer.status < 300, "{passes}: {answer:?}");
    }
    assert_eq!(rig.answer(delete(SESSION)).await.status, 204);
    let options = request(Method::OPTIONS, Some(SESSION), "");
    assert_ne!(rig.answer(options).await.status, 429);
    let mut modern = post(Some(SESSION), ping("1"));
    let version = "2026-07-28".parse().unwrap();
    modern.headers_mut().insert("mcp-protocol-version", version);
    assert_eq!(rig.answer(modern).await.status, 200);
    assert_eq!(rig.ping("1").await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_read_may_be_a_request() {
    let rig = Rig::new();
    let (_tap, _client) = rig.stuck(4).await;
    rig.inner.take();
    for body in [
        "not json",
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call"}"#,
    ] {
        let refused = rig.answer(raw(SESSION, body)).await;
        assert_eq!(refused.refusal(), (429, "stream_half_open"));
        assert!(refused.json()["id"].is_null());
    }
    assert_eq!(rig.inner.take(), []);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_band_is_an_answer() {
    let rig = Rig::with(|layer| layer.with_refusal_style(RefusalStyle::InBand));
    let (_tap, _client) = rig.stuck(4).await;
    let refused = rig.ping("\"7\"").await;
    assert_eq!(refused.refusal(), (200, "stream_half_open"));
    assert_eq!(refused.json()["id"], "7");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_still_drains_may_be_told_on_a_stream() {
    let rig = Rig::with(DrainCreditLayer::with_error_frames);
    let mut calls = Vec::new();
    for number in 0..8 {
        calls.push(rig.call(&number.to_string()).await);
    }
    let refused = rig.ping("9").await;
    assert_eq!(refused.status, 200);
    assert_eq!(refused.header("content-type"), Some("text/event-stream"));
    assert_eq!(refused.header("mcp-guard-reason"), Some("stream_half_open"));
    let data = refused.text.strip_prefix("data: ").unwrap();
    let error: serde_json::Value = serde_json::from_str(data.trim_end()).unwrap();
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&9.into(), &42901.into())
    );
    // One that does not drain could not read it.
    drop(calls);
    let (_tap, _client) = rig.stuck(4).await;
    assert_eq!(rig.ping("9").await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_calls_of_slow_tools_on_one_session() {
    let rig = Rig::with(|layer| layer.with_credit(64, 1 << 20).with_high_water(4));
    let (mut admitted, mut refused) = (Vec::new(), 0);
    for number in 0..10_000 {
        let response = rig
            .send(post(Some(SESSION), call(&number.to_string())))
            .await;
        match response.status().as_u16() {
            200 => admitted.push((rig.tap(), response)),
            429 => {
                let answer = Answer::read(response).await;
                assert_eq!(answer.json()["id"], number);
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!((admitted.len(), refused), (256, 9744));
    assert_eq!(rig.inner.take().len(), 256);
    assert_eq!(rig.figures().reserved, 256);
    // Not one of them is half-open, however long its tool is silent.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(rig.figures().streams_torn_down, 0);
    // Answers that are read make room, one for one.
    for (number, (tap, response)) in admitted.into_iter().enumerate() {
        tap.event("1", &result(&number.to_string()));
        drop(tap);
        Answer::read(response).await;
    }
    settle().await;
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn each_request_of_a_batch_counts_where_the_body_is_read() {
    let rig = Rig::new();
    let mut calls = Vec::new();
    for number in 0..3 {
        calls.push(rig.call(&number.to_string()).await);
    }
    assert_eq!(rig.figures().reserved, 3);
    let batch = format!("[{},{},{}]", call("4"), call("5"), call("6"));
    calls.push({
        let client = rig.open(post(Some(SESSION), batch)).await;
        (rig.tap(), client)
    });
    assert_eq!(rig.figures().reserved, 6);
    let (tap, client) = calls.last_mut().unwrap();
    for number in 4..7 {
        tap.event("x", &result(&number.to_string()));
        assert_eq!(
            client.read().await.unwrap(),
            event("x", &result(&number.to_string()))
        );
        assert_eq!(rig.figures().reserved, 9 - number);
    }
    drop(calls);
    settle().await;
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_count_before_they_are_answered() {
    let rig = Rig::new();
    rig.inner.script(|_| std::future::pending());
    let mut calls = Vec::new();
    for number in 0..8 {
        let service = rig.service.clone();
        let request = over_http2(post(Some(SESSION), call(&number.to_string())));
        calls.push(tokio::spawn(tower::ServiceExt::oneshot(service, request)));
    }
    settle().await;
    assert_eq!(rig.figures().reserved, 8);
    assert_eq!(rig.ping("9").await.status, 429);
    for call in &calls {
        call.abort();
    }
    for call in calls {
        assert!(call.await.is_err());
    }
    rig.assert_blank();
}
