//! Public bug reports about resumption, each as an input and the outcome that this crate owes.

use std::time::Duration;

use serde_json::json;

use mcp_session_guard::store::{MemoryConfig, MemoryStore};

use super::{
    Pod, call, from,
    log::{Log, Wrong},
    note, result, settle,
    support::{
        LEASE, Stage, get,
        inner::{opening, respond},
        post,
    },
};

fn small(stage: &Stage, events: usize) -> MemoryStore {
    let config = MemoryConfig::default().with_max_events_per_session(events);
    MemoryStore::with_clock(config, stage.clock.clone())
}

/// modelcontextprotocol/rust-sdk#958
#[tokio::test(start_paused = true)]
async fn the_cursor_of_a_closed_stream_is_an_explicit_answer() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("0", &result("1"));
    drop(tap);
    reader.rest().await;
    let answer = pod.answer(from(&session, reader.cursor())).await;
    assert_eq!(answer.refusal(), (405, "stream_cursor_unrecoverable"));
}

/// modelcontextprotocol/typescript-sdk#2068
#[tokio::test(start_paused = true)]
async fn an_evicted_event_is_no_404_and_the_session_goes_on() {
    let stage = Stage::set();
    let pod = Pod::with(&stage, "a", small(&stage, 10), |layer| layer, |layer| layer).await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("i", &note("0"));
    let seen = reader.message().await;
    drop(reader);
    for number in 0..50 {
        tap.event("i", &note(&number.to_string()));
        settle().await;
    }
    let mut refused = pod.resume(&session, seen.id()).await;
    assert_eq!(
        refused.message().await.error(),
        ("stream_cursor_unrecoverable".into(), json!(1))
    );
    let (tap, mut reader) = pod.call(&session, "2").await;
    tap.event("i", &result("2"));
    assert_eq!(reader.message().await.data.unwrap(), result("2"));
}

/// agentscope-ai/agentscope#2124
#[tokio::test(start_paused = true)]
async fn an_event_between_replay_and_tail_comes_once_and_in_order() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    drop(reader);
    tap.event("i", &note("1"));
    settle().await;
    // Published after the log was read, before the replay was taken.
    let mut again = pod.resume(&session, priming.id()).await;
    tap.event("i", &note("2"));
    settle().await;
    assert_eq!(again.message().await.data.unwrap(), note("1"));
    tap.event("i", &note("3"));
    assert_eq!(again.message().await.data.unwrap(), note("2"));
    assert_eq!(again.message().await.data.unwrap(), note("3"));
    assert_eq!(again.now().await, []);
}

/// Umbrella-IT-Group/metamcp#22
#[tokio::test(start_paused = true)]
async fn a_restart_is_another_epoch_and_other_capabilities_are_another_agreement() {
    for other in [true, false] {
        let stage = Stage::set();
        let (log, reach) = super::shared();
        let externalized =
            |layer: mcp_session_guard::affinity_guard::AffinityGuardLayer| layer.externalized();
        let old = Pod::with(&stage, "a", log.clone(), externalized, &reach).await;
        let session = old.open().await;
        let (tap, mut reader) = old.call(&session, "1").await;
        let priming = reader.next().await.unwrap();
        tap.event("i", &note("1"));
        settle().await;
        drop(old.instance.retire_within(Duration::ZERO).await);
        // In one case with a log of its own, as any restarted process has.
        let log = if other { log } else { MemoryStore::new() };
        let local = |layer| if other { reach(layer) } else { layer };
        let new = Pod::with(&stage, "b", log, externalized, local).await;
        if other {
            new.inner.script(|_| {
                let mut response = opening("fresh");
                let text = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"2"}}}"#;
                *response.body_mut() = respond(http::StatusCode::OK, text).into_body();
                async move { response }
            });
        }
        new.open().await;
        // In one case the session itself cannot be carried on.
        let reason = match other {
            true => "session_resume_rejected",
            false => "stream_cursor_unrecoverable",
        };
        let mut refused = new.resume(&session, priming.id()).await;
        let error = refused.message().await.error();
        assert_eq!(error, (reason.into(), json!(1)));
    }
}

/// PrefectHQ/fastmcp#4402
#[tokio::test(start_paused = true)]
async fn another_sessions_standalone_event_gives_nothing_of_it() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let (one, other) = (pod.open().await, pod.open().await);
    let mut first = pod.listen(&one).await;
    let tap = pod.tap();
    let mut second = pod.listen(&other).await;
    let _other = pod.tap();
    tap.event("0", &note("1"));
    let seen = first.message().await;
    tap.event("1", &note("secret"));
    second.next().await.unwrap();
    let answer = pod.answer(from(&other, seen.id())).await;
    assert_eq!(answer.refusal(), (409, "stream_cursor_unrecoverable"));
    assert!(!answer.text.contains("secret"));
    assert_eq!(
        second.now().await,
        [],
        "and its own stream is not disturbed"
    );
}

/// modelcontextprotocol/rust-sdk#659
#[tokio::test(start_paused = true)]
async fn reconnects_to_finished_calls_leave_the_own_stream_alone() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut listener = pod.listen(&session).await;
    let tap = pod.tap();
    listener.next().await.unwrap();
    let mut cursors = Vec::new();
    for id in ["1", "2", "3"] {
        let (tap, mut reader) = pod.call(&session, id).await;
        let priming = reader.next().await.unwrap();
        tap.event("0", &result(id));
        drop(tap);
        reader.rest().await;
        cursors.push((id, priming.id().to_owned(), reader.cursor().to_owned()));
    }
    for (id, first, last) in cursors {
        let mut again = pod.resume(&session, &first).await;
        assert_eq!(again.rest().await[0].data.as_deref(), Some(&*result(id)));
        assert_eq!(pod.answer(from(&session, &last)).await.status, 405);
    }
    tap.event("0", &note("x"));
    assert_eq!(listener.message().await.data.unwrap(), note("x"));
}

