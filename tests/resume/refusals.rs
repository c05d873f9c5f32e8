//! Positions that cannot be resumed from, each refused for what it is.

use http::{HeaderValue, Method};
use mcp_session_guard::{outbox::Cursor, rejection::RefusalStyle, store::Seq};
use serde_json::json;

use super::{
    Pod, from,
    log::{Log, Trouble, Wrong},
    note, result, settle,
    support::{Stage, get, request},
};

/// A finished call, and the position of its first event.
async fn finished(pod: &Pod) -> (String, Cursor) {
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("0", &note("1"));
    tap.event("1", &result("1"));
    drop(tap);
    let events = reader.rest().await;
    (session, Cursor::parse(events[0].id().as_bytes()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_refused_and_changes_nothing() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let (session, _) = finished(&pod).await;
    pod.inner.take();
    let long = "1".repeat(10_000);
    let hostile: [&[u8]; 9] = [
        b"",
        b"0",
        b"1/0",
        b"_GET_stream",
        b"\xf0\x9f\x92\xa9",
        b"g1.",
        b"g1.0.0.0",
        b"null",
        long.as_bytes(),
    ];
    for id in hostile {
        let mut request = get(&session);
        let value = HeaderValue::from_bytes(id).unwrap();
        request.headers_mut().insert("last-event-id", value);
        let answer = pod.answer(request).await;
        assert_eq!(
            answer.refusal(),
            (409, "stream_cursor_unrecoverable"),
            "{id:?}"
        );
        assert_eq!(answer.json()["id"], json!(null));
    }
    assert_eq!(pod.inner.take(), []);
    // The session is as it was.
    let (tap, mut reader) = pod.call(&session, "2").await;
    tap.event("0", &result("2"));
    assert_eq!(reader.message().await.data.unwrap(), result("2"));
    assert_eq!(pod.instance.figures().resumes_missed, 9);
}

#[tokio::test(start_paused = true)]
async fn a_position_that_is_said_twice_is_none() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let (session, cursor) = finished(&pod).await;
    let mut request = from(&session, &cursor.to_string());
    let again = cursor.to_string().parse().unwrap();
    request.headers_mut().append("last-event-id", again);
    assert_eq!(pod.answer(request).await.status, 409);
}

#[tokio::test(start_paused = true)]
async fn without_a_session_nothing_is_resumed() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let (_, cursor) = finished(&pod).await;
    pod.inner.take();
    for id in [&*cursor.to_string(), "garbage"] {
        let mut request = request(Method::GET, None, "");
        request
            .headers_mut()
            .insert("last-event-id", id.parse().unwrap());
        let answer = pod.answer(request).await;
        assert_eq!(answer.refusal(), (400, "session_required"));
    }
    assert_eq!(pod.inner.take(), []);
}

#[tokio::test(start_paused = true)]
async fn every_position_that_is_not_the_streams_is_refused_in_band_while_an_answer_is_waited_for() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let (session, cursor) = finished(&pod).await;
    let cases = [
        (
            "ahead",
            Cursor {
                seq: Seq::new(99),
                ..cursor.clone()
            },
        ),
        (
            "unknown",
            Cursor {
                stream: u64::MAX,
                ..cursor.clone()
            },
        ),
        (
            "another process",
            Cursor {
                epoch: mcp_session_guard::session::Epoch::from_u128(7),
                ..cursor.clone()
            },
        ),
    ];
    for (case, wrong) in cases {
        let mut refused = pod.resume(&session, &wrong.to_string()).await;
        assert_eq!(
            refused.headers["mcp-guard-reason"],
            "stream_cursor_unrecoverable"
        );
        let event = refused.next().await.unwrap();
        assert_eq!(
            event.error(),
            ("stream_cursor_unrecoverable".into(), json!(1)),
            "{case}"
        );
        assert_eq!(refused.next().await, None);
        assert_eq!(
            pod.answer(from(&session, event.id())).await.status,
            405,
            "{case}"
        );
        // Nobody waits: by status.
        let idle = Cursor {
            pending: None,
            ..wrong
        };
        let answer = pod.answer(from(&session, &idle.to_string())).await;
        assert_eq!(
            answer.refusal(),
            (409, "stream_cursor_unrecoverable"),
            "{case}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn by_status_everywhere_when_that_is_chosen() {
    let stage = Stage::set();
    let pod = Pod::with(
        &stage,
        "a",
        stage.store.clone(),
        |layer| layer,
        |layer| layer.with_refusal_style(RefusalStyle::Status),
    )
    .await;
    let (session, cursor) = finished(&pod).await;
    let ahead = Cursor {
        seq: Seq::new(99),
        ..cursor
    };
    let answer = pod.answer(from(&session, &ahead.to_string())).await;
    assert_eq!(answer.refusal(), (409, "stream_cursor_unrecoverable"));
}

#[tokio::test(start_paused = true)]
async fn another_sessions_position_gives_not_a_byte() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let (_, cursor) = finished(&pod).await;
    let other = pod.open().await;
    let mut refused = pod.resume(&other, &cursor.to_string()).await;
    assert_eq!(
        refused.message().await.error().0,
        "stream_cursor_unrecoverable"
    );
    assert_eq!(refused.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_does_not_say_is_waited_for_and_then_refused_in_band() {
    for trouble in [Trouble::Fails, Trouble::Hangs] {
        let stage = Stage::set();
        let log = Log::new(stage.store.clone());
        let pod = Pod::with(&stage, "a", log.clone(), |layer| layer, |layer| layer).await;
        let (session, cursor) = finished(&pod).await;
        log.set(Wrong {
            read: Some(trouble),
            ..Wrong::default()
        });
        let begun = tokio::time::Instant::now();
        let mut refused = pod.resume(&session, &cursor.to_string()).await;
        assert!(begun.elapsed().as_secs_f64() < 6.0);
        assert_eq!(
            refused.message().await.error(),
            ("session_unconfirmed".into(), json!(1))
        );
        // Back in time: nothing was refused.
        let healing = async {
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            log.set(Wrong::default());
        };
        let text = cursor.to_string();
        let (mut again, ()) = tokio::join!(pod.resume(&session, &text), healing);
        assert_eq!(again.rest().await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_fails_in_the_middle_of_a_replay_is_told_in_the_stream() {
    let stage = Stage::set();
    let log = Log::new(stage.store.clone());
    let pod = Pod::with(&stage, "a", log.clone(), |layer| layer, |layer| layer).await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    drop(reader);
    for number in 0..600 {
        tap.event("i", &note(&number.to_string()));
    }
    settle().await;
    let mut again = pod.resume(&session, priming.id()).await;
    again.message().await;
    log.set(Wrong {
        read: Some(Trouble::Fails),
        ..Wrong::default()
    });
    let rest = again.rest().await;
    assert!(rest.len() < 600);
    assert_eq!(
        rest.last().unwrap().error(),
        ("session_unconfirmed".into(), json!(1))
    );
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_never_sees_a_position() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let (session, _) = finished(&pod).await;
    pod.inner.take();
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        let mut request = request(method, Some(&session), super::call("3"));
        request
            .headers_mut()
            .insert("last-event-id", "1".parse().unwrap());
        drop(pod.send(request).await);
    }
    let asked = pod.inner.take();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|asked| asked.last_event_id.is_none()));
}
