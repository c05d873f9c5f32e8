//! Streams and sessions that are given up.

use std::time::Duration;

use http::Method;

use super::{
    Client, Rig, SESSION, TIMEOUT, WINDOW, call, event, note, over_http2, result, settle,
    support::{get, post},
};

#[tokio::test(start_paused = true)]
async fn a_stream_past_its_liveness_is_torn_down_and_its_credit_comes_back_once() {
    let rig = Rig::new();
    let (tap, client) = rig.listen().await;
    for _ in 0..5 {
        tap.event("1", &note("x"));
    }
    tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
    assert!(!tap.is_closed());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(tap.is_closed(), "the inner stream is dropped");
    let figures = rig.figures();
    assert_eq!(
        (figures.undrained_messages, figures.streams_torn_down),
        (0, 1)
    );
    let stalled = rig.stalled.lock().unwrap().clone();
    assert_eq!(stalled.len(), 1);
    assert_eq!(stalled[0].session.as_str(), SESSION);
    assert_eq!((stalled[0].streams, stalled[0].messages), (1, 5));
    assert!(stalled[0].session_ended);
    drop(client);
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn a_session_none_of_whose_streams_progresses_is_ended_at_the_inner_service() {
    let rig = Rig::new();
    let (_get, _client) = rig.stuck(4).await;
    rig.inner.take();
    tokio::time::sleep(TIMEOUT).await;
    let asked = rig.inner.take();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].method, Method::DELETE);
    assert_eq!(asked[0].session.as_deref(), Some(SESSION));
    assert_eq!(rig.figures().sessions_ended, 1);
    // Once.
    tokio::time::sleep(TIMEOUT * 3).await;
    assert_eq!(rig.inner.take(), []);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_read_elsewhere_or_shares_its_connection_lives() {
    let rig = Rig::new();
    let (tap, _stuck) = rig.stuck(1).await;
    let (other, mut reads) = rig.listen().await;
    for second in 0..TIMEOUT.as_secs() {
        other.event(&second.to_string(), &note("y"));
        reads.read().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(tap.is_closed());
    let figures = rig.figures();
    assert_eq!((figures.streams_torn_down, figures.sessions_ended), (1, 0));

    let rig = Rig::new();
    let _client = rig.open(over_http2(get(SESSION))).await;
    let tap = rig.tap();
    tap.event("1", &note("x"));
    tokio::time::sleep(TIMEOUT + WINDOW).await;
    assert!(tap.is_closed());
    let figures = rig.figures();
    assert_eq!((figures.streams_torn_down, figures.sessions_ended), (1, 0));
    assert!(!rig.stalled.lock().unwrap()[0].session_ended);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_to_life_is_told_what_it_is_owed() {
    let rig = Rig::new();
    // Close to its credit, so that the request is known.
    let _listens = rig.listen().await;
    let mut silent = Vec::new();
    for number in 10..13 {
        silent.push(rig.call(&number.to_string()).await);
    }
    let (tap, mut client) = rig.call("\"mine\"").await;
    tap.event("1", &note("x"));
    tokio::time::sleep(TIMEOUT + WINDOW).await;
    assert!(tap.is_closed());
    let (text, end) = client.rest().await;
    assert_eq!(end, "end");
    let error: serde_json::Value =
        serde_json::from_str(text.strip_prefix("data: ").unwrap().trim_end()).unwrap();
    assert_eq!(error["id"], "mine");
    assert_eq!(error["error"]["data"]["reason"], "outcome_unknown");
    assert!(client.is_end_stream());
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_requests_are_not_known_is_cut_and_never_ends_as_if_it_were_whole() {
    let rig = Rig::new();
    for request in [post(Some(SESSION), call("1")), get(SESSION)] {
        let mut client = rig.open(request).await;
        let tap = rig.tap();
        tap.event("1", &note("x"));
        tokio::time::sleep(TIMEOUT + WINDOW).await;
        assert!(tap.is_closed());
        let (text, end) = client.rest().await;
        assert_eq!(text, "");
        assert!(end.contains("given up"), "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn half_an_event_is_not_followed_by_another() {
    let rig = Rig::new();
    let mut silent = Vec::new();
    for number in 10..13 {
        silent.push(rig.call(&number.to_string()).await);
    }
    let (tap, mut client) = rig.call("1").await;
    tap.event("1", &note(&"x".repeat(40_000)));
    client.read().await.unwrap();
    tokio::time::sleep(TIMEOUT * 2).await;
    assert!(tap.is_closed());
    let (text, end) = client.rest().await;
    assert_eq!(text, "");
    assert!(end.contains("given up"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn slow_clients_are_slowed_and_not_cut() {
    // 1 kB/s and 20 kB/s, behind a wire that swallows 1 MB at a time, as kernels do.
    for rate in [1_000_u32, 20_000] {
        let rig = Rig::new();
        let (tap, mut client) = rig.listen().await;
        let data = note(&"x".repeat(10_000));
        let feed = tokio::spawn(async move {
            for number in 0..400 {
                if tap.send(event(&number.to_string(), &data)).is_err() {
                    return false;
                }
            }
            true
        });
        assert!(feed.await.unwrap());
        let mut read = 0;
        while read < 3_000_000 {
            // The wire takes a megabyte at once, and is then not ready until the client has read it.
            let mut burst = 0;
            while burst < 1_000_000 {
                burst += client.read().await.unwrap().len();
            }
            read += burst;
            tokio::time::sleep(Duration::from_secs(burst as u64 / u64::from(rate))).await;
            assert_eq!(rig.figures().streams_torn_down, 0, "at {rate} B/s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_takes_nothing_along() {
    let rig = Rig::with(|layer| layer.on_stalled(|_| panic!("the hook's own fault")));
    for _ in 0..2 {
        let (tap, _client) = rig.stuck(1).await;
        tokio::time::sleep(TIMEOUT).await;
        assert!(tap.is_closed());
    }
    assert_eq!(rig.figures().streams_torn_down, 2);
}

#[tokio::test(start_paused = true)]
async fn an_answered_stream_that_is_not_read_is_torn_down_with_its_answer_unread() {
    let rig = Rig::new();
    let (tap, client) = rig.call("1").await;
    tap.event("1", &result("1"));
    drop(tap);
    settle().await;
    let figures = rig.figures();
    assert_eq!((figures.reserved, figures.undrained_messages), (1, 1));
    tokio::time::sleep(TIMEOUT + WINDOW).await;
    let figures = rig.figures();
    assert_eq!((figures.reserved, figures.undrained_messages), (0, 0));
    drop::<Client>(client);
    rig.assert_blank();
}