/// modelcontextprotocol/go-sdk#754
#[tokio::test(start_paused = true)]
async fn a_purged_cursor_is_a_gap_and_sibling_sessions_are_unharmed() {
    let stage = Stage::set();
    let pod = Pod::with(&stage, "a", small(&stage, 20), |layer| layer, |layer| layer).await;
    let (noisy, quiet) = (pod.open().await, pod.open().await);
    let (tap, mut reader) = pod.call(&quiet, "1").await;
    let quiet_seen = reader.next().await.unwrap();
    tap.event("0", &note("q"));
    settle().await;
    drop(reader);
    let (loud, mut reader) = pod.call(&noisy, "1").await;
    let noisy_seen = reader.next().await.unwrap();
    drop(reader);
    for number in 0..100 {
        loud.event("i", &note(&number.to_string()));
        settle().await;
    }
    let mut refused = pod.resume(&noisy, noisy_seen.id()).await;
    let error = refused.message().await;
    assert_eq!(error.error().0, "stream_cursor_unrecoverable");
    assert!(
        error.json()["error"]["data"]["detail"]
            .as_str()
            .unwrap()
            .contains("number 1 first")
    );
    let mut again = pod.resume(&quiet, quiet_seen.id()).await;
    assert_eq!(again.message().await.data.unwrap(), note("q"));
}

/// joshrotenberg/tower-mcp#779
#[tokio::test(start_paused = true)]
async fn an_append_that_failed_is_a_gap() {
    let stage = Stage::set();
    let log = Log::new(stage.store.clone());
    log.set(Wrong {
        append: Some(3),
        ..Wrong::default()
    });
    let pod = Pod::with(&stage, "a", log, |layer| layer, |layer| layer).await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let mut ids = Vec::new();
    for number in 1..=4 {
        tap.event("i", &note(&number.to_string()));
        ids.push(reader.message().await.id().to_owned());
    }
    let mut refused = pod.resume(&session, &ids[1]).await;
    assert_eq!(
        refused.message().await.error().0,
        "stream_cursor_unrecoverable"
    );
}

/// cloudflare/agents#1607
#[tokio::test(start_paused = true)]
async fn a_cut_after_the_last_event_was_queued_and_before_it_arrived_loses_nothing() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    tap.event("0", &result("1"));
    drop(tap);
    // Taken from the body, and lost on the way to the client.
    reader.rest().await;
    drop(reader);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut again = pod.resume(&session, priming.id()).await;
    assert_eq!(again.rest().await[0].data.as_deref(), Some(&*result("1")));
}

/// envoyproxy/ai-gateway#2219
#[tokio::test(start_paused = true)]
async fn an_id_with_empty_data_is_a_position_and_no_answer() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.send("id: 0/0\nretry: 100\ndata: \n\n").unwrap();
    drop(tap);
    // Still owed, so the rest is fetched.
    while pod.untapped() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pod.tap().event("1/0", &result("1"));
    let answer = reader.message().await;
    assert!(answer.id().ends_with(".1"), "it took no number: {answer:?}");
}

/// modelcontextprotocol/kotlin-sdk#715
#[tokio::test(start_paused = true)]
async fn closed_and_asked_for_again_at_once() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut reader = pod.listen(&session).await;
    let tap = pod.tap();
    let priming = reader.next().await.unwrap();
    for number in 0..20 {
        let cursor = priming.id().to_owned();
        let (mut plain, mut resumed);
        drop(reader);
        plain = pod.listen(&session).await;
        assert!(plain.next().await.is_some(), "never an empty 200");
        resumed = pod.resume(&session, &cursor).await;
        tap.event("i", &note(&number.to_string()));
        for _ in 0..=number {
            resumed.message().await;
        }
        reader = resumed;
    }
    assert_eq!(pod.untapped(), 0);
}

/// modelcontextprotocol/rust-sdk#967
#[tokio::test(start_paused = true)]
async fn a_disconnect_in_the_middle_of_a_call_cancels_nothing() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let response = pod.send(post(Some(&session), call("1"))).await;
    let tap = pod.tap();
    // Before a single byte was read.
    drop(response);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!tap.is_closed());
    tap.event("0", &result("1"));
}

/// tokio-rs/axum#2673
#[tokio::test(start_paused = true)]
async fn an_open_stream_does_not_hold_a_shutdown_up() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut reader = pod.listen(&session).await;
    let _tap = pod.tap();
    reader.next().await.unwrap();
    let instance = pod.instance.clone();
    let retired = tokio::spawn(async move { instance.retire().await });
    assert_eq!(reader.next().await.unwrap().retry, Some(1000));
    assert_eq!(reader.next().await, None);
    drop(reader);
    tokio::time::timeout(LEASE, retired)
        .await
        .unwrap()
        .unwrap()
        .lease_ended()
        .unwrap();
}

/// A content delivery network holds the headers of a response until its first byte.
#[tokio::test(start_paused = true)]
async fn there_is_a_first_byte_before_the_inner_service_says_anything() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    for version in ["2025-03-26", "2025-11-25"] {
        let mut request = get(&session);
        request
            .headers_mut()
            .insert("mcp-protocol-version", version.parse().unwrap());
        let begun = tokio::time::Instant::now();
        let mut reader = pod.stream(request).await;
        assert!(reader.next().await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
