//! A stream that is read as it comes.

use std::time::Duration;

use http::StatusCode;
use mcp_session_guard::store::MemoryStore;
use tower::ServiceExt;

use super::{
    Pod, Reader, call,
    log::Log,
    note, result, settle,
    support::{Answer, Stage, get, inner::respond, post},
};

#[tokio::test(start_paused = true)]
async fn events_are_numbered_with_the_guards_own_ids() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "5").await;
    let priming = reader.next().await.unwrap();
    assert_eq!(priming.data.as_deref(), Some(""));
    let epoch = pod.instance.id().epoch().to_string();
    let (stream, waiting) = {
        let mut parts = priming.id().split('.');
        assert_eq!((parts.next(), parts.next()), (Some("g1"), Some(&*epoch)));
        let stream = parts.next().unwrap().to_owned();
        assert_eq!(parts.next(), Some("0"));
        (stream, parts.next().unwrap().to_owned())
    };
    assert_eq!(waiting, "n5");
    tap.event("0/3", &note("x"));
    let event = reader.next().await.unwrap();
    assert_eq!(event.id(), format!("g1.{epoch}.{stream}.1.n5"));
    assert_eq!(event.data.unwrap(), note("x"));
    tap.event("1/3", &result("5"));
    drop(tap);
    // Nothing is waited for any more.
    let answer = reader.next().await.unwrap();
    assert_eq!(answer.id(), format!("g1.{epoch}.{stream}.2"));
    assert_eq!(reader.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_comes_at_once() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    for (version, primes) in [
        ("2025-11-25", true),
        ("2025-06-18", false),
        ("2025-03-26", false),
    ] {
        let mut request = post(Some(&session), call("1"));
        request
            .headers_mut()
            .insert("mcp-protocol-version", version.parse().unwrap());
        let mut reader = pod.stream(request).await;
        let first = reader.next().await.unwrap();
        assert_eq!(first.id.is_some(), primes, "{version}");
        assert_eq!(first.comment.is_some(), !primes, "{version}");
        // Ids are there for every revision.
        pod.tap().event("0", &note("x"));
        assert!(reader.next().await.unwrap().id.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_passes_and_takes_no_number() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    reader.next().await.unwrap();
    tap.send("id: 0\nretry: 3000\ndata:\n\n").unwrap();
    assert_eq!(reader.next().await.unwrap().retry, Some(3000));
    tap.send(": ping\n\n").unwrap();
    assert_eq!(
        reader.next().await.unwrap().comment.as_deref(),
        Some("ping")
    );
    tap.event("1", &note("x"));
    let event = reader.next().await.unwrap();
    assert!(event.id().ends_with(".1.n1"), "{event:?}");
    assert_eq!(reader.now().await, []);
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_together_leaves_in_one_frame() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    reader.next().await.unwrap();
    for number in 0..20 {
        tap.event("i", &note(&number.to_string()));
    }
    let before = reader.frames.len();
    assert_eq!(reader.now().await.len(), 20);
    assert_eq!(reader.frames.len() - before, 1);
}

#[tokio::test(start_paused = true)]
async fn frames_have_at_most_16_kib_and_nothing_is_lost_at_their_seams() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let long = "x".repeat(100_000);
    tap.event("0", &note(&long));
    for number in 0..200 {
        tap.event("1", &note(&format!("{number:0500}")));
    }
    tap.event("2", &result("1"));
    drop(tap);
    let events = reader.rest().await;
    assert_eq!(events.len(), 202);
    assert_eq!(events[0].data.as_deref(), Some(&*note(&long)));
    assert!(reader.frames.iter().all(|frame| *frame <= 16 * 1024));
}

#[tokio::test(start_paused = true)]
async fn events_keep_their_type_and_their_lines() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    reader.next().await.unwrap();
    tap.send(
        "event: message\r\nid: 9\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"method\":\"n\"}\r\n\r\n",
    )
    .unwrap();
    let event = reader.next().await.unwrap();
    assert_eq!(
        event.data.as_deref(),
        Some("{\"jsonrpc\":\"2.0\",\n\"method\":\"n\"}")
    );
}

