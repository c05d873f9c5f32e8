//! The session's own stream: one inner GET, to which clients attach.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt;

use super::{
    Pod, from, note, settle,
    support::{Stage, delete, get, inner::stream},
};

#[tokio::test(start_paused = true)]
async fn a_second_get_hears_what_the_server_says() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut first = pod.listen(&session).await;
    let tap = pod.tap();
    assert!(first.next().await.unwrap().id.is_some());
    let mut second = pod.listen(&session).await;
    assert_eq!(pod.untapped(), 0, "the inner service was asked once");
    tap.event("0", &note("x"));
    assert_eq!(second.message().await.data.unwrap(), note("x"));
    // Nothing is said twice, and the first is not to come back.
    let last = first.next().await.unwrap();
    assert_eq!(last.data.as_deref(), Some(""));
    assert_eq!(first.next().await, None);
    assert_eq!(pod.answer(from(&session, last.id())).await.status, 405);
}

#[tokio::test(start_paused = true)]
async fn gets_that_race_open_one_inner_stream() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (mut first, mut second) = tokio::join!(pod.listen(&session), pod.listen(&session));
    let tap = pod.tap();
    assert_eq!(pod.untapped(), 0);
    tap.event("0", &note("x"));
    let (first, second) = (first.now().await, second.now().await);
    let heard = |events: &[super::reader::Got]| {
        let data = |got: &&super::reader::Got| got.data.as_deref() == Some(&*note("x"));
        events.iter().filter(data).count()
    };
    assert_eq!(heard(&first) + heard(&second), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_without_a_position_gets_a_plain_stream_and_may_still_resume() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut reader = pod.listen(&session).await;
    let tap = pod.tap();
    tap.event("0", &note("1"));
    let seen = reader.message().await;
    drop(reader);
    tap.event("1", &note("2"));
    settle().await;
    let mut plain = pod.listen(&session).await;
    tap.event("2", &note("3"));
    assert_eq!(plain.message().await.data.unwrap(), note("3"));
    let mut resumed = pod.resume(&session, seen.id()).await;
    assert_eq!(resumed.message().await.data.unwrap(), note("2"));
    assert_eq!(resumed.message().await.data.unwrap(), note("3"));
}

#[tokio::test(start_paused = true)]
async fn what_is_said_while_nobody_listens_is_kept() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut reader = pod.listen(&session).await;
    let tap = pod.tap();
    let priming = reader.next().await.unwrap();
    drop(reader);
    tap.event("0", &note("1"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    tap.event("1", &note("2"));
    settle().await;
    let mut again = pod.resume(&session, priming.id()).await;
    assert_eq!(again.message().await.data.unwrap(), note("1"));
    assert_eq!(again.message().await.data.unwrap(), note("2"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_the_server_closed_is_opened_anew_when_nothing_was_missed() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut reader = pod.listen(&session).await;
    let tap = pod.tap();
    tap.event("0", &note("1"));
    tap.event("1", &note("2"));
    drop(tap);
    let first = reader.message().await;
    assert_eq!(reader.rest().await.len(), 1);
    let last = reader.cursor().to_owned();
    // Something is missing: replayed, and the end.
    let mut replay = pod.resume(&session, first.id()).await;
    assert_eq!(replay.rest().await.len(), 1);
    assert_eq!(pod.untapped(), 0);
    // Nothing is: a new stream of the inner service.
    let mut anew = pod.resume(&session, &last).await;
    pod.tap().event("0", &note("3"));
    assert_eq!(anew.message().await.data.unwrap(), note("3"));
    assert!(
        pod.inner
            .take()
            .iter()
            .all(|asked| asked.last_event_id.is_none())
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_came_back_to_is_let_go_and_its_end_is_a_gap() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut reader = pod.listen(&session).await;
    let tap = pod.tap();
    let priming = reader.next().await.unwrap();
    drop(reader);
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert!(!tap.is_closed());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(tap.is_closed());
    let answer = pod.answer(from(&session, priming.id())).await;
    assert_eq!(answer.refusal(), (409, "stream_cursor_unrecoverable"));
    // And without a position there is a new one.
    pod.listen(&session).await;
    assert_eq!(pod.untapped(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_session_ends_its_streams() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut reader = pod.listen(&session).await;
    let tap = pod.tap();
    reader.next().await.unwrap();
    assert_eq!(pod.answer(delete(&session)).await.status, 204);
    assert_eq!(reader.rest().await, []);
    settle().await;
    assert!(tap.is_closed());
    assert_eq!(pod.answer(get(&session)).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_the_stream_is_opened_leaves_the_way_free() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (tap, response) = stream();
    let response = Arc::new(Mutex::new(Some(response)));
    let (gated, kept) = (Arc::clone(&gate), Arc::clone(&response));
    pod.inner.script(move |_| {
        let (gate, response) = (Arc::clone(&gated), Arc::clone(&kept));
        async move {
            gate.acquire().await.unwrap().forget();
            response.lock().unwrap().take().unwrap()
        }
    });
    // The first is dropped while the inner service thinks; the second waits for its turn.
    let mut first = Box::pin(pod.send(get(&session)));
    assert!((&mut first).now_or_never().is_none());
    let mut second = Box::pin(pod.listen(&session));
    assert!((&mut second).now_or_never().is_none());
    drop(first);
    gate.add_permits(1);
    let mut reader = second.await;
    tap.event("0", &note("x"));
    assert_eq!(reader.message().await.data.unwrap(), note("x"));
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_hangs_is_not_waited_for_for_ever() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    pod.inner.script(|_| std::future::pending());
    let mut hanging = Box::pin(pod.send(get(&session)));
    assert!((&mut hanging).now_or_never().is_none());
    let answer = pod.answer(get(&session)).await;
    assert_eq!(answer.refusal(), (503, "session_unconfirmed"));
}
