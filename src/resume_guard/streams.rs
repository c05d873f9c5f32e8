//! Requests of a session: calls whose answers are streams, the session's own stream, and clients that come back.

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, request::Parts};
use http_body::Body;
use tokio::time::{Instant, timeout_at};
use tower::ServiceExt;
use tower_service::Service;

use super::{
    answer::{in_front, refuse, stream},
    authorize::{Plan, Refusal},
    body::{BoxError, ResponseBody},
    layer::Config,
    resume::{Attempt, Proven},
    service::LastEventId,
};
use crate::{
    body::{Finding, Replay, SelfProving, is_event_stream, read},
    instance::{Admission, Proof, Running, Serving},
    mcp::{
        Carried, Envelope, RequestId,
        header::{LAST_EVENT_ID, PROTOCOL_VERSION},
        may_prime,
    },
    outbox::{Cursor, GoOn, Greeting, Inner, Start, within},
    rejection::Reason,
    session::{Residency, SessionId},
    store::{EventStore, StoreErrorKind},
};

/// A request of a session on its way.
pub(super) struct Slow<S> {
    pub(super) config: Arc<Config>,
    pub(super) inner: S,
    pub(super) id: SessionId,
}

impl<S> Slow<S> {
    pub(super) async fn run<B, R>(
        self,
        parts: Parts,
        body: B,
        last_event_id: LastEventId,
    ) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        if parts.method == Method::POST {
            return self.post(parts, body).await;
        }
        let cursor = match last_event_id {
            LastEventId::Missing => None,
            LastEventId::One(id) => Some(Cursor::parse(id.as_bytes())),
            LastEventId::Repeated => Some(Cursor::parse(b"")),
        };
        match cursor {
            None => self.standalone(parts, body).await,
            Some(Err(_)) => Ok(refuse(&self.config, None, &Refusal::UnknownStream)),
            Some(Ok(cursor)) => self.resume(parts, body, cursor).await,
        }
    }

    fn admit(&self, running: Running) -> Option<Serving> {
        let shared = &self.config.outbox.shared;
        match shared.admit(self.id.as_str().as_bytes(), running) {
            Admission::Proven(serving) | Admission::Unrestored(serving) => Some(serving),
            Admission::Unproven | Admission::Over(_) | Admission::Unknown => None,
        }
    }

    async fn post<B, R>(self, parts: Parts, body: B) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let Some(mut serving) = self.admit(Running::Call) else {
            let response = self
                .inner
                .oneshot(Request::from_parts(parts, Replay::live(body)));
            return Ok(response.await?.map(ResponseBody::inner));
        };
        let config = &self.config;
        let deadline = Instant::now() + config.body_deadline;
        let read = read(body, config.body_limit, deadline, |_| {
            ControlFlow::Continue(())
        })
        .await;
        if read.finding == Finding::TooLarge {
            let detail = "the body is longer than the guard reads";
            let rejection = config.reject(Reason::RequestTooLarge, detail);
            return Ok(in_front(rejection.answer(None)));
        }
        let carried = match read.finding {
            Finding::Ended => Carried::of(&read.bytes),
            // Cut off, or too slow: the inner service sees the same.
            _ => Carried::default(),
        };
        let unconfirmed = |detail: &'static str| {
            let envelope = Envelope::parse(&read.bytes).ok();
            let rejection = config.reject(Reason::SessionUnconfirmed, detail);
            Ok(in_front(rejection.answer(envelope.as_ref())))
        };
        if let Err(kind) = seal(config, &serving, &self.id).await {
            return unconfirmed(kind.as_str());
        }
        let inner = self.inner.clone();
        let mut ready = self.inner;
        ready.ready().await?;
        // Reading the body may have taken long, and making it ready too.
        if serving.proof(&config.outbox.shared) != Proof::Good {
            return unconfirmed("the instance's lease lapsed before the request was dispatched");
        }
        if carried.modern || carried.requests.is_empty() {
            for answer in &carried.answers {
                config.outbox.sessions.answered(&self.id, answer);
            }
            let response = ready.call(Request::from_parts(parts, read.replay)).await?;
            return Ok(response.map(ResponseBody::inner));
        }
        let again = again(&parts);
        let greeting = greeting(&parts.headers);
        let response = ready.call(Request::from_parts(parts, read.replay)).await?;
        Ok(self::carry(
            config,
            serving,
            &self.id,
            response,
            carried.requests,
            Some(go_on(inner, again)),
            greeting,
        ))
    }

    /// The session's own stream: the one that is open, or a new one.
    async fn standalone<B, R>(
        self,
        parts: Parts,
        body: B,
    ) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let request = |parts| Request::from_parts(parts, Replay::live(body));
        let Some(serving) = self.admit(Running::Stream) else {
            let response = self.inner.oneshot(request(parts));
            return Ok(response.await?.map(ResponseBody::inner));
        };
        let config = &self.config;
        let outbox = &config.outbox;
        let greeting = greeting(&parts.headers);
        let streams = outbox.sessions.enter(&self.id);
        let deadline = Instant::now() + config.resume_deadline;
        // One at a time: the inner service has one such stream, and gives a second asker a shadow of it or a refusal.
        let Ok(_opening) = timeout_at(deadline, streams.opening()).await else {
            let detail = "the session's stream is still being opened for another request";
            return Ok(in_front(
                config
                    .reject(Reason::SessionUnconfirmed, detail)
                    .answer(None),
            ));
        };
        if let Some(open) = streams.standalone() {
            let start = Start {
                next: None,
                greeting: Some(greeting),
                unanswered: Vec::new(),
                page: Vec::new(),
            };
            return Ok(stream(outbox.deliver(open, serving, start)));
        }
        if let Err(kind) = seal(config, &serving, &self.id).await {
            let rejection = config.reject(Reason::SessionUnconfirmed, kind.as_str());
            return Ok(in_front(rejection.answer(None)));
        }
        let response = self.inner.oneshot(request(parts)).await?;
        Ok(carry(
            config,
            serving,
            &self.id,
            response,
            Vec::new(),
            None,
            greeting,
        ))
    }

    async fn resume<B, R>(
        self,
        parts: Parts,
        body: B,
        cursor: Cursor,
    ) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let attempt = Attempt::new(&self.config, &self.id, &cursor);
        let Proven {
            plan,
            serving,
            snapshot,
            live,
        } = match attempt.run().await {
            Ok(proven) => proven,
            Err(refusal) => return Ok(refuse(&self.config, Some(&cursor), &refusal)),
        };
        let outbox = &self.config.outbox;
        outbox.shared.counters().count_resume(true);
        let unanswered = match plan {
            Plan::Anew => return self.standalone(parts, body).await,
            Plan::Live { unanswered } | Plan::Replay { unanswered } => unanswered,
        };
        let source = live.unwrap_or_else(|| outbox.logged(&snapshot));
        let start = Start {
            next: Some(cursor.seq.next()),
            // A replayed event has an id of its own.
            greeting: snapshot
                .events
                .is_empty()
                .then(|| Greeting::Position(cursor.clone())),
            unanswered,
            page: snapshot.events,
        };
        Ok(stream(outbox.deliver(source, serving, start)))
    }
}

