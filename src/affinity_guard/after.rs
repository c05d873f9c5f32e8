//! What happens between the inner service's answer and the client.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use http_body::Body;
use tokio::time::{Instant, timeout_at};

use super::{
    answer::read_answer,
    body::{BoxError, ResponseBody},
    layer::Config,
    opening::{Opening, opens},
};
use crate::{
    body::Replay,
    instance::{Guard, Lost, Proof, Serving},
    mcp::Envelope,
    outbox::Delivered,
    rejection::Reason,
    session::Principal,
};

/// A request that was dispatched.
pub(super) struct After {
    config: Arc<Config>,
    serving: Option<Serving>,
    kind: Kind,
    /// Boxed, since a request at its owner has none of it and every byte here is moved with it.
    known: Option<Box<Known>>,
}

/// What is known of a request that went the slow way, or may open a session.
#[derive(Debug, Default)]
struct Known {
    /// For whom a session would be opened.
    principal: Option<Principal>,
    /// Its body, if the guard has read it.
    body: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Post,
    Delete,
    Other,
}

impl After {
    #[inline]
    pub(super) fn new(config: &Arc<Config>, method: &Method, serving: Option<Serving>) -> Self {
        let kind = if method == Method::POST {
            Kind::Post
        } else if method == Method::DELETE {
            Kind::Delete
        } else {
            Kind::Other
        };
        Self {
            config: Arc::clone(config),
            serving,
            kind,
            known: None,
        }
    }

    #[inline]
    pub(super) fn remember(&mut self, principal: Option<Principal>, body: Bytes) {
        if principal.is_some() || !body.is_empty() {
            self.known = Some(Box::new(Known { principal, body }));
        }
    }

    /// Whether nothing is in the way of the answer.
    #[inline]
    pub(super) fn is_plain<R>(&mut self, response: &Response<R>) -> bool {
        let proven = self
            .serving
            .as_mut()
            .is_none_or(|serving| serving.proof(self.config.instance.shared()) == Proof::Good);
        proven && !self.opens(response) && !self.ends(response)
    }

    /// Lets the answer out when it may be.
    pub(super) async fn settle<R>(mut self, response: Response<R>) -> Response<ResponseBody<R>>
    where
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let deadline = Instant::now() + self.config.store_deadline;
        if !self.proven_by(deadline).await {
            return self.withhold(response).await;
        }
        if self.ends(&response) {
            return self.end(response).await;
        }
        if self.opens(&response) {
            // Nobody asked for one, but here it is: no request may carry an id that the directory has not seen.
            let generation = self.config.instance.shared().tenancy();
            let known = self.known.map(|known| *known).unwrap_or_default();
            let presented = self.serving.as_ref().map(Serving::session);
            let opening = Opening {
                principal: match presented {
                    Some(session) => session.terms.principal.clone(),
                    None => known.principal,
                },
                config: self.config,
                request: known.body,
                generation,
            };
            return opening.open(response, None).await;
        }
        self.let_out(response)
    }

    #[inline]
    pub(super) fn let_out<R: Body>(&mut self, response: Response<R>) -> Response<ResponseBody<R>> {
        let mut guard = None;
        if let Some(serving) = self.serving.take()
            && response.extensions().get::<Delivered>().is_none()
        {
            let shared = Arc::clone(self.config.instance.shared());
            guard = Some(Guard::new(serving, shared));
        }
        response.map(|body| ResponseBody::inner(Replay::live(body), guard))
    }

    #[inline]
    fn opens<R>(&self, response: &Response<R>) -> bool {
        let presented = self
            .serving
            .as_ref()
            .map(|serving| serving.session().id_bytes());
        self.kind == Kind::Post && opens(response, presented)
    }

    fn ends<R>(&self, response: &Response<R>) -> bool {
        self.kind == Kind::Delete && self.serving.is_some() && response.status().is_success()
    }

    /// Waits while the proof is in doubt.
    async fn proven_by(&mut self, deadline: Instant) -> bool {
        let Some(serving) = &mut self.serving else {
            return true;
        };
        let shared = self.config.instance.shared();
        loop {
            let changed = serving.session().listen();
            match serving.proof(shared) {
                Proof::Good => return true,
                Proof::Lost => return false,
                Proof::Doubtful => {
                    shared.poke();
                    if timeout_at(deadline, changed).await.is_err() {
                        return false;
                    }
                }
            }
        }
    }

    /// The request may have run, and its answer may not be shown.
    async fn withhold<R>(self, response: Response<R>) -> Response<ResponseBody<R>>
    where
        R: Body<Data = Bytes>,
    {
        let rejection = match self.kind {
            Kind::Other => self.config.reject(
                Reason::SessionUnconfirmed,
                "the instance's lease lapsed while the stream was opened",
            ),
            Kind::Post | Kind::Delete => self.config.reject(
                Reason::OutcomeUnknown,
                "the instance's lease lapsed while the request ran",
            ),
        };
        let body = self.known.map(|known| known.body).unwrap_or_default();
        let refused = if body.is_empty() && self.kind == Kind::Post {
            // At its owner a request's body is not read. Its id is in the answer, if that is there by now.
            let (parts, answer) = response.into_parts();
            let deadline = Instant::now() + self.config.store_deadline;
            let limit = self.config.body_limit;
            let (_, answer) = read_answer(&parts.headers, answer, limit, deadline).await;
            match &answer {
                Some(answer) => rejection.answer_ids(&[&answer.id], false),
                None => rejection.answer(None),
            }
        } else {
            rejection.answer(Envelope::parse(&body).ok().as_ref())
        };
        refused.map(ResponseBody::refusal)
    }

    /// The inner service has closed the session at its client's wish: the tombstone comes before the answer.
    async fn end<R>(mut self, response: Response<R>) -> Response<ResponseBody<R>>
    where
        R: Body<Data = Bytes> + Send + 'static,
    {
        let deadline = Instant::now() + self.config.store_deadline;
        let Some(serving) = &self.serving else {
            return self.let_out(response);
        };
        // Under the fence it was served under: a DELETE that lands late must not end what somebody else has taken over
        // meanwhile.
        let (session, fence) = (Arc::clone(serving.session()), serving.fence());
        let shared = Arc::clone(self.config.instance.shared());
        // On a task of its own: a client that leaves now has ended its session all the same.
        let ending =
            tokio::spawn(async move { shared.end(&session, Some(fence), Lost::Deleted).await });
        match timeout_at(deadline, ending).await {
            Ok(Ok(Ok(()))) => response.map(|body| ResponseBody::inner(Replay::live(body), None)),
            _ => self
                .config
                .reject(
                    Reason::SessionUnconfirmed,
                    "the session is closed here, but the directory has not recorded it yet",
                )
                .answer(None)
                .map(ResponseBody::refusal),
        }
    }
}
