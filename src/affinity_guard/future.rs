//! The future of a guarded request: the inner one with a check behind it, or the slow path.

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

type Guarded<R, E> = Result<Response<ResponseBody<R>>, E>;

pin_project! {
    /// Future of an [`AffinityGuard`](super::AffinityGuard). Only the slow path is boxed.
    pub struct ResponseFuture<F, R: Body, E> {
        #[pin]
        state: State<F, R, E>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, R: Body, E> {
        Direct { #[pin] inner: F, after: Option<After> },
        Slow { future: BoxFuture<'static, Guarded<R, E>> },
    }
}

impl<F, R: Body, E> ResponseFuture<F, R, E> {
    #[inline]
    pub(super) fn direct(inner: F, after: After) -> Self {
        Self {
            state: State::Direct {
                inner,
                after: Some(after),
            },
        }
    }

    pub(super) fn slow(future: BoxFuture<'static, Guarded<R, E>>) -> Self {
        Self {
            state: State::Slow { future },
        }
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
    E: Send + 'static,
{
    type Output = Guarded<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProjection::Direct { inner, after } => {
                    let response = ready!(inner.poll(cx))?;
                    // Not taken out before it is known to be needed: moving it costs more than all it does here.
                    if let Some(after) = after
                        && after.is_plain(&response)
                    {
                        return Poll::Ready(Ok(after.let_out(response)));
                    }
                    let after = after.take().expect("polled after completion");
                    state.set(State::Slow {
                        future: Box::pin(async move { Ok(after.settle(response).await) }),
                    });
                }
                StateProjection::Slow { future } => return future.as_mut().poll(cx),
            }
        }
    }
}

impl<F, R: Body, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