/// Has the outbox carry an inner stream; whatever else the inner service says passes as it is.
fn carry<R>(
    config: &Config,
    serving: Serving,
    id: &SessionId,
    response: Response<R>,
    requests: Vec<RequestId>,
    go_on: Option<GoOn<R>>,
    greeting: Greeting,
) -> Response<ResponseBody<R>>
where
    R: Body<Data = Bytes> + Send + 'static,
{
    let encoded = response.headers().contains_key(header::CONTENT_ENCODING);
    if !response.status().is_success() || encoded || !is_event_stream(response.headers()) {
        return response.map(ResponseBody::inner);
    }
    let (mut parts, body) = response.into_parts();
    let streams = config.outbox.sessions.enter(id);
    let inner = Inner {
        body,
        requests,
        go_on,
    };
    match config.outbox.carry(streams, serving, inner, greeting) {
        Ok(delivery) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.extensions.insert(SelfProving);
            Response::from_parts(parts, ResponseBody::stream(delivery))
        }
        Err(inner) => {
            tracing::warn!(session = ?id, "too many streams of one session: this one is not recorded");
            Response::from_parts(parts, ResponseBody::inner(inner.body))
        }
    }
}

/// Before anything of a session that was taken over is served: no older owner adds to its streams any more.
pub(super) async fn seal(
    config: &Config,
    serving: &Serving,
    id: &SessionId,
) -> Result<(), StoreErrorKind> {
    let session = serving.session();
    if !session.is_unsealed() || session.terms.residency != Residency::Externalized {
        return Ok(());
    }
    let outbox = &config.outbox;
    let sealing = outbox.events.seal(id, serving.fence());
    within(outbox.settings.store_deadline, sealing)
        .await
        .map_err(|error| error.kind())?;
    session.sealed();
    Ok(())
}

fn greeting(headers: &HeaderMap) -> Greeting {
    let version = headers.get(PROTOCOL_VERSION);
    match version.is_some_and(|version| may_prime(version.as_bytes())) {
        true => Greeting::Priming,
        false => Greeting::Comment,
    }
}

/// The head of a request for the rest of a stream that was opened with this one.
fn again(parts: &Parts) -> Parts {
    let mut again = parts.clone();
    again.method = Method::GET;
    for name in [
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::TRANSFER_ENCODING,
        header::EXPECT,
    ] {
        again.headers.remove(name);
    }
    again.headers.insert(
        header::ACCEPT,
        HeaderValue::from_static("text/event-stream"),
    );
    again
}

/// Asks the inner service for the rest of a stream that it closed before the answer (MCP 2025-11-25, SEP-1699).
fn go_on<S, B, R>(inner: S, parts: Parts) -> GoOn<R>
where
    S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body + Send + 'static,
    B::Error: Send,
    R: Send + 'static,
{
    Box::new(move |last_id| {
        let inner = inner.clone();
        let mut parts = parts.clone();
        parts.headers.insert(LAST_EVENT_ID, last_id);
        Box::pin(async move {
            let request = Request::from_parts(parts, Replay::empty());
            let response = inner.oneshot(request).await.ok()?;
            let goes_on = response.status().is_success() && is_event_stream(response.headers());
            goes_on.then(|| response.into_body())
        })
    })
}
