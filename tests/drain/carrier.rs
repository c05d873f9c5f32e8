//! HTTP+SSE (MCP 2024-11-05): the session stands in the query, and all answers come on one stream.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use mcp_session_guard::drain_credit::DrainCreditLayer;

use super::{
    Client, Rig, TIMEOUT, WINDOW, call, event, note, result, settle,
    support::{
        Answer, Sent,
        inner::{InnerBody, Tap, respond, stream},
    },
};

fn legacy(layer: DrainCreditLayer) -> DrainCreditLayer {
    layer.with_session_extractor(|uri, _| {
        let mut pairs = uri.query()?.split('&');
        pairs
            .find_map(|pair| pair.strip_prefix("sessionId="))
            .map(Into::into)
    })
}

fn legacy_post(session: &str, body: String) -> Request<Sent> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("/messages?x=1&sessionId={session}"))
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

async fn listen(rig: &Rig, session: &str) -> (Tap, Client) {
    let (tap, response) = stream();
    let response = std::sync::Mutex::new(Some(response));
    rig.inner.script(move |asked| {
        let response: Response<InnerBody> = match asked.method {
            Method::GET => response.lock().unwrap().take().unwrap(),
            _ => respond(StatusCode::ACCEPTED, "Accepted"),
        };
        async move { response }
    });
    let request = Request::get("/sse").body(Full::default()).unwrap();
    let mut client = rig.open(request).await;
    let endpoint = format!("event: endpoint\ndata: /messages?sessionId={session}\n\n");
    tap.send(endpoint.clone()).unwrap();
    assert_eq!(client.read().await.unwrap(), endpoint);
    (tap, client)
}

#[tokio::test(start_paused = true)]
async fn a_place_is_given_back_when_the_answer_with_its_id_drains() {
    let rig = Rig::with(legacy);
    let (tap, mut client) = listen(&rig, "a").await;
    for number in 0..4 {
        let answer = rig
            .answer(legacy_post("a", call(&number.to_string())))
            .await;
        assert_eq!(answer.status, 202);
    }
    assert_eq!(rig.figures().reserved, 4);
    for number in [2, 0, 3, 1] {
        tap.event("1", &result(&number.to_string()));
    }
    tap.event("1", &note("x"));
    settle().await;
    let figures = rig.figures();
    assert_eq!((figures.reserved, figures.undrained_messages), (4, 5));
    for left in (0..4).rev() {
        client.read().await.unwrap();
        assert_eq!(rig.figures().reserved, left);
    }
    client.read().await.unwrap();
    assert_eq!(rig.figures().undrained_messages, 0);
    drop(client);
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_read_is_refused_and_torn_down_and_nobody_else_is() {
    let rig = Rig::with(legacy);
    let (tap, _client) = listen(&rig, "a").await;
    for number in 0..4 {
        let id = number.to_string();
        assert_eq!(rig.answer(legacy_post("a", call(&id))).await.status, 202);
        tap.event("1", &result(&id));
    }
    tokio::time::sleep(WINDOW).await;
    rig.inner.take();
    let refused = rig.answer(legacy_post("a", call("9"))).await;
    assert_eq!(refused.refusal(), (429, "stream_half_open"));
    assert_eq!(refused.json()["id"], 9);
    assert_eq!(rig.inner.take(), []);
    assert_eq!(rig.answer(legacy_post("b", call("1"))).await.status, 202);
    tokio::time::sleep(TIMEOUT).await;
    assert!(tap.is_closed());
    assert_eq!(rig.figures().streams_torn_down, 1);
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn places_go_with_the_stream_that_their_answers_would_come_on() {
    let rig = Rig::with(legacy);
    let (_tap, client) = listen(&rig, "a").await;
    for number in 0..3 {
        rig.answer(legacy_post("a", call(&number.to_string())))
            .await;
    }
    // There is no stream for this one.
    rig.answer(legacy_post("b", call("1"))).await;
    assert_eq!(rig.figures().reserved, 3);
    drop(client);
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_drains_is_told_on_its_stream_after_what_was_said_before() {
    let rig = Rig::with(|layer| legacy(layer).with_error_frames());
    let (tap, mut client) = listen(&rig, "a").await;
    for number in 0..8 {
        let id = number.to_string();
        assert_eq!(rig.answer(legacy_post("a", call(&id))).await.status, 202);
    }
    tap.event("1", &result("0"));
    settle().await;
    let refused: Answer = rig.answer(legacy_post("a", call("8"))).await;
    assert_eq!((refused.status, refused.text.as_str()), (202, ""));
    assert_eq!(refused.header("mcp-guard-reason"), Some("stream_half_open"));
    assert_eq!(client.read().await.unwrap(), event("1", &result("0")));
    let told = client.read().await.unwrap();
    let error: serde_json::Value =
        serde_json::from_str(told.strip_prefix("data: ").unwrap().trim_end()).unwrap();
    assert_eq!(error["id"], 8);
    assert_eq!(error["error"]["data"]["reason"], "stream_half_open");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_never_says_whose_it_is_passes_and_is_bounded() {
    let rig = Rig::with(legacy);
    let (tap, response) = stream();
    let response = std::sync::Mutex::new(Some(response));
    rig.inner.script(move |_| {
        let response = response.lock().unwrap().take().unwrap();
        async move { response }
    });
    let request = Request::get("/sse").body(Full::default()).unwrap();
    let mut client = rig.open(request).await;
    for _ in 0..100 {
        tap.event("1", &note(&"x".repeat(1000)));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut read = String::new();
    while read.len() < 100 * 1000 {
        read += &client.read().await.unwrap();
    }
    rig.assert_blank();
}
