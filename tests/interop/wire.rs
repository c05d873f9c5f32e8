//! What passed over the server's socket, noted outside of the guards.

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::Method;
use http_body_util::BodyExt;
use mcp_session_guard::outbox::Cursor;
use tokio::sync::watch;

use crate::until;

#[derive(Debug, Clone)]
pub struct Exchange {
    pub method: Method,
    /// Whether the request named a session.
    pub session: bool,
    /// Its `Last-Event-ID`.
    pub cursor: Option<Cursor>,
    pub status: u16,
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
            session: header("mcp-session-id").is_some(),
            cursor,
            status: 0,
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

    /// Waits until nothing is on its way but streams that answer nobody, of which this is the cursors' number.
    pub async fn quiet(&self, standalone: Option<u64>) {
        let is_standalone = |exchange: &Exchange| {
            let of = exchange.cursor.as_ref().map(|cursor| cursor.stream);
            exchange.method == Method::GET && (of.is_none() || of == standalone)
        };
        let quiet = |all: &Vec<Exchange>| all.iter().all(|one| one.over || is_standalone(one));
        until(&self.0, "the end of all answers", quiet).await;
    }

    /// How many sessions were asked for.
    pub fn openings(&self) -> usize {
        let all = self.0.borrow();
        let opening = |one: &&Exchange| one.method == Method::POST && !one.session;
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

impl Drop for Under {
    fn drop(&mut self) {
        self.wire.0.send_modify(|all| all[self.number].over = true);
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
            let _ = &under;
            frame
        }))
    })
}
