//! What passed over the server's socket, noted outside of the guards.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use bytes::BytesMut;
use http::Method;
use http_body_util::BodyExt;
use mcp_session_guard::outbox::Cursor;
use tokio::{sync::watch, time::timeout};

use crate::until;

#[derive(Debug, Clone)]
pub struct Exchange {
    pub method: Method,
    /// The session that the request named.
    pub session: Option<String>,
    /// Its `Last-Event-ID`.
    pub cursor: Option<Cursor>,
    pub status: u16,
    /// The answer, as far as it was sent.
    pub sent: BytesMut,
    /// Whether the answer has ended, or its client has gone.
    pub over: bool,
}

impl Exchange {
    fn of(request: &Request) -> Self {
        let header = |name| request.headers().get(name);
        let cursor = header("last-event-id").map(|id| {
            Cursor::parse(id.as_bytes()).unwrap_or_else(|_| panic!("not one of ours: {id:?}"))
        });
        Self {
            method: request.method().clone(),
            session: header("mcp-session-id")
                .map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned()),
            cursor,
            status: 0,
            sent: BytesMut::new(),
            over: false,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Wire(std::sync::Arc<watch::Sender<Vec<Exchange>>>);

impl Wire {
    /// What came back to a stream, in the order in which it was answered.
    pub fn resumes(&self, stream: u64) -> Vec<Exchange> {
        resumes(&self.0.borrow(), stream)
    }

    /// Waits until clients have come back to a stream so often.
    pub async fn resumed(&self, stream: u64, times: usize) {
        let what = format!("{times} resumes of stream {stream}");
        until(&self.0, &what, |all| resumes(all, stream).len() == times).await;
    }

    /// Waits until anything at all has been answered.
    pub async fn reached(&self) {
        until(&self.0, "a request", |all| !all.is_empty()).await;
    }

    /// Whether clients have come back to a stream so often, in this time.
    pub async fn comes_back(&self, stream: u64, times: usize, within: Duration) -> bool {
        let mut watching = self.0.subscribe();
        let often = watching.wait_for(|all| resumes(all, stream).len() >= times);
        timeout(within, often).await.is_ok()
    }

    /// How many requests were refused, by whatever status, but for those that come back to a stream.
    pub fn refusals(&self) -> usize {
        let all = self.0.borrow();
        let refused = |one: &&Exchange| one.status >= 400 && one.cursor.is_none();
        all.iter().filter(refused).count()
    }

    /// Waits until nothing is on its way but streams that answer nobody, of which this is the cursors' number.
    pub async fn quiet(&self, standalone: Option<u64>) {
        let is_standalone = |exchange: &Exchange| {
            let of = exchange.cursor.as_ref().map(|cursor| cursor.stream);
            exchange.method == Method::GET && (of.is_none() || of == standalone)
        };
        let quiet = |all: &Vec<Exchange>| all.iter().all(|one| one.over || is_standalone(one));
        until(&self.0, "the end of all answers", quiet).await;
    }

    /// How often something was sent, on whatever stream.
    pub fn times_sent(&self, text: &str) -> usize {
        let all = self.0.borrow();
        let of = |one: &Exchange| String::from_utf8_lossy(&one.sent).matches(text).count();
        all.iter().map(of).sum()
    }

    /// The session that the client has.
    pub fn session(&self) -> String {
        let all = self.0.borrow();
        let session = all.iter().find_map(|one| one.session.clone());
        session.expect("a session")
    }

    /// How many sessions were asked for.
    pub fn openings(&self) -> usize {
        let all = self.0.borrow();
        let opening = |one: &&Exchange| one.method == Method::POST && one.session.is_none();
        all.iter().filter(opening).count()
    }
}

fn resumes(all: &[Exchange], stream: u64) -> Vec<Exchange> {
    let of = |one: &&Exchange| one.cursor.as_ref().is_some_and(|at| at.stream == stream);
    all.iter().filter(of).cloned().collect()
}

/// Says of one exchange that it is over, wherever its body ends or is dropped.
struct Under {
    wire: Wire,
    number: usize,
}

impl Under {
    fn note(&self, change: impl FnOnce(&mut Exchange)) {
        self.wire.0.send_modify(|all| change(&mut all[self.number]));
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        self.note(|exchange| exchange.over = true);
    }
}

/// Notes every request once its answer begins.
pub async fn note(State(wire): State<Wire>, request: Request, next: Next) -> Response {
    let mut exchange = Exchange::of(&request);
    let response = next.run(request).await;
    exchange.status = response.status().as_u16();
    let mut number = 0;
    wire.0.send_modify(|all| {
        number = all.len();
        all.push(exchange);
    });
    let under = Under { wire, number };
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            if let Some(data) = frame.data_ref() {
                under.note(|exchange| exchange.sent.extend_from_slice(data));
            }
            frame
        }))
    })
}
