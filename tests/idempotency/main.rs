//! The layer of idempotency keys alone: an inner service that remembers, the embedded ledger, and paused time.

#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../support/mod.rs"]
mod support;

mod bodies;
mod claims;
mod cost;
mod crowds;
mod detached;
mod drops;
mod effects;
mod field_reports;
mod keys;
mod outcomes;
mod retiring;
mod streams;
mod waiting;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use mcp_session_guard::{
    clock::TokioClock,
    idempotency_key::{IdempotencyKey, IdempotencyKeyLayer, ResponseBody},
    store::{MemoryConfig, MemoryStore},
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use support::{
    Answer, Sent,
    inner::{Inner, InnerBody, respond},
    ledger::Ledger,
    post,
};

const LEASE: Duration = Duration::from_secs(30);

/// An instance of the service, keyed.
#[derive(Clone)]
struct Node {
    service: IdempotencyKey<Inner>,
    inner: Inner,
    ledger: Ledger,
}

impl Node {
    fn start() -> Self {
        Self::with(&memory(), |layer| layer)
    }

    fn with(
        store: &MemoryStore,
        configure: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer,
    ) -> Self {
        let ledger = Ledger::new(store.clone());
        let inner = Inner::new("s");
        inner.script(|asked| {
            let answer = answer(&asked.body, &json!({"done": true}));
            async move { answer }
        });
        let layer = configure(IdempotencyKeyLayer::new(ledger.clone()).with_lease(LEASE));
        Self {
            service: layer.layer(inner.clone()),
            inner,
            ledger,
        }
    }

    async fn respond(&self, request: Request<Sent>) -> Response<ResponseBody<InnerBody>> {
        let response = self.service.clone().oneshot(request).await;
        response.expect("no error")
    }

    async fn send(&self, request: Request<Sent>) -> Answer {
        Answer::read(self.respond(request).await).await
    }

    /// A call with a key, answered.
    async fn call(&self, key: &str, id: u64) -> Answer {
        self.send(keyed(key, call(id))).await
    }

    /// How often the tool ran since the last time it was asked for.
    fn runs(&self) -> usize {
        self.inner.take().len()
    }
}

fn memory() -> MemoryStore {
    MemoryStore::with_clock(MemoryConfig::default(), TokioClock::new())
}

/// The answer to whatever was asked.
fn answer(body: &str, result: &Value) -> Response<InnerBody> {
    let asked: Value = serde_json::from_str(body).expect("JSON");
    let message = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    respond(http::StatusCode::OK, message.to_string())
}

fn call(id: u64) -> String {
    call_of("pay", &json!(id))
}

fn call_of(tool: &str, id: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": tool, "arguments": {"amount": 5}}})
    .to_string()
}

/// A request with a key, of the session `s`.
fn keyed(key: &str, body: impl Into<Bytes>) -> Request<Sent> {
    with_header(post(Some("s"), body), "idempotency-key", key)
}

fn with_header(mut request: Request<Sent>, name: &'static str, value: &str) -> Request<Sent> {
    let value = value.parse().expect("a value");
    request.headers_mut().insert(name, value);
    request
}

/// A request of the era without sessions, from a client that is known.
fn modern(key: &str, body: impl Into<Bytes>) -> Request<Sent> {
    let request = with_header(post(None, body), "idempotency-key", key);
    let request = with_header(request, "mcp-protocol-version", "2026-07-28");
    with_header(request, "mcp-method", "tools/call")
}

/// Whose key it is, from a header.
fn by_user(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    layer.with_principal(|head| Some(head.headers.get("x-user")?.to_str().ok()?.into()))
}

fn is_replay(answer: &Answer) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

/// Lets every task run until it waits for something that is not coming.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Polls until it is so, for as long as a test may take.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}
