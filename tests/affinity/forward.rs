//! The way home: requests that are handed to their session's owner, and ids that name it to an edge.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{
    FutureExt, TryFutureExt,
    future::{BoxFuture, pending, ready},
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use mcp_session_guard::affinity_guard::{
    AffinityGuard, AffinityGuardLayer, Forward, ForwardBody, ForwardError, ForwardErrorKind,
};
use tower::{Service, ServiceExt, service_fn};

use crate::{
    Node,
    support::{
        Answer, CALL, INITIALIZE, Sent, Stage, delete, get,
        inner::{BoxError, Inner, respond, stream},
        post,
    },
};

/// What is at an address.
#[derive(Clone)]
enum Line {
    Guard(AffinityGuard<Inner>),
    /// Nobody listens.
    Down,
    /// The connection breaks after the request was sent.
    Cut,
    Silent,
    /// Another program, which knows no sessions.
    Stranger,
}

/// Connects instances by their addresses, and remembers what came by.
#[derive(Clone, Default)]
struct Exchange {
    lines: Arc<Mutex<HashMap<String, Line>>>,
    heads: Arc<Mutex<Vec<http::HeaderMap>>>,
}

impl Exchange {
    fn connect(&self, name: &str, line: Line) {
        let address = format!("http://{name}");
        self.lines.lock().unwrap().insert(address, line);
    }

    fn heads(&self) -> Vec<http::HeaderMap> {
        std::mem::take(&mut self.heads.lock().unwrap())
    }

    fn forward(
        &self,
        forward: Forward,
    ) -> BoxFuture<'static, Result<Response<ForwardBody>, BoxError>> {
        let head = forward.request.headers().clone();
        self.heads.lock().unwrap().push(head);
        let line = self.lines.lock().unwrap()[&*forward.address].clone();
        match line {
            Line::Guard(guard) => guard
                .oneshot(forward.request)
                .map_ok(|answer| answer.map(BodyExt::boxed_unsync))
                .map_err(|never| match never {})
                .boxed(),
            Line::Down => {
                let error = ForwardError::new(ForwardErrorKind::NotSent, "refused");
                ready(Err(error.into())).boxed()
            }
            Line::Cut => ready(Err("cut".into())).boxed(),
            Line::Silent => pending().boxed(),
            Line::Stranger => ready(Ok(respond(StatusCode::NOT_FOUND, "no such page"))).boxed(),
        }
    }

    fn forwarder(
        &self,
    ) -> impl Service<
        Forward,
        Response = Response<ForwardBody>,
        Error = BoxError,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static {
        let exchange = self.clone();
        service_fn(move |forward| exchange.forward(forward))
    }

    async fn node(
        &self,
        stage: &Stage,
        name: &'static str,
        configure: impl FnOnce(AffinityGuardLayer) -> AffinityGuardLayer,
    ) -> Node {
        let builder = stage.builder(name).with_address(format!("http://{name}"));
        let forwarder = self.forwarder();
        let node = Node::built(stage, builder, name, |layer| {
            configure(layer.with_forwarder(forwarder))
        })
        .await;
        self.connect(name, Line::Guard(node.guard.clone()));
        node
    }
}

/// Two instances that reach each other, and a session of the first.
async fn pair() -> (Exchange, Node, Node, String) {
    let (stage, exchange) = (Stage::set(), Exchange::default());
    let owner = exchange.node(&stage, "a", |layer| layer).await;
    let other = exchange.node(&stage, "b", |layer| layer).await;
    let session = owner.open().await;
    (exchange, owner, other, session)
}

