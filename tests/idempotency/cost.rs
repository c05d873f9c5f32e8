//! What requests cost besides time: allocations, calls of the ledger, looks into bodies.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use allocation_counter::measure;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::Full;
use mcp_session_guard::idempotency_key::IdempotencyKeyLayer;
use tower::{Layer, Service};

use crate::{
    call, keyed, memory, modern,
    support::{Sent, get, post},
    with_header,
};

/// Hands out answers that were made beforehand, so that it allocates nothing itself, and never reads a body.
#[derive(Clone, Default)]
struct Prepared(Arc<Mutex<Vec<Response<Full<Bytes>>>>>);

impl<B> Service<Request<B>> for Prepared {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let prepared = self.0.lock().unwrap().pop();
        ready(Ok(prepared.expect("an answer was prepared")))
    }
}

/// Sends requests that are answered at once; what the last one allocated.
fn allocations(requests: impl IntoIterator<Item = Request<Sent>>) -> u64 {
    let inner = Prepared::default();
    let mut service = IdempotencyKeyLayer::new(memory()).layer(inner.clone());
    let mut last = 0;
    for request in requests {
        let answer = Full::from(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let mut response = Response::new(answer);
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert("content-type", json);
        inner.0.lock().unwrap().push(response);
        let mut request = Some(request);
        let mut cx = Context::from_waker(Waker::noop());
        let allocated = measure(|| {
            let request = request.take().expect("measured once");
            let mut future = pin!(service.call(request));
            let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut cx) else {
                panic!("no answer at once");
            };
            let mut body = pin!(response.into_body());
            while let Poll::Ready(Some(_)) = body.as_mut().poll_frame(&mut cx) {}
        });
        last = allocated.count_total;
    }
    last
}

#[tokio::test]
async fn what_cannot_have_a_key_is_free() {
    let list = || with_header(modern("k", ""), "mcp-method", "tools/list");
    assert_eq!(allocations([list(), list()]), 0);
    assert_eq!(allocations([get("s"), get("s")]), 0);
}

#[tokio::test]
async fn a_body_without_a_key_costs_the_reading_of_it() {
    let plain = || post(Some("s"), call(1));
    let allocated = allocations([plain(), plain()]);
    assert!(allocated <= 3, "{allocated}");
}

#[tokio::test]
async fn a_key_costs_few_allocations() {
    let fresh = allocations([keyed("a", call(1)), keyed("b", call(1))]);
    assert!(fresh <= 24, "{fresh}");
    let replay = allocations([
        keyed("a", call(1)),
        keyed("a", call(1)),
        keyed("a", call(1)),
    ]);
    assert!(replay <= 16, "{replay}");
}

#[tokio::test(start_paused = true)]
async fn the_ledger_is_asked_no_more_than_needed() {
    let node = crate::Node::start();
    node.call("k", 1).await;
    let calls = |node: &crate::Node| {
        ["begin", "renew", "complete", "release"].map(|verb| node.ledger.take_calls(verb))
    };
    assert_eq!(calls(&node), [1, 0, 1, 0]);
    node.call("k", 2).await;
    assert_eq!(calls(&node), [1, 0, 0, 0]);
    node.send(post(Some("s"), call(3))).await;
    assert_eq!(calls(&node), [0; 4]);
}
