//! The service itself: what cannot be a call with a key passes, the rest has its body read.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    asking::Asking,
    body::{BoxError, Lesson, ResponseBody},
    future::ResponseFuture,
    layer::Config,
};
use crate::{
    body::Replay,
    mcp::{Era, Marks},
};

/// Runs calls with a key once. Made by [`IdempotencyKeyLayer`](super::IdempotencyKeyLayer).
///
/// Inner errors pass through unchanged; every refusal is an `Ok` response. Dropping the future or the body of a call
/// with a key does not cancel it in the eras that have sessions; whatever else is dropped is cancelled, and leaves no
/// claim in progress.
#[derive(Debug, Clone)]
pub struct IdempotencyKey<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> IdempotencyKey<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }

    /// The service behind.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyKey<S>
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.method() != Method::POST {
            return ResponseFuture::direct(self.inner.call(request.map(Replay::live)), None);
        }
        let marks = Marks::of(request.headers());
        let era = marks.era();
        // A modern client names its method, and one that names another needs no look into its body.
        if let (Era::Modern, Some(method)) = (era, marks.method())
            && method != "tools/call"
        {
            let lesson = (self.config.learns && method == "tools/list")
                .then(|| Lesson::new(&self.config.effects));
            return ResponseFuture::direct(self.inner.call(request.map(Replay::live)), lesson);
        }
        // The inner service that was made ready is given up while a body or a store is waited for, since it may hold a
        // permit.
        let inner = self.inner.clone();
        drop(std::mem::replace(&mut self.inner, inner.clone()));
        let (parts, body) = request.into_parts();
        let asking = Asking {
            config: Arc::clone(&self.config),
            inner,
            era,
            parts,
        };
        ResponseFuture::asking(Box::pin(asking.run(body)))
    }
}
