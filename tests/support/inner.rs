//! An MCP service for unit tests: opens sessions, remembers what it was asked, and answers as it is told.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use mcp_session_guard::{affinity_guard::Disposition, idempotency_key::DownstreamKey};
use tower::Service;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type InnerBody = UnsyncBoxBody<Bytes, BoxError>;

/// What the service was asked once.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub method: Method,
    pub session: Option<String>,
    pub last_event_id: Option<String>,
    pub disposition: Option<Disposition>,
    pub downstream: Option<DownstreamKey>,
    pub body: String,
}

type Script =
    dyn Fn(&Asked) -> Pin<Box<dyn Future<Output = Response<InnerBody>> + Send>> + Send + Sync;

#[derive(Clone)]
pub struct Inner {
    asked: Arc<Mutex<Vec<Asked>>>,
    opened: Arc<AtomicUsize>,
    script: Arc<Mutex<Option<Arc<Script>>>>,
    name: &'static str,
}

impl Inner {
    /// Mints ids that begin with `name`.
    pub fn new(name: &'static str) -> Self {
        Self {
            asked: Arc::default(),
            opened: Arc::default(),
            script: Arc::default(),
            name,
        }
    }

    /// Answers everything by `script` from now on.
    pub fn script<F>(&self, script: impl Fn(&Asked) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Response<InnerBody>> + Send + 'static,
    {
        *self.script.lock().unwrap() = Some(Arc::new(move |asked| Box::pin(script(asked))));
    }

    pub fn unscript(&self) {
        *self.script.lock().unwrap() = None;
    }

    /// What it was asked since the last time this was called.
    pub fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn answer(&self, asked: &Asked) -> Response<InnerBody> {
        if asked.method == Method::DELETE {
            return respond(StatusCode::NO_CONTENT, "");
        }
        if !asked.body.contains(r#""initialize""#) {
            return respond(StatusCode::OK, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        }
        let id = self.opened.fetch_add(1, Ordering::Relaxed);
        opening(&format!("{}-{id}", self.name))
    }
}

pub fn respond(status: StatusCode, body: impl Into<Bytes>) -> Response<InnerBody> {
    let body = http_body_util::Full::new(body.into()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    response
}

pub const SERVER: &str = r#"{"tools":{}}"#;

/// A JSON answer to `initialize` that opens a session.
pub fn opening(id: &str) -> Response<InnerBody> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"2025-11-25","capabilities":{SERVER},"serverInfo":{{"name":"s","version":"1"}}}}}}"#
    );
    let mut response = respond(StatusCode::OK, body);
    response
        .headers_mut()
        .insert("mcp-session-id", id.parse().unwrap());
    response
}

/// The sending end of a response that streams. Dropped, the stream ends.
#[derive(Debug)]
pub struct Tap(tokio::sync::mpsc::UnboundedSender<Result<Bytes, BoxError>>);

impl Tap {
    pub fn send(&self, text: impl Into<Bytes>) -> Result<(), &'static str> {
        self.0.send(Ok(text.into())).map_err(|_| "nobody reads")
    }

    /// One event with an id of the inner service's own.
    pub fn event(&self, id: &str, data: &str) {
        self.send(format!("id: {id}\ndata: {data}\n\n")).unwrap();
    }

    /// The stream breaks.
    pub fn fail(self) {
        self.0.send(Err("the connection broke".into())).unwrap();
    }

    /// Whether the body was dropped.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// A response that streams whatever the other end sends.
pub fn stream() -> (Tap, Response<InnerBody>) {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<Result<Bytes, BoxError>>();
    let frames = futures_util::stream::poll_fn(move |cx| {
        receiver
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| piece.map(http_body::Frame::data)))
    });
    let body = http_body_util::StreamBody::new(frames);
    let mut response = Response::new(body.boxed_unsync());
    response
        .headers_mut()
        .insert("content-type", "text/event-stream".parse().unwrap());
    (Tap(sender), response)
}

impl<B> Service<Request<B>> for Inner
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Debug,
{
    type Response = Response<InnerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<InnerBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let disposition = Disposition::of(&request);
            let downstream = DownstreamKey::of(&request);
            let (parts, body) = request.into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            let header = |name| {
                let value = parts.headers.get(name);
                value.map(|value: &http::HeaderValue| value.to_str().unwrap().to_owned())
            };
            let asked = Asked {
                session: header("mcp-session-id"),
                last_event_id: header("last-event-id"),
                method: parts.method,
                disposition,
                downstream,
                body: String::from_utf8(body.to_vec()).unwrap(),
            };
            this.asked.lock().unwrap().push(asked.clone());
            let script = this.script.lock().unwrap().clone();
            Ok(match script {
                Some(script) => script(&asked).await,
                None => this.answer(&asked),
            })
        })
    }
}
