//! What admission with credit left costs besides time: no allocation, no look into the body, and no memory of sessions
//! that have nothing outstanding.

mod support;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use allocation_counter::{AllocationInfo, measure};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::Full;
use mcp_session_guard::drain_credit::{DrainCredit, DrainCreditLayer};
use tower::{Layer, Service};

const PONG: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;

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

/// A request body that counts how often somebody looks into it.
struct Watched(Full<Bytes>, Arc<AtomicUsize>);

impl Body for Watched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

struct Rig {
    inner: Prepared,
    layer: DrainCreditLayer,
    service: DrainCredit<Prepared>,
    polls: Arc<AtomicUsize>,
}

impl Rig {
    fn set() -> Self {
        let inner = Prepared::default();
        let layer = DrainCreditLayer::new();
        Self {
            service: layer.layer(inner.clone()),
            inner,
            layer,
            polls: Arc::default(),
        }
    }

    /// Sends a request that is answered at once, reads the answer, and says what was allocated meanwhile.
    fn send(&mut self, request: Request<Full<Bytes>>) -> AllocationInfo {
        let mut response = Response::new(Full::from(PONG));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert("content-type", json);
        self.inner.0.lock().unwrap().push(response);
        let polls = Arc::clone(&self.polls);
        let mut request = Some(request.map(|body| Watched(body, polls)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Service::<Request<Watched>>::poll_ready(&mut self.service, &mut cx).is_ready());
        let (mut read, mut status) = (0, None);
        let allocated = measure(|| {
            let request = request.take().expect("measured once");
            let response = self.service.call(request).now_or_never().expect("no wait");
            let response = response.expect("an answer");
            status = Some(response.status());
            let mut body = std::pin::pin!(response.into_body());
            while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
                read += frame.map_or(0, |frame| frame.data_ref().map_or(0, Bytes::len));
            }
        });
        assert_eq!(status, Some(StatusCode::OK));
        assert_eq!(read, PONG.len(), "the answer came through");
        allocated
    }
}

fn call(session: &str) -> Request<Full<Bytes>> {
    support::post(Some(session), support::CALL)
}

#[test]
fn the_counter_counts() {
    let allocated = measure(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(allocated.count_total, 1);
}

#[tokio::test]
async fn admission_with_credit_left_is_free() {
    let mut rig = Rig::set();
    // The first request sets up what stays: how to end a session, the task that looks, a slot for each shard.
    for number in 0..2000 {
        rig.send(call(&format!("warm-{number}")));
    }
    tokio::task::yield_now().await;
    rig.send(call("again"));
    for session in ["again", "a-session-that-was-never-seen-before"] {
        let allocated = rig.send(call(session));
        assert_eq!(allocated.count_total, 0, "{allocated:?}");
    }
    assert_eq!(rig.polls.load(Ordering::Relaxed), 0);
    assert_eq!(rig.layer.figures().sessions, 0);
}

#[tokio::test]
async fn sessions_that_were_only_claimed_leave_nothing() {
    let mut rig = Rig::set();
    let mut claim = |range: std::ops::Range<usize>| {
        for number in range {
            let long = format!("{number}-{}", "x".repeat(900));
            let _ = rig.send(call(&long));
        }
    };
    // A place in each shard is kept.
    claim(0..2000);
    let grown = measure(|| claim(2000..12_000));
    assert!(grown.bytes_current < 1000, "{grown:?}");
    assert_eq!(rig.layer.figures().sessions, 0);
}
