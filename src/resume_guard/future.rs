//! The future of a guarded request.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::future::BoxFuture;
use http::Response;
use pin_project_lite::pin_project;

use super::body::ResponseBody;

pin_project! {
    /// Response future of a [`ResumeGuard`](super::ResumeGuard). Boxed for requests of sessions only.
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        kind: Kind<F, R, E>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<F, R, E> {
        Direct { #[pin] future: F },
        Slow { future: BoxFuture<'static, Result<Response<ResponseBody<R>>, E>> },
    }
}

impl<F, R, E> ResponseFuture<F, R, E> {
    pub(super) fn direct(future: F) -> Self {
        Self {
            kind: Kind::Direct { future },
        }
    }

    pub(super) fn slow(future: BoxFuture<'static, Result<Response<ResponseBody<R>>, E>>) -> Self {
        Self {
            kind: Kind::Slow { future },
        }
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProjection::Direct { future } => {
                let response = ready!(future.poll(cx))?;
                Poll::Ready(Ok(response.map(ResponseBody::inner)))
            }
            KindProjection::Slow { future } => future.as_mut().poll(cx),
        }
    }
}

impl<F, R, E> std::fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResponseFuture")
    }
}