fn with(mut request: Request<Sent>, name: &'static str, value: &str) -> Request<Sent> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

#[tokio::test(start_paused = true)]
async fn a_request_reaches_its_owner_from_anywhere() {
    let (exchange, owner, other, session) = pair().await;
    let call = with(post(Some(&session), CALL), "connection", "close, x-hop");
    let call = with(with(call, "x-hop", "1"), "authorization", "Bearer t");
    let answer = other.send(call).await;
    assert_eq!(
        (answer.status, answer.json()["id"].as_u64()),
        (200, Some(7))
    );
    assert_eq!(answer.header("mcp-guard-forwarded"), None);
    let head = &exchange.heads()[0];
    assert!(!head.contains_key("connection") && !head.contains_key("x-hop"));
    assert_eq!(head["authorization"], "Bearer t");
    assert_eq!(other.send(get(&session)).await.status, 200);
    assert_eq!(other.send(delete(&session)).await.status, 204);
    let asked: Vec<_> = owner
        .inner
        .take()
        .into_iter()
        .map(|asked| asked.method)
        .collect();
    assert_eq!(asked, [Method::POST, Method::GET, Method::DELETE]);
    assert_eq!(other.inner.take(), []);
    for node in [&owner, &other] {
        let refused = node.send(post(Some(&session), CALL)).await;
        assert_eq!(refused.refusal(), (404, "session_not_found"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_s_refusal_is_passed_on_as_it_is() {
    let (exchange, owner, other, session) = pair().await;
    owner.send(delete(&session)).await;
    // The directory says so itself.
    let refused = other.send(post(Some(&session), CALL)).await;
    assert_eq!(refused.refusal(), (404, "session_not_found"));
    assert_eq!(exchange.heads().len(), 0);
    let session = owner.open().await;
    owner
        .inner
        .script(|_| async { respond(StatusCode::BAD_REQUEST, "odd") });
    let refused = other.send(post(Some(&session), CALL)).await;
    assert_eq!((refused.status, &*refused.text), (400, "odd"));
}

#[tokio::test(start_paused = true)]
async fn nobody_hands_a_request_on_twice() {
    let (exchange, owner, other, session) = pair().await;
    let call = with(post(Some(&session), CALL), "mcp-guard-forwarded", "x");
    let refused = other.send(call).await;
    assert_eq!(refused.refusal(), (409, "session_reassigned"));
    assert_eq!(exchange.heads().len(), 0);
    assert_eq!(owner.inner.take(), []);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_left_may_be_tried_again_and_one_that_did_may_have_run() {
    let (exchange, _owner, other, session) = pair().await;
    for (line, of_post, of_get) in [
        (Line::Down, "session_unconfirmed", "session_unconfirmed"),
        (Line::Cut, "outcome_unknown", "session_unconfirmed"),
        (Line::Silent, "outcome_unknown", "session_unconfirmed"),
        // Its 404 says nothing of this session.
        (Line::Stranger, "outcome_unknown", "session_unconfirmed"),
    ] {
        exchange.connect("a", line);
        let refused = other.send(post(Some(&session), CALL)).await;
        assert_eq!(refused.refusal(), (503, of_post));
        assert_eq!(refused.json()["id"], 7);
        assert_eq!(other.send(get(&session)).await.refusal(), (503, of_get));
        assert_eq!(other.send(delete(&session)).await.refusal(), (503, of_post));
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_has_as_long_as_it_was_given() {
    let (stage, exchange) = (Stage::set(), Exchange::default());
    let owner = exchange.node(&stage, "a", |layer| layer).await;
    let other = exchange
        .node(&stage, "b", |layer| {
            layer.with_forward_deadline(Duration::from_secs(4))
        })
        .await;
    let session = owner.open().await;
    let slow = |seconds| {
        move |_: &_| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            respond(StatusCode::OK, "{}")
        }
    };
    owner.inner.script(slow(3));
    assert_eq!(other.send(post(Some(&session), CALL)).await.status, 200);
    owner.inner.script(slow(5));
    let refused = other.send(post(Some(&session), CALL)).await;
    assert_eq!(refused.refusal(), (503, "outcome_unknown"));
}

#[tokio::test(start_paused = true)]
async fn an_owner_without_an_address_is_named_only() {
    let (stage, exchange) = (Stage::set(), Exchange::default());
    let owner = Node::start(&stage, "a").await;
    let other = exchange.node(&stage, "b", |layer| layer).await;
    let session = owner.open().await;
    let refused = other.send(post(Some(&session), CALL)).await;
    assert_eq!(refused.refusal(), (409, "session_reassigned"));
}

#[tokio::test(start_paused = true)]
async fn who_leaves_leaves_the_owner_too() {
    let (_exchange, owner, other, session) = pair().await;
    let (tap, response) = stream();
    let response = Mutex::new(Some(response));
    owner.inner.script(move |_| {
        let response = response.lock().unwrap().take().expect("asked once");
        async { response }
    });
    let mut answer = other.guard.clone().oneshot(get(&session)).await.unwrap();
    tap.event("1", "{}");
    let frame = answer.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "id: 1\ndata: {}\n\n");
    assert!(!tap.is_closed());
    drop(answer);
    assert!(tap.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_token_names_the_owner_to_an_edge_and_to_nobody_else() {
    let (stage, exchange) = (Stage::set(), Exchange::default());
    let token = |name: &'static str| {
        move |layer: AffinityGuardLayer| layer.with_route_token(name.parse().unwrap())
    };
    let owner = exchange.node(&stage, "a", token("pod-a")).await;
    let other = exchange.node(&stage, "b", token("pod-b")).await;
    let session = owner.open().await;
    assert_eq!(session, "a-0~pod-a");
    for node in [&owner, &other] {
        // The inner service mints on every answer, as some do.
        owner.inner.script(|_| async {
            let mut response = respond(StatusCode::OK, "{}");
            let id = "a-0".parse().unwrap();
            response.headers_mut().insert("mcp-session-id", id);
            response
        });
        let answer = node.send(post(Some(&session), CALL)).await;
        assert_eq!((answer.status, answer.session()), (200, "a-0~pod-a"));
        let asked = owner.inner.take();
        assert_eq!(asked[0].session.as_deref(), Some("a-0"));
        // One from before there were tokens.
        assert_eq!(node.send(post(Some("a-0"), CALL)).await.status, 200);
        let refused = node.send(post(Some("~pod-a"), CALL)).await;
        assert_eq!(refused.refusal(), (400, "session_malformed"));
    }
    owner.inner.unscript();
    assert_eq!(other.send(delete(&session)).await.status, 204);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_looks_like_one_with_a_token_gets_home_whole() {
    let (stage, exchange) = (Stage::set(), Exchange::default());
    let token = |name: &'static str| {
        move |layer: AffinityGuardLayer| layer.with_route_token(name.parse().unwrap())
    };
    let owner = exchange.node(&stage, "a", token("pod-a")).await;
    let other = exchange.node(&stage, "b", token("pod-b")).await;
    owner
        .inner
        .script(|_| async { crate::support::inner::opening("odd~id") });
    let opened = owner.send(post(None, INITIALIZE)).await;
    owner.inner.unscript();
    owner.inner.take();
    assert_eq!(opened.session(), "odd~id~pod-a");
    let answer: Answer = other.send(post(Some("odd~id~pod-a"), CALL)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(owner.inner.take()[0].session.as_deref(), Some("odd~id"));
}
