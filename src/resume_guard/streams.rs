//! Requests of a session: calls whose answers are streams, the session's own stream, and clients that come back.

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body::Body;
use tokio::time::{Instant, timeout_at};
use tower::ServiceExt;
use tower_service::Service;

use super::{
    answer::{in_front, refuse, stream},
    authorize::{Plan, Refusal},
    body::{BoxError, ResponseBody},
    carry::{Again, carry, go_on, greeting, seal},
    layer::Config,
    resume::{Attempt, Proven},
    service::LastEventId,
};
use crate::{
    body::{Finding, Replay, read, read_past},
    instance::{Admission, Proof, Running, Serving},
    mcp::{Carried, Envelope, RequestIds},
    outbox::{Cursor, Greeting, Start},
    rejection::Reason,
    session::SessionId,
};

/// A request of a session on its way.
pub(super) struct Slow<S, B> {
    pub(super) config: Arc<Config>,
    pub(super) inner: S,
    pub(super) id: SessionId,
    pub(super) parts: Parts,
    pub(super) body: B,
}

impl<S, B, R> Slow<S, B>
where
    S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    pub(super) async fn get(
        self: Box<Self>,
        last_event_id: LastEventId,
    ) -> Result<Response<ResponseBody<R>>, S::Error> {
        let cursor = match last_event_id {
            LastEventId::Missing => None,
            LastEventId::One(id) => Some(Cursor::parse(id.as_bytes())),
            LastEventId::Repeated => Some(Cursor::parse(b"")),
        };
        match cursor {
            None => self.standalone().await,
            Some(Err(_)) => Ok(refuse(&self.config, None, &Refusal::UnknownStream)),
            Some(Ok(cursor)) => self.resume(cursor).await,
        }
    }

    fn admit(&self, running: Running) -> Option<Serving> {
        let shared = &self.config.outbox.shared;
        match shared.admit(self.id.as_str().as_bytes(), running) {
            Admission::Proven(serving) | Admission::Unrestored(serving) => Some(serving),
            Admission::Unproven | Admission::Over(_) | Admission::Unknown => None,
        }
    }

    /// Nothing of the session can be proven here, and so nothing of its streams.
    async fn pass(self: Box<Self>) -> Result<Response<ResponseBody<R>>, S::Error> {
        let request = Request::from_parts(self.parts, Replay::live(self.body));
        let response = self.inner.oneshot(request).await?;
        Ok(response.map(ResponseBody::inner))
    }

    pub(super) async fn post(self: Box<Self>) -> Result<Response<ResponseBody<R>>, S::Error> {
        let Some(mut serving) = self.admit(Running::Call) else {
            return Box::pin(self.pass()).await;
        };
        let Self {
            config,
            inner: mut ready,
            id,
            parts,
            body,
        } = *self;
        let deadline = Instant::now() + config.body_deadline;
        let read = read(body, config.body_limit, deadline, |_| {
            ControlFlow::Continue(())
        })
        .await;
        if read.finding == Finding::TooLarge {
            let detail = "the body is longer than the guard reads";
            let rejection = config.reject(Reason::RequestTooLarge, detail);
            let id = read_past(read.replay, config.body_limit, deadline).await;
            return Ok(in_front(rejection.answer_id(id.as_ref())));
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
        if let Err(kind) = seal(&config, &serving, &id).await {
            return unconfirmed(kind.as_str());
        }
        ready.ready().await?;
        // Reading the body may have taken long, and making it ready too.
        if serving.proof(&config.outbox.shared) != Proof::Good {
            return unconfirmed("the instance's lease lapsed before the request was dispatched");
        }
        if carried.modern || carried.requests.is_empty() {
            for answer in &carried.answers {
                config.outbox.sessions.answered(&id, answer);
            }
            let response = ready.call(Request::from_parts(parts, read.replay)).await?;
            return Ok(response.map(ResponseBody::inner));
        }
        let again = Again::of(&parts);
        let greeting = greeting(&parts.headers);
        let response = ready.call(Request::from_parts(parts, read.replay)).await?;
        Ok(carry(
            &config,
            serving,
            &id,
            response,
            carried.requests,
            Some(go_on(ready, again)),
            greeting,
        ))
    }

    /// The session's own stream: the one that is open, or a new one.
    async fn standalone(self: Box<Self>) -> Result<Response<ResponseBody<R>>, S::Error> {
        let Some(serving) = self.admit(Running::Stream) else {
            return Box::pin(self.pass()).await;
        };
        let Self {
            config,
            inner,
            id,
            parts,
            body,
        } = *self;
        let outbox = &config.outbox;
        let greeting = greeting(&parts.headers);
        let streams = outbox.sessions.enter(&id);
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
                unanswered: RequestIds::new(),
                page: Vec::new(),
            };
            return Ok(stream(outbox.deliver(open, serving, start)));
        }
        if let Err(kind) = seal(&config, &serving, &id).await {
            let rejection = config.reject(Reason::SessionUnconfirmed, kind.as_str());
            return Ok(in_front(rejection.answer(None)));
        }
        let response = inner
            .oneshot(Request::from_parts(parts, Replay::live(body)))
            .await?;
        Ok(carry(
            &config,
            serving,
            &id,
            response,
            RequestIds::new(),
            None,
            greeting,
        ))
    }

    async fn resume(
        self: Box<Self>,
        cursor: Cursor,
    ) -> Result<Response<ResponseBody<R>>, S::Error> {
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
            Plan::Anew => return self.standalone().await,
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
            unanswered: unanswered.into(),
            page: snapshot.events,
        };
        Ok(stream(outbox.deliver(source, serving, start)))
    }
}
