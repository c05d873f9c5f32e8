//! The guard itself: gathers the facts that cost nothing and takes the straight way when they suffice.

use std::{
    borrow::Cow,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    Disposition,
    after::After,
    body::{BoxError, ResponseBody},
    decide::{self, Directory, Facts, Header, Local, Verdict, decide},
    forward::Outward,
    future::ResponseFuture,
    layer::Config,
    slow::Slow,
};
use crate::{
    body::Replay,
    instance::{Admission, Running, Serving},
    mcp::{Era, Marks, Presented, header::SESSION_ID},
    session::{Head, Principal, Residency, SessionId},
};

/// Guards an MCP service. Made by [`AffinityGuardLayer`](super::AffinityGuardLayer).
///
/// Inner errors pass through unchanged; every refusal is an `Ok` response. Dropping the future of a request cancels
/// the inner one, except that a session which the inner service has opened or ended by then is still registered,
/// closed or ended in the directory.
#[derive(Debug, Clone)]
pub struct AffinityGuard<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> AffinityGuard<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }

    /// The guarded service.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, B, R> Service<Request<B>> for AffinityGuard<S>
where
    S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match Outward::of(&self.config, request.headers()) {
            None => self.answer(request, false),
            Some(outward) => self.answer_outward(request, outward),
        }
    }
}

impl<S> AffinityGuard<S> {
    /// Answers a request whose ids look otherwise outside, or that another instance has handed on.
    #[cold]
    fn answer_outward<B, R>(
        &mut self,
        mut request: Request<B>,
        outward: Outward,
    ) -> ResponseFuture<S::Future, R, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        outward.prepare(request.headers_mut());
        let answer = self.answer(request, outward.is_for_a_peer());
        ResponseFuture::slow(Box::pin(async move { Ok(outward.finished(answer.await?)) }))
    }

    /// Answers a request as its own, whatever its ids look like outside. `forwarded` is whether another instance has
    /// handed it on.
    #[inline(always)]
    fn answer<B, R>(
        &mut self,
        mut request: Request<B>,
        forwarded: bool,
    ) -> ResponseFuture<S::Future, R, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let method = request.method();
        if method == Method::OPTIONS || method == Method::HEAD {
            return self.direct(request, None, None);
        }
        let seen = Seen::of(&self.config, &request);
        match (decide(&seen.facts), seen.serving) {
            (Verdict::Pass, _) => {
                let principal = owned(seen.principal);
                self.direct(request, None, principal)
            }
            (Verdict::PassBare, _) => {
                let principal = owned(seen.principal);
                if seen.facts.header != Header::Missing {
                    request.headers_mut().remove(SESSION_ID);
                }
                self.direct(request, None, principal)
            }
            (Verdict::PassOwned, Some(serving)) => {
                if self.config.residency == Residency::Externalized {
                    let fence = serving.fence();
                    request
                        .extensions_mut()
                        .insert(Disposition::Owned { fence });
                }
                self.direct(request, Some(serving), None)
            }
            // The rest may wait: for a body, for the directory. The inner service that was made ready is given up
            // meanwhile, for it may hold a permit.
            _ => {
                let inner = self.inner.clone();
                drop(std::mem::replace(&mut self.inner, inner.clone()));
                let slow = Slow {
                    config: Arc::clone(&self.config),
                    inner,
                    facts: seen.facts,
                    id: seen
                        .id
                        .and_then(|id| SessionId::parse_with_limit(id, id.len()).ok()),
                    principal: owned(seen.principal),
                    forwarded,
                };
                let (parts, body) = request.into_parts();
                ResponseFuture::slow(Box::pin(slow.run(parts, body)))
            }
        }
    }

    /// Calls the service that was made ready; nothing was awaited since.
    #[inline]
    fn direct<B, R>(
        &mut self,
        request: Request<B>,
        serving: Option<Serving>,
        principal: Option<Principal>,
    ) -> ResponseFuture<S::Future, R, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>>,
        B: Body,
        R: Body,
    {
        let mut after = After::new(&self.config, request.method(), serving);
        after.remember(principal, Bytes::new());
        ResponseFuture::direct(self.inner.call(request.map(Replay::live)), after)
    }
}

fn owned(principal: Option<Cow<'_, str>>) -> Option<Principal> {
    principal.map(|subject| Principal::new(&*subject))
}

/// What a request's head and the own table say.
struct Seen<'a> {
    facts: Facts,
    id: Option<&'a [u8]>,
    principal: Option<Cow<'a, str>>,
    serving: Option<Serving>,
}

impl<'a> Seen<'a> {
    #[inline]
    fn of<B>(config: &Config, request: &'a Request<B>) -> Self {
        let shared = config.instance.shared();
        let method = request.method();
        let marks = Marks::of(request.headers());
        let era = marks.era();
        let (header, id) = match marks.session(config.max_id_len) {
            Presented::Missing => (Header::Missing, None),
            Presented::Malformed => (Header::Malformed, None),
            Presented::Id(id) => (Header::Valid, Some(id)),
        };
        let principal = config
            .principal
            .as_ref()
            .and_then(|of| of(Head::of(request)));
        let mut seen = Self {
            facts: Facts {
                header,
                era,
                request: kind(&marks, method == Method::POST),
                local: Local::Unknown,
                directory: Directory::NotAsked,
                retiring: shared.is_retiring(),
                lease: false,
                strict: config.strict,
                absent_goes_stateless: config.absent_goes_stateless,
                forwards: false,
            },
            id,
            principal,
            serving: None,
        };
        if let (Era::Legacy, Some(id)) = (era, id) {
            let admission = shared.admit(id, running(method));
            let subject = seen.principal.as_deref();
            (seen.facts.local, seen.serving) = local(config, admission, subject);
        }
        seen
    }
}

/// What is known of a request before its body is read.
#[inline]
fn kind(marks: &Marks<'_>, post: bool) -> decide::Request {
    if !post {
        return decide::Request::Bodyless;
    }
    // A modern client names its method, and one that names another than `initialize` needs no look into its body.
    match (marks.era(), marks.method()) {
        (Era::Modern, Some(method)) if method != "initialize" => decide::Request::Other,
        _ => decide::Request::Unread,
    }
}

#[inline]
pub(super) fn running(method: &Method) -> Running {
    if method == Method::GET {
        Running::Stream
    } else {
        Running::Call
    }
}

/// What an admission says. A session that was taken over and not yet rehydrated is proven, but its request must
/// go the slow way, so it comes without a [`Serving`].
#[inline(always)]
pub(super) fn local(
    config: &Config,
    admission: Admission,
    subject: Option<&str>,
) -> (Local, Option<Serving>) {
    let (serving, restored) = match admission {
        Admission::Proven(serving) => (serving, true),
        Admission::Unrestored(serving) => (serving, false),
        Admission::Unproven => {
            config.instance.shared().poke();
            return (Local::Unproven, None);
        }
        Admission::Over(_) => return (Local::Over, None),
        Admission::Unknown => return (Local::Unknown, None),
    };
    if config.is_bound_to_another(&serving.session().terms, subject) {
        return (Local::Foreign, None);
    }
    (Local::Proven, restored.then_some(serving))
}
