//! Reports from the field, each as an input and the outcome that is owed.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::ServiceExt;

use super::{
    Rig, SESSION, TIMEOUT, WINDOW, call, event, note, ping, result, settle,
    support::{delete, post},
};

/// tower-rs/tower-http#447
#[tokio::test(start_paused = true)]
async fn an_unread_stream_holds_its_place_beyond_the_headers() {
    let rig = Rig::with(|layer| layer.with_credit(1, 1 << 20).with_high_water(1));
    let (_tap, client) = rig.call("1").await;
    rig.inner.take();
    let refused = rig.answer(post(Some(SESSION), call("2"))).await;
    assert_eq!(refused.refusal(), (429, "stream_half_open"));
    assert_eq!(rig.inner.take(), []);
    drop(client);
    rig.call("2").await;
}

/// modelcontextprotocol/python-sdk#2934
#[tokio::test(start_paused = true)]
async fn an_unread_stream_does_not_hold_up_a_fast_call() {
    let rig = Rig::new();
    let (tap, _client) = rig.call("1").await;
    for _ in 0..2 {
        tap.event("1", &note("x"));
    }
    tokio::time::sleep(WINDOW * 2).await;
    let within = tokio::time::timeout(Duration::from_secs(1), async {
        let (tap, mut client) = rig.call("2").await;
        tap.event("1", &result("2"));
        client.read().await
    });
    assert!(rig.figures().undrained_messages < 4);
    assert_eq!(within.await.unwrap().unwrap(), event("1", &result("2")));
}

/// modelcontextprotocol/java-sdk#1022
#[tokio::test(start_paused = true)]
async fn comments_every_fifteen_seconds_keep_nothing_alive() {
    let rig = Rig::new();
    let (tap, _frozen) = rig.stuck(4).await;
    for _ in 0..3 {
        tap.send(": still here\n\n").unwrap();
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(rig.ping("1").await.status, 429);
    }
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(tap.is_closed());
}

/// modelcontextprotocol/python-sdk#2455
#[tokio::test(start_paused = true)]
async fn a_silent_tool_is_left_alone() {
    let rig = Rig::new();
    let (tap, mut client) = rig.call("1").await;
    tokio::time::sleep(TIMEOUT * 2).await;
    assert_eq!(rig.figures().streams_torn_down, 0);
    tap.event("1", &result("1"));
    assert_eq!(client.read().await.unwrap(), event("1", &result("1")));
}

/// modelcontextprotocol/rust-sdk#780, modelcontextprotocol/java-sdk#952
#[tokio::test(start_paused = true)]
async fn a_reset_stream_leaves_no_zombie_and_takes_no_session_along() {
    let rig = Rig::new();
    let (tap, client) = rig.stuck(4).await;
    assert_eq!(rig.ping("1").await.status, 429);
    drop(client);
    rig.assert_blank();
    assert_eq!(rig.ping("1").await.status, 200);
    settle().await;
    assert!(tap.is_closed());
    tokio::time::sleep(TIMEOUT * 2).await;
    assert_eq!(rig.figures().sessions_ended, 0);
}

/// modelcontextprotocol/typescript-sdk#1892
#[tokio::test(start_paused = true)]
async fn a_429_says_when_and_for_whom_and_never_to_what_frees_work() {
    let rig = Rig::with(|layer| layer.with_drain_window(Duration::from_millis(10)));
    let (_tap, _client) = rig.stuck(4).await;
    let refused = rig.ping("\"x\"").await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["id"], "x");
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#;
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for passes in [cancelled, response] {
        assert_eq!(rig.answer(post(Some(SESSION), passes)).await.status, 202);
    }
    assert_eq!(rig.answer(delete(SESSION)).await.status, 204);
}

/// envoyproxy/ai-gateway#2219
#[tokio::test(start_paused = true)]
async fn a_position_is_no_message_and_no_progress() {
    let rig = Rig::new();
    let (tap, mut client) = rig.call("1").await;
    tap.event("0", "");
    settle().await;
    assert_eq!(rig.figures().undrained_messages, 0);
    for _ in 0..4 {
        tap.event("1", &note("x"));
    }
    settle().await;
    assert_eq!(client.read().await.unwrap(), event("0", ""));
    assert_eq!(rig.figures().reserved, 1, "it was not the answer");
    tokio::time::sleep(WINDOW).await;
    assert_eq!(rig.ping("2").await.status, 429);
}

/// modelcontextprotocol/typescript-sdk#2670
#[tokio::test(start_paused = true)]
async fn a_batch_is_no_way_round() {
    let rig = Rig::new();
    let (_tap, _client) = rig.stuck(4).await;
    rig.inner.take();
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for batch in [
        format!("[{},{initialize},{note}]", call("1")),
        format!("[{}]", ping("1")),
    ] {
        let refused = rig.answer(post(Some(SESSION), batch)).await;
        assert_eq!(refused.status, 429);
        assert!(refused.json().is_array(), "{}", refused.text);
    }
    assert_eq!(rig.inner.take(), []);
}

type Chunked = StreamBody<
    Pin<
        Box<dyn futures_util::Stream<Item = Result<Frame<Bytes>, std::convert::Infallible>> + Send>,
    >,
>;

fn chunked(pieces: usize, then_hangs: bool) -> http::Request<Chunked> {
    let mut left = pieces;
    let stream = futures_util::stream::poll_fn(move |_: &mut Context<'_>| {
        if left == 0 {
            return if then_hangs {
                Poll::Pending
            } else {
                Poll::Ready(None)
            };
        }
        left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b' '; 1000])))))
    });
    let stream: Pin<Box<dyn futures_util::Stream<Item = _> + Send>> = Box::pin(stream);
    post(Some(SESSION), "").map(|_| StreamBody::new(stream))
}

/// tower-rs/tower-http#610
#[tokio::test(start_paused = true)]
async fn a_chunked_body_over_the_limit_is_refused_and_holds_nothing() {
    let rig = Rig::with(|layer| layer.with_body_limit(10_000));
    let (_tap, _client) = rig.stuck(4).await;
    rig.inner.take();
    let response = rig
        .service
        .clone()
        .oneshot(chunked(11, false))
        .await
        .unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(rig.inner.take(), []);
    assert_eq!(rig.figures().reserved, 0);
    // Below the credit it is no trouble.
    let below = Rig::with(|layer| layer.with_body_limit(10_000));
    let (_tap, _client) = below.stuck(3).await;
    let response = below.service.clone().oneshot(chunked(11, false)).await;
    assert_eq!(response.unwrap().status(), 202);
    // And one that does not arrive is not waited for beyond its time.
    let response = rig.service.clone().oneshot(chunked(1, true)).await.unwrap();
    assert_eq!(response.status(), 429);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.windows(9).any(|nine| nine == b"\"id\":null"));
    assert_eq!(rig.inner.take(), []);
}
