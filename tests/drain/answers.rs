//! Answers that are no streams.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;

use super::{
    Client, Rig, SESSION, TIMEOUT, WINDOW, call, over_http2, ping, settle,
    support::{
        inner::{respond, stream},
        post,
    },
};

#[tokio::test(start_paused = true)]
async fn an_unread_json_answer_counts_and_a_read_one_does_not() {
    let rig = Rig::new();
    let mut unread = Vec::new();
    for number in 0..4 {
        unread.push(
            rig.send(post(Some(SESSION), ping(&number.to_string())))
                .await,
        );
    }
    let figures = rig.figures();
    assert_eq!((figures.reserved, figures.undrained_messages), (4, 4));
    assert_eq!(rig.ping("5").await.status, 200, "it has just begun to wait");
    tokio::time::sleep(WINDOW).await;
    assert_eq!(rig.ping("5").await.status, 429);
    let last = unread.pop().unwrap();
    assert_eq!(last.body().size_hint().exact(), Some(36));
    last.into_body().collect().await.unwrap();
    assert_eq!(rig.ping("5").await.status, 200);
    drop(unread);
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn a_small_answer_that_nobody_reads_gives_its_credit_back_and_is_still_true() {
    let rig = Rig::new();
    let unread = rig.send(over_http2(post(Some(SESSION), ping("1")))).await;
    tokio::time::sleep(TIMEOUT + WINDOW).await;
    let figures = rig.figures();
    assert_eq!((figures.reserved, figures.streams_torn_down), (0, 1));
    assert_eq!(figures.sessions_ended, 0);
    let body = unread.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"{"));
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_that_nobody_reads_is_dropped() {
    let rig = Rig::new();
    rig.inner.script(|_| async {
        let (tap, mut response) = stream();
        tap.send(vec![b'x'; 100_000]).unwrap();
        tap.send("y").unwrap();
        response.headers_mut().remove("content-type");
        std::mem::forget(tap);
        response
    });
    let response = rig.send(post(Some(SESSION), call("1"))).await;
    let mut client = Client::new(response);
    assert_eq!(client.read().await.unwrap().len(), 100_000);
    // 100 kB take the slowest client 100 seconds.
    tokio::time::sleep(TIMEOUT + TIMEOUT).await;
    assert_eq!(rig.figures().streams_torn_down, 0);
    tokio::time::sleep(TIMEOUT).await;
    assert_eq!(rig.figures().streams_torn_down, 1);
    assert!(client.read().await.unwrap_err().contains("given up"));
    drop(client);
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_body_is_done_at_once() {
    let rig = Rig::new();
    rig.inner
        .script(|_| async { respond(StatusCode::ACCEPTED, "") });
    let response: Response<_> = rig.send(post(Some(SESSION), call("1"))).await;
    assert_eq!(response.status(), 202);
    rig.assert_blank();
    drop(response);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_waits_for_the_inner_service_is_not_slow() {
    let rig = Rig::new();
    let (tap, mut response) = stream();
    response.headers_mut().remove("content-type");
    let response = std::sync::Mutex::new(Some(response));
    rig.inner.script(move |_| {
        let response = response.lock().unwrap().take().unwrap();
        async move { response }
    });
    let mut response = rig.send(post(Some(SESSION), call("1"))).await;
    let read = tokio::spawn(async move {
        let first = response.body_mut().frame().await;
        (first.is_some(), response)
    });
    tokio::time::sleep(TIMEOUT * 10).await;
    assert_eq!(rig.figures().streams_torn_down, 0);
    tap.send(Bytes::from_static(b"{}")).unwrap();
    let (answered, response) = read.await.unwrap();
    assert!(answered);
    drop(response);
    settle().await;
    rig.assert_blank();
}
