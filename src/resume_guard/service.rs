//! The guard itself: what concerns no session's stream passes, the rest goes the slow way.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    answer::{in_front, refuse_sessionless},
    body::{BoxError, ResponseBody},
    future::ResponseFuture,
    layer::Config,
    streams::Slow,
};
use crate::{
    body::Replay,
    mcp::{Era, Marks, Presented, header::LAST_EVENT_ID},
    rejection::Reason,
    session::SessionId,
};

/// Guards the streams of an MCP service. Made by [`ResumeGuardLayer`](super::ResumeGuardLayer).
///
/// Inner errors pass through unchanged; every refusal is an `Ok` response. Dropping the future of a request cancels the
/// inner one; dropping a response body does not, in the eras that have sessions: the stream is recorded for the resume
/// window.
#[derive(Debug, Clone)]
pub struct ResumeGuard<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> ResumeGuard<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }

    /// The guarded service.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

/// What is to be done with a request, by its head.
enum Way {
    /// Nothing of it is this layer's business.
    Pass,
    /// A request of a session.
    Guard(SessionId),
    /// It wants to resume without a session.
    Refuse(Reason),
}

impl Way {
    fn of<B>(config: &Config, request: &Request<B>) -> Self {
        let method = request.method();
        let get = method == Method::GET;
        let marks = Marks::of(request.headers());
        if !(get || method == Method::POST) || marks.era() == Era::Modern {
            return Self::Pass;
        }
        let resumes = get && request.headers().contains_key(LAST_EVENT_ID);
        match marks.session(config.max_id_len) {
            Presented::Id(id) => SessionId::parse_with_limit(id, config.max_id_len)
                .map_or(Self::Refuse(Reason::SessionMalformed), Self::Guard),
            Presented::Malformed if resumes => Self::Refuse(Reason::SessionMalformed),
            Presented::Missing if resumes => Self::Refuse(Reason::SessionRequired),
            // What the header should have been is for the guard of the session to say.
            Presented::Malformed | Presented::Missing => Self::Pass,
        }
    }
}

impl<S, B, R> Service<Request<B>> for ResumeGuard<S>
where
    S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let way = Way::of(&self.config, &request);
        // The inner service would read it as one of its own ids.
        let last_event_id = take_last_event_id(&mut request);
        match way {
            Way::Pass => ResponseFuture::direct(self.inner.call(request.map(Replay::live))),
            Way::Refuse(reason) => {
                let response = if reason == Reason::SessionRequired {
                    refuse_sessionless(&self.config, reason)
                } else {
                    let detail = "the session header is not one session id";
                    in_front(self.config.reject(reason, detail).answer(None))
                };
                ResponseFuture::slow(Box::pin(std::future::ready(Ok(response))))
            }
            Way::Guard(id) => {
                // The inner service that was made ready is given up while a body or a store is waited for, since it may
                // hold a permit.
                let inner = self.inner.clone();
                drop(std::mem::replace(&mut self.inner, inner.clone()));
                let (parts, body) = request.into_parts();
                let posts = parts.method == Method::POST;
                // Boxed, since a future holds what it is given twice over.
                let slow = Box::new(Slow {
                    config: Arc::clone(&self.config),
                    inner,
                    id,
                    parts,
                    body,
                });
                ResponseFuture::slow(match posts {
                    true => Box::pin(slow.post()),
                    false => Box::pin(slow.get(last_event_id)),
                })
            }
        }
    }
}

/// What the client came back with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LastEventId {
    Missing,
    One(http::HeaderValue),
    /// Said more than once.
    Repeated,
}

fn take_last_event_id<B>(request: &mut Request<B>) -> LastEventId {
    let headers = request.headers_mut();
    let mut values = headers.get_all(LAST_EVENT_ID).iter();
    let last = match (values.next().cloned(), values.next()) {
        (None, _) => return LastEventId::Missing,
        (Some(one), None) => LastEventId::One(one),
        _ => LastEventId::Repeated,
    };
    headers.remove(LAST_EVENT_ID);
    last
}
