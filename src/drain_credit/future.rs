//! The future of a request: the inner one, or the slow way.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use super::{
    after::After,
    body::{BoxError, ResponseBody},
};

pin_project! {
    /// Response future of a [`DrainCredit`](super::DrainCredit). Boxed only for requests of sessions close to their
    /// credit.
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        kind: Kind<F, R, E>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<F, R, E> {
        Direct { #[pin] future: F, after: Option<After> },
        Slow { future: BoxFuture<'static, Result<Response<ResponseBody<R>>, E>> },
    }
}

impl<F, R, E> ResponseFuture<F, R, E> {
    #[inline]
    pub(super) fn direct(future: F, after: Option<After>) -> Self {
        Self {
            kind: Kind::Direct { future, after },
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
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProjection::Direct { future, after } => {
                let response = ready!(future.poll(cx))?;
                Poll::Ready(Ok(match after.take() {
                    Some(after) => after.settle(response),
                    None => response.map(|body| ResponseBody::inner(body, None)),
                }))
            }
            KindProjection::Slow { future } => future.as_mut().poll(cx),
        }
    }
}

impl<F, R, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}
