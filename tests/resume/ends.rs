//! How streams end: never without the answer they owe, or an error in its place.

use std::time::Duration;

use serde_json::json;

use super::{
    Pod, from,
    log::{Log, Trouble, Wrong},
    note,
    reader::data,
    result, settle,
    support::{Stage, get},
};

#[tokio::test(start_paused = true)]
async fn a_producer_that_fails_or_closes_early_without_ids_is_told_of() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    for fails in [true, false] {
        let (tap, mut reader) = pod.call(&session, "\"x\"").await;
        let priming = reader.next().await.unwrap();
        tap.send(format!("data: {}\n\n", note("1"))).unwrap();
        reader.message().await;
        if fails {
            tap.fail();
        } else {
            drop(tap);
        }
        let error = reader.message().await;
        assert_eq!(error.error(), ("outcome_unknown".into(), json!("x")));
        assert_eq!(reader.next().await, None);
        // The error is part of the stream, for whoever comes back.
        let mut again = pod.resume(&session, priming.id()).await;
        assert_eq!(again.rest().await.last(), Some(&error));
        assert_eq!(pod.answer(from(&session, error.id())).await.status, 405);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_over_the_limit_fails_the_stream() {
    let stage = Stage::set();
    let pod = Pod::with(
        &stage,
        "a",
        stage.store.clone(),
        |layer| layer,
        |layer| layer.with_event_limit(1000),
    )
    .await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("0", &note(&"x".repeat(2000)));
    assert_eq!(
        reader.message().await.error(),
        ("outcome_unknown".into(), json!(1))
    );
    assert_eq!(reader.next().await, None);
    settle().await;
    assert!(tap.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_came_back_to_is_torn_down_with_an_error() {
    let stage = Stage::set();
    let pod = Pod::with(
        &stage,
        "a",
        stage.store.clone(),
        |layer| layer,
        |layer| layer.with_resume_window(Duration::from_secs(60)),
    )
    .await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    drop(reader);
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(!tap.is_closed(), "a disconnect is no cancellation");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(tap.is_closed());
    let mut again = pod.resume(&session, priming.id()).await;
    assert_eq!(
        again.message().await.error(),
        ("outcome_unknown".into(), json!(1))
    );
    assert_eq!(again.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_came_back_in_time_starts_the_window_again() {
    let stage = Stage::set();
    let pod = Pod::with(
        &stage,
        "a",
        stage.store.clone(),
        |layer| layer,
        |layer| layer.with_resume_window(Duration::from_secs(60)),
    )
    .await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    for _ in 0..5 {
        drop(reader);
        tokio::time::sleep(Duration::from_secs(40)).await;
        reader = pod.resume(&session, priming.id()).await;
        // Attached, it may take as long as it likes.
        tokio::time::sleep(Duration::from_secs(200)).await;
    }
    tap.event("0", &result("1"));
    assert_eq!(reader.message().await.data.unwrap(), result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_retiring_instance_ends_idle_streams_and_waits_for_calls() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut listener = pod.listen(&session).await;
    listener.next().await.unwrap();
    let _idle = pod.tap();
    let (tap, mut caller) = pod.call(&session, "1").await;
    caller.next().await.unwrap();
    let instance = pod.instance.clone();
    let retired = tokio::spawn(async move { instance.retire().await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!retired.is_finished());
    tap.event("0", &result("1"));
    drop(tap);
    assert_eq!(caller.rest().await.len(), 1);
    let goodbye = listener.next().await.unwrap();
    assert_eq!((goodbye.retry, goodbye.data), (Some(1000), None));
    assert_eq!(listener.next().await, None);
    drop((listener, caller));
    let retirement = retired.await.unwrap();
    assert_eq!(retirement.unfinished_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlives_the_grace_is_told_that_it_may_have_run() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (_tap, mut caller) = pod.call(&session, "1").await;
    caller.next().await.unwrap();
    let retirement = pod.instance.retire_within(Duration::from_secs(3)).await;
    assert!(retirement.unfinished_calls() > 0);
    assert_eq!(
        caller.message().await.error(),
        ("outcome_unknown".into(), json!(1))
    );
    assert_eq!(caller.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_holds_a_retirement_up_no_longer_than_said() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let _unread = pod.listen(&session).await;
    let begun = tokio::time::Instant::now();
    let _ = pod.instance.retire_within(Duration::from_secs(30)).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn without_a_log_there_are_no_ids_and_everything_else_is_as_ever() {
    for trouble in [Trouble::Fails, Trouble::Hangs] {
        let stage = Stage::set();
        let log = Log::new(stage.store.clone());
        log.set(Wrong {
            open: Some(trouble),
            ..Wrong::default()
        });
        let pod = Pod::with(
            &stage,
            "a",
            log,
            |layer| layer,
            |layer| layer.with_window(1000),
        )
        .await;
        let session = pod.open().await;
        let (tap, mut reader) = pod.call(&session, "1").await;
        assert!(reader.next().await.unwrap().comment.is_some());
        for number in 0..50 {
            tap.event("i", &note(&number.to_string()));
        }
        // Nothing is lost to a slow client, though there is no log to read it from.
        settle().await;
        tap.event("i", &result("1"));
        drop(tap);
        let rest = reader.rest().await;
        assert_eq!(rest.len(), 51);
        assert!(rest.iter().all(|got| got.id.is_none()));
        // And the standalone stream.
        let mut reader = pod.listen(&session).await;
        pod.tap().event("0", &note("x"));
        assert!(reader.message().await.id.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_not_recorded_is_delivered_and_stays_a_gap() {
    let stage = Stage::set();
    let log = Log::new(stage.store.clone());
    log.set(Wrong {
        append: Some(3),
        ..Wrong::default()
    });
    let pod = Pod::with(&stage, "a", log, |layer| layer, |layer| layer).await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let mut ids = vec![reader.next().await.unwrap().id().to_owned()];
    for number in 1..=5 {
        tap.event("i", &note(&number.to_string()));
        let got = reader.message().await;
        assert_eq!(got.data.as_deref(), Some(&*note(&number.to_string())));
        ids.push(got.id().to_owned());
    }
    for before in &ids[..3] {
        let mut refused = pod.resume(&session, before).await;
        let error = refused.message().await;
        assert_eq!(
            error.error(),
            ("stream_cursor_unrecoverable".into(), json!(1))
        );
        assert!(
            error.json()["error"]["data"]["detail"]
                .as_str()
                .unwrap()
                .contains("number 3")
        );
    }
    let mut after = pod.resume(&session, &ids[3]).await;
    assert_eq!(after.message().await.data.unwrap(), note("4"));
    assert_eq!(after.message().await.data.unwrap(), note("5"));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_hangs_delays_an_event_by_its_deadline_and_no_longer() {
    let stage = Stage::set();
    let log = Log::new(stage.store.clone());
    log.set(Wrong {
        append_hangs: Some(2),
        ..Wrong::default()
    });
    let pod = Pod::with(&stage, "a", log, |layer| layer, |layer| layer).await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    for number in 1..=3 {
        tap.event("i", &note(&number.to_string()));
        let begun = tokio::time::Instant::now();
        let got = reader.message().await;
        assert_eq!(got.data.as_deref(), Some(&*note(&number.to_string())));
        assert!(begun.elapsed() <= Duration::from_millis(260));
    }
    let mut refused = pod.resume(&session, priming.id()).await;
    assert_eq!(
        refused.message().await.error().0,
        "stream_cursor_unrecoverable"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_record_was_not_acknowledged_is_delivered_and_replayed_once() {
    let stage = Stage::set();
    let log = Log::new(stage.store.clone());
    log.set(Wrong {
        append_unheard: Some(2),
        ..Wrong::default()
    });
    let pod = Pod::with(&stage, "a", log, |layer| layer, |layer| layer).await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    for number in 1..=3 {
        tap.event("i", &note(&number.to_string()));
        let got = reader.message().await;
        assert_eq!(got.data.as_deref(), Some(&*note(&number.to_string())));
    }
    tap.event("i", &result("1"));
    drop(tap);
    reader.rest().await;
    let mut again = pod.resume(&session, priming.id()).await;
    assert_eq!(
        data(&again.rest().await),
        [note("1"), note("2"), note("3"), result("1")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_last_event_is_no_end() {
    let stage = Stage::set();
    let log = Log::new(stage.store.clone());
    log.set(Wrong {
        append: Some(2),
        ..Wrong::default()
    });
    let pod = Pod::with(&stage, "a", log, |layer| layer, |layer| layer).await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("i", &note("1"));
    let first = reader.message().await;
    tap.event("i", &result("1"));
    drop(tap);
    assert_eq!(reader.rest().await.len(), 1);
    let mut refused = pod.resume(&session, first.id()).await;
    let (reason, id) = refused.message().await.error();
    assert_eq!((&*reason, id), ("stream_cursor_unrecoverable", json!(1)));
}

#[tokio::test(start_paused = true)]
async fn too_many_streams_pass_as_they_are() {
    let stage = Stage::set();
    let pod = Pod::with(
        &stage,
        "a",
        stage.store.clone(),
        |layer| layer,
        |layer| layer.with_max_streams(2),
    )
    .await;
    let session = pod.open().await;
    let _first = pod.call(&session, "1").await;
    let _second = pod.call(&session, "2").await;
    let (tap, mut third) = pod.call(&session, "3").await;
    tap.send("data: 1\n\n").unwrap();
    let got = third.next().await.unwrap();
    assert_eq!((got.id, got.data.as_deref()), (None, Some("1")));
    drop(third);
    assert!(tap.is_closed());
    assert_eq!(pod.send(get(&session)).await.status(), 200);
}
