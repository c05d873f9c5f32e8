//! The drain layer, alone around an inner service that streams what it is told, and around a resume guard, under paused
//! time.

#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../support/mod.rs"]
mod support;

mod admission;
mod answers;
mod attached;
mod carrier;
mod field_reports;
mod proof;
mod streams;
mod teardown;

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use mcp_session_guard::drain_credit::{
    DrainCredit, DrainCreditLayer, Figures, ResponseBody, Stalled,
};
use tower::{Layer, ServiceExt};

use support::{
    Answer, Sent, get,
    inner::{Asked, Inner, InnerBody, Tap, opening, respond, stream},
    post,
};

pub(crate) const WINDOW: Duration = Duration::from_secs(5);
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const SESSION: &str = "session-1";

pub(crate) type Body = ResponseBody<InnerBody>;

/// The layer alone.
pub(crate) struct Rig {
    pub(crate) layer: DrainCreditLayer,
    pub(crate) service: DrainCredit<Inner>,
    pub(crate) inner: Inner,
    pub(crate) stalled: Arc<Mutex<Vec<Stalled>>>,
    taps: Taps,
}

pub(crate) type Taps = Arc<Mutex<VecDeque<(Asked, Tap)>>>;

impl Rig {
    /// Credit for four messages, and a high-water mark at eight.
    pub(crate) fn new() -> Self {
        Self::with(|layer| layer)
    }

    pub(crate) fn with(change: impl FnOnce(DrainCreditLayer) -> DrainCreditLayer) -> Self {
        let stalled = Arc::<Mutex<Vec<Stalled>>>::default();
        let seen = Arc::clone(&stalled);
        let layer = DrainCreditLayer::new()
            .with_credit(4, 100_000)
            .with_high_water(2)
            .with_drain_window(WINDOW)
            .with_liveness(TIMEOUT, 1000)
            .on_stalled(move |what| seen.lock().unwrap().push(what.clone()));
        let layer = change(layer);
        let inner = Inner::new("inner");
        let taps = streaming(&inner);
        Self {
            service: layer.layer(inner.clone()),
            layer,
            inner,
            stalled,
            taps,
        }
    }

    pub(crate) async fn send(&self, request: Request<Sent>) -> Response<Body> {
        self.service.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn answer(&self, request: Request<Sent>) -> Answer {
        Answer::read(self.send(request).await).await
    }

    /// A call whose answer is a stream.
    pub(crate) async fn call(&self, id: &str) -> (Tap, Client) {
        let client = self.open(post(Some(SESSION), call(id))).await;
        (self.tap(), client)
    }

    /// The session's own stream.
    pub(crate) async fn listen(&self) -> (Tap, Client) {
        let client = self.open(get(SESSION)).await;
        (self.tap(), client)
    }

    pub(crate) async fn open(&self, request: Request<Sent>) -> Client {
        let response = self.send(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{response:?}");
        Client::new(response)
    }

    pub(crate) fn tap(&self) -> Tap {
        let mut taps = self.taps.lock().unwrap();
        taps.pop_front().expect("the inner service was asked").1
    }

    pub(crate) fn figures(&self) -> Figures {
        self.layer.figures()
    }

    /// Nothing is outstanding and nothing is remembered.
    pub(crate) fn assert_blank(&self) {
        let figures = self.figures();
        assert_eq!(
            (
                figures.sessions,
                figures.reserved,
                figures.undrained_messages,
                figures.undrained_bytes
            ),
            (0, 0, 0, 0),
            "{figures:?}"
        );
    }

    /// A ping, which is answered at once if it is let through.
    pub(crate) async fn ping(&self, id: &str) -> Answer {
        self.answer(post(Some(SESSION), ping(id))).await
    }

    /// A stream of the session with so many undrained messages, that has stood still for the drain window.
    pub(crate) async fn stuck(&self, messages: usize) -> (Tap, Client) {
        let (tap, client) = self.listen().await;
        for number in 0..messages {
            tap.event(&number.to_string(), &note("x"));
        }
        tokio::time::sleep(WINDOW + Duration::from_millis(1)).await;
        (tap, client)
    }
}

pub(crate) fn streaming(inner: &Inner) -> Taps {
    let taps = Taps::default();
    let kept = Arc::clone(&taps);
    inner.script(move |asked| {
        let streams = asked.method == Method::GET || asked.body.contains("tools/call");
        let response = if streams {
            let (tap, response) = stream();
            kept.lock().unwrap().push_back((asked.clone(), tap));
            response
        } else if asked.body.contains(r#""initialize""#) {
            opening(SESSION)
        } else if asked.method == Method::DELETE {
            respond(StatusCode::NO_CONTENT, "")
        } else if asked.body.contains(r#""method""#) && asked.body.contains(r#""id""#) {
            respond(StatusCode::OK, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)
        } else {
            respond(StatusCode::ACCEPTED, "")
        };
        async move { response }
    });
    taps
}

/// A client that reads when it is told to.
pub(crate) struct Client {
    body: Pin<Box<Body>>,
}

impl Client {
    pub(crate) fn new(response: Response<Body>) -> Self {
        Self {
            body: Box::pin(response.into_body()),
        }
    }

    /// What comes next; fails when nothing comes for a second.
    pub(crate) async fn read(&mut self) -> Result<String, String> {
        let next = tokio::time::timeout(Duration::from_secs(1), self.body.frame());
        match next.await.expect("something comes") {
            None => Err("end".to_owned()),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(frame)) => {
                let data = frame.into_data().expect("data");
                Ok(String::from_utf8(data.to_vec()).expect("text"))
            }
        }
    }

    /// Everything up to the end, and how it ended.
    pub(crate) async fn rest(&mut self) -> (String, String) {
        let mut text = String::new();
        loop {
            match self.read().await {
                Ok(more) => text += &more,
                Err(end) => return (text, end),
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// Lets every task run until it waits for something that is not coming.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(crate) fn call(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{}}}}}}"#
    )
}

pub(crate) fn ping(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

pub(crate) fn result(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#)
}

pub(crate) fn note(text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{text}"}}}}"#)
}

pub(crate) fn event(id: &str, data: &str) -> String {
    format!("id: {id}\ndata: {data}\n\n")
}

pub(crate) fn over_http2(mut request: Request<Sent>) -> Request<Sent> {
    *request.version_mut() = Version::HTTP_2;
    request
}

/// A request whose body arrives in pieces, or never ends.
pub(crate) fn raw(session: &str, body: impl Into<Bytes>) -> Request<Sent> {
    post(Some(session), body)
}
