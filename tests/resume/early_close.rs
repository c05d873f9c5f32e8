//! Inner services that close a stream before the answer and expect to be asked for the rest (SEP-1699).

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;

use super::{
    Pod, note, result,
    support::{Stage, inner::respond},
};

#[tokio::test(start_paused = true)]
async fn the_rest_is_fetched_with_the_inner_services_own_id_and_the_client_notices_nothing() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    pod.inner.take();
    tap.send("id: own-0\nretry: 2000\ndata:\n\n").unwrap();
    tap.event("own-1", &note("1"));
    drop(tap);
    assert_eq!(reader.message().await.data.unwrap(), note("1"));
    let begun = tokio::time::Instant::now();
    while pod.untapped() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        begun.elapsed() >= Duration::from_millis(1900),
        "as it asked"
    );
    let asked = pod.inner.take();
    assert_eq!(asked[0].method, Method::GET);
    assert_eq!(asked[0].last_event_id.as_deref(), Some("own-1"));
    assert_eq!(asked[0].session.as_deref(), Some(&*session));
    assert_eq!(asked[0].body, "");
    // A second time, from the newer id.
    let again = pod.tap();
    again.event("own-2", &note("2"));
    drop(again);
    assert_eq!(reader.message().await.data.unwrap(), note("2"));
    while pod.untapped() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pod.tap().event("own-3", &result("1"));
    let answer = reader.message().await;
    assert_eq!(answer.data.as_deref(), Some(&*result("1")));
    assert!(answer.id().contains(".3"), "numbered on");
    assert_eq!(reader.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_to_the_inner_service_is_followed_up_too() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("own-1", &note("1"));
    tap.fail();
    reader.message().await;
    while pod.untapped() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pod.tap().event("own-2", &result("1"));
    assert_eq!(reader.message().await.data.unwrap(), result("1"));
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_refuses_the_rest_is_given_up() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("own-1", &note("1"));
    pod.inner.take();
    pod.inner
        .script(|_| async { respond(StatusCode::METHOD_NOT_ALLOWED, "") });
    drop(tap);
    reader.message().await;
    assert_eq!(
        reader.message().await.error(),
        ("outcome_unknown".into(), json!(1))
    );
    assert_eq!(reader.next().await, None);
    assert_eq!(pod.inner.take().len(), 3, "tried, but not for ever");
}

#[tokio::test(start_paused = true)]
async fn what_owes_nothing_is_not_followed_up() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let mut reader = pod.listen(&session).await;
    let tap = pod.tap();
    tap.event("own-1", &note("1"));
    drop(tap);
    assert_eq!(reader.rest().await.len(), 1);
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("own-1", &result("1"));
    drop(tap);
    assert_eq!(reader.rest().await.len(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(pod.untapped(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_may_be_away_while_the_rest_is_fetched() {
    let stage = Stage::set();
    let pod = Pod::start(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    drop(reader);
    tap.event("own-1", &note("1"));
    drop(tap);
    while pod.untapped() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pod.tap().event("own-2", &result("1"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut again = pod.resume(&session, priming.id()).await;
    assert_eq!(again.rest().await.len(), 2);
}
