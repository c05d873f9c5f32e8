//! Clients that come back, and what they missed.

use std::time::Duration;

use serde_json::json;

use super::{
    Pod, call, from, note,
    reader::data,
    result, settle,
    support::{Stage, post},
};

#[tokio::test(start_paused = true)]
async fn what_was_missed_is_replayed_and_the_stream_goes_on() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("0", &note("1"));
    tap.event("1", &note("2"));
    let first = reader.message().await;
    drop(reader);
    tap.event("2", &note("3"));
    settle().await;
    let mut again = pod.resume(&session, first.id()).await;
    tap.event("3", &note("4"));
    tap.event("4", &result("1"));
    drop(tap);
    let rest = again.rest().await;
    assert_eq!(data(&rest), [note("2"), note("3"), note("4"), result("1")]);
    assert_eq!(pod.instance.figures().resumes_found, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_came_while_the_client_was_away_is_delivered() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    drop(reader);
    tap.event("0", &result("1"));
    drop(tap);
    // Long after, within the window.
    tokio::time::sleep(Duration::from_secs(200)).await;
    let mut again = pod.resume(&session, priming.id()).await;
    assert_eq!(data(&again.rest().await), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn nothing_missed_is_a_position_first_and_then_what_comes() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("0", &note("1"));
    reader.message().await;
    let cursor = reader.cursor().to_owned();
    for _ in 0..3 {
        let mut again = pod.resume(&session, &cursor).await;
        let position = again.next().await.unwrap();
        assert_eq!(
            (position.id(), position.data.as_deref()),
            (&*cursor, Some(""))
        );
        drop(again);
    }
    let mut again = pod.resume(&session, &cursor).await;
    tap.event("1", &result("1"));
    assert_eq!(again.message().await.data.unwrap(), result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_finished_stream_is_replayed_whole_from_any_of_its_events() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    for number in 1..=5 {
        tap.event("i", &note(&number.to_string()));
    }
    tap.event("i", &result("1"));
    drop(tap);
    let mut ids = vec![reader.next().await.unwrap().id().to_owned()];
    let all = reader.rest().await;
    ids.extend(all.iter().map(|event| event.id().to_owned()));
    for (at, id) in ids[..6].iter().enumerate() {
        let mut again = pod.resume(&session, id).await;
        assert_eq!(again.rest().await, all[at..], "from {id}");
    }
    // After the last there is nothing, and a client that asks is stopped.
    let answer = pod.answer(from(&session, &ids[6])).await;
    assert_eq!(answer.refusal(), (405, "stream_cursor_unrecoverable"));
    assert!(answer.header("allow").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_newer_client_ends_the_older_which_is_told_not_to_come_back() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut old) = pod.call(&session, "1").await;
    let priming = old.next().await.unwrap();
    let mut new = pod.resume(&session, priming.id()).await;
    tap.event("0", &note("x"));
    assert_eq!(new.message().await.data.unwrap(), note("x"));
    let last = old.next().await.unwrap();
    assert_eq!(last.data.as_deref(), Some(""));
    assert_eq!(old.next().await, None);
    let answer = pod.answer(from(&session, last.id())).await;
    assert_eq!(answer.status, 405);
    // The newer one goes on.
    tap.event("1", &result("1"));
    assert_eq!(new.message().await.data.unwrap(), result("1"));
}

#[tokio::test(start_paused = true)]
async fn two_cuts_in_a_row_lose_and_repeat_nothing() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let mut read = Vec::new();
    for number in 0..60 {
        tap.event("i", &note(&number.to_string()));
        if number % 2 == 0 {
            read.push(reader.message().await.data.unwrap());
        }
        if number % 7 == 3 {
            let cursor = reader.cursor().to_owned();
            drop(reader);
            settle().await;
            reader = pod.resume(&session, &cursor).await;
        }
    }
    tap.event("i", &result("1"));
    drop(tap);
    read.extend(reader.rest().await.into_iter().map(|got| got.data.unwrap()));
    let mut expected: Vec<_> = (0..60).map(|number| note(&number.to_string())).collect();
    expected.push(result("1"));
    assert_eq!(read, expected);
}

#[tokio::test(start_paused = true)]
async fn a_long_replay_is_paged_and_joined_into_frames() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    drop(reader);
    for number in 0..3000 {
        tap.event("i", &note(&number.to_string()));
        if number % 100 == 0 {
            settle().await;
        }
    }
    settle().await;
    let mut again = pod.resume(&session, priming.id()).await;
    tap.event("i", &result("1"));
    drop(tap);
    let rest = again.rest().await;
    assert_eq!(rest.len(), 3001);
    for (number, got) in rest[..3000].iter().enumerate() {
        assert_eq!(got.data.as_deref(), Some(&*note(&number.to_string())));
    }
    assert!(again.frames.iter().all(|frame| *frame <= 16 * 1024));
    assert!(again.frames.len() < 100, "{}", again.frames.len());
}

#[tokio::test(start_paused = true)]
async fn each_answer_of_a_batch_is_awaited() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let batch = format!("[{},{}]", call("1"), call("\"1\""));
    let mut reader = pod.stream(post(Some(&session), batch)).await;
    let tap = pod.tap();
    let priming = reader.next().await.unwrap();
    tap.send(format!("data: {}\n\n", result("1"))).unwrap();
    reader.message().await;
    let after_one = reader.cursor().to_owned();
    drop(tap);
    // The other is answered by the guard, under its own type.
    let (reason, id) = reader.message().await.error();
    assert_eq!((&*reason, id), ("outcome_unknown", json!("1")));
    assert_eq!(reader.next().await, None);
    let mut whole = pod.resume(&session, priming.id()).await;
    assert_eq!(whole.rest().await.len(), 2);
    let mut half = pod.resume(&session, &after_one).await;
    assert_eq!(half.rest().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_is_replayed_only_while_its_answer_is_awaited() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    let question = r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}"#;
    tap.event("0", question);
    settle().await;
    drop(reader);
    let mut again = pod.resume(&session, priming.id()).await;
    assert_eq!(again.message().await.data.unwrap(), question);
    let after = again.cursor().to_owned();
    let answer = pod
        .answer(post(
            Some(&session),
            r#"{"jsonrpc":"2.0","id":"q","result":{}}"#,
        ))
        .await;
    assert_eq!(answer.status, 202);
    // From before the question: it would be asked a second time, and nobody waits for that answer.
    let mut refused = pod.resume(&session, priming.id()).await;
    let (reason, id) = refused.message().await.error();
    assert_eq!((&*reason, id), ("session_resume_rejected", json!(1)));
    // From after it: as ever.
    let mut again = pod.resume(&session, &after).await;
    tap.event("1", &result("1"));
    assert_eq!(again.message().await.data.unwrap(), result("1"));
}
