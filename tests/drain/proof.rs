//! Proof of arrival: a ping down the stream, and the client's answer to it.

use std::time::Duration;

use mcp_session_guard::drain_credit::DrainCreditLayer;

use super::{Client, Rig, SESSION, TIMEOUT, WINDOW, event, note, settle, support::post};

fn proven() -> Rig {
    Rig::with(DrainCreditLayer::with_proof_of_arrival)
}

/// Reads everything, as a buffering proxy does, and gives the id of the ping among it.
async fn swallow(client: &mut Client) -> String {
    loop {
        let text = client.read().await.unwrap();
        if let Some(message) = text.strip_prefix("data: ") {
            let message: serde_json::Value = serde_json::from_str(message.trim_end()).unwrap();
            assert_eq!(message["method"], "ping");
            return message["id"].as_str().unwrap().to_owned();
        }
    }
}

fn pong(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_client_behind_a_proxy_that_swallows_everything_is_half_open_all_the_same() {
    let rig = proven();
    let (tap, mut client) = rig.listen().await;
    for number in 0..4 {
        tap.event(&number.to_string(), &note("x"));
    }
    swallow(&mut client).await;
    assert_eq!(rig.figures().undrained_messages, 4);
    tokio::time::sleep(WINDOW).await;
    assert_eq!(rig.ping("1").await.refusal(), (429, "stream_half_open"));
    tokio::time::sleep(TIMEOUT).await;
    assert!(tap.is_closed());
    assert_eq!(rig.figures().sessions_ended, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_proves_what_came_before_it_and_goes_no_further() {
    let rig = proven();
    let (tap, mut client) = rig.listen().await;
    for number in 0..4 {
        tap.event(&number.to_string(), &note("x"));
    }
    let id = swallow(&mut client).await;
    tap.event("4", &note("y"));
    assert_eq!(client.read().await.unwrap(), event("4", &note("y")));
    rig.inner.take();
    tokio::time::sleep(WINDOW * 2).await;
    let answered = rig.answer(post(Some(SESSION), pong(&id))).await;
    assert_eq!((answered.status, answered.text.as_str()), (202, ""));
    assert_eq!(rig.inner.take(), []);
    assert_eq!(rig.figures().undrained_messages, 1);
    assert_eq!(rig.ping("1").await.status, 200);
    // Once: the next one is asked for what came after.
    let next = swallow(&mut client).await;
    assert_ne!(next, id);
    rig.inner.take();
    rig.answer(post(Some(SESSION), pong(&id))).await;
    assert_eq!(rig.inner.take().len(), 1, "nobody waits for this one");
    rig.answer(post(Some(SESSION), pong(&next))).await;
    assert_eq!(rig.figures().undrained_messages, 0);
    drop(client);
    settle().await;
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_lives_however_long_it_goes_on() {
    let rig = proven();
    let (tap, mut client) = rig.listen().await;
    for round in 0..200 {
        tap.event(&round.to_string(), &note("x"));
        assert_eq!(
            client.read().await.unwrap(),
            event(&round.to_string(), &note("x"))
        );
        let id = swallow(&mut client).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(rig.answer(post(Some(SESSION), pong(&id))).await.status, 202);
    }
    assert_eq!(rig.figures().streams_torn_down, 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_who_has_nothing_to_prove() {
    let rig = proven();
    let (_tap, mut client) = rig.listen().await;
    let heard = tokio::spawn(async move { client.read().await });
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert!(!heard.is_finished(), "nothing was said");
    assert_eq!(rig.figures().undrained_messages, 0);
}