#[tokio::test(start_paused = true)]
async fn whatever_is_no_stream_passes_as_it_is() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    pod.inner
        .script(|_| async { respond(StatusCode::OK, r#"{"jsonrpc":"2.0","id":1,"result":1}"#) });
    let answer = pod.answer(post(Some(&session), call("1"))).await;
    assert_eq!(
        (answer.status, &*answer.text),
        (200, r#"{"jsonrpc":"2.0","id":1,"result":1}"#)
    );
    pod.inner
        .script(|_| async { respond(StatusCode::METHOD_NOT_ALLOWED, "no") });
    assert_eq!(pod.answer(get(&session)).await.status, 405);
    let answer = pod.answer(post(Some(&session), "{not json")).await;
    assert_eq!((answer.status, &*answer.text), (405, "no"));
}

#[tokio::test(start_paused = true)]
async fn a_modern_stream_is_untouched_and_dropping_it_drops_the_inner_one() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut request = post(Some(&session), call("1"));
    let headers = request.headers_mut();
    headers.insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
    headers.insert("last-event-id", "1".parse().unwrap());
    let mut reader = Reader::new(pod.guard.clone().oneshot(request).await.unwrap());
    let tap = pod.tap();
    tap.send("data: 1\n\n").unwrap();
    let event = reader.next().await.unwrap();
    assert_eq!((event.id, event.data.as_deref()), (None, Some("1")));
    assert!(!tap.is_closed());
    drop(reader);
    assert!(tap.is_closed());
    assert!(
        pod.inner
            .take()
            .iter()
            .all(|asked| asked.last_event_id.is_none())
    );
}

#[tokio::test(start_paused = true)]
async fn a_version_in_the_body_makes_a_request_modern_too() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let mut reader = Reader::new(pod.send(post(Some(&session), body)).await);
    pod.tap().send("data: 1\n\n").unwrap();
    assert_eq!(reader.next().await.unwrap().id, None);
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_refused_and_not_dispatched() {
    let stage = Stage::set();
    let pod = Pod::with(
        &stage,
        "a",
        MemoryStore::new(),
        |layer| layer,
        |layer| layer.with_body_limit(1000),
    )
    .await;
    let session = pod.open().await;
    pod.inner.take();
    let long = format!(
        r#"{{"method":"tools/call","params":{{"x":"{}"}},"jsonrpc":"2.0","id":"last"}}"#,
        "x".repeat(1001)
    );
    let answer = pod.answer(post(Some(&session), long)).await;
    assert_eq!(answer.refusal(), (413, "request_too_large"));
    assert_eq!(answer.json()["id"], "last");
    assert_eq!(pod.inner.take(), []);
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_gets_everything_and_is_read_ahead_of_no_further_than_allowed() {
    let stage = Stage::set();
    let pod = Pod::with(
        &stage,
        "a",
        MemoryStore::new(),
        |layer| layer,
        |layer| layer.with_window(4 * 1024).with_max_lag(32 * 1024),
    )
    .await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    assert!(reader.next().await.is_some());
    let mut expected = Vec::new();
    for number in 0..300 {
        let event = note(&format!("{number:0500}"));
        tap.event("i", &event);
        expected.push(event);
        settle().await;
    }
    tap.event("i", &result("1"));
    expected.push(result("1"));
    drop(tap);
    let mut read = Vec::new();
    while let Some(got) = reader.next().await {
        read.push(got.data.unwrap());
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    assert_eq!(read, expected);
}

#[tokio::test(start_paused = true)]
async fn the_answers_to_one_session_are_not_the_others() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let (one, other) = (pod.open().await, pod.open().await);
    let (first, mut first_reader) = pod.call(&one, "1").await;
    let (second, mut second_reader) = pod.call(&other, "1").await;
    first.event("0", &note("one"));
    second.event("0", &note("other"));
    assert_eq!(first_reader.message().await.data.unwrap(), note("one"));
    assert_eq!(second_reader.message().await.data.unwrap(), note("other"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_the_session_guard_is_still_a_refusal() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let answer = Answer::read(pod.send(post(Some("nobodys"), call("1"))).await).await;
    assert_eq!(answer.refusal(), (404, "session_not_found"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_costs_its_log_one_call_to_open_one_for_what_is_ready_together_and_one_to_end() {
    let stage = Stage::set();
    let log = Log::new(stage.store.clone());
    let pod = Pod::with(&stage, "a", log.clone(), |layer| layer, |layer| layer).await;
    let session = pod.open().await;
    log.calls();
    let (tap, mut reader) = pod.call(&session, "1").await;
    reader.next().await.unwrap();
    assert_eq!(log.calls(), 1);
    for number in 0..20 {
        tap.event("i", &note(&number.to_string()));
    }
    for _ in 0..20 {
        reader.message().await;
    }
    assert_eq!(log.calls(), 1);
    tap.event("i", &result("1"));
    drop(tap);
    assert_eq!(reader.rest().await.len(), 1);
    settle().await;
    assert_eq!(log.calls(), 2);
    // What is no stream costs it nothing.
    pod.answer(post(
        Some(&session),
        call("2").replace("tools/call", "ping"),
    ))
    .await;
    assert_eq!(log.calls(), 0);
}
