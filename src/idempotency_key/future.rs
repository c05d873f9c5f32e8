//! The future of a request: the inner one as it is, or the way of a call with a key, which outlives its client.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::future::BoxFuture;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;

use super::{
    body::{Lesson, ResponseBody},
    layer::Config,
};
use crate::instance::Work;

type Answer<R, E> = Result<Response<ResponseBody<R>>, E>;

/// What is known of a request before it is dispatched.
#[allow(
    clippy::large_enum_variant,
    reason = "moved once, and most requests are answered"
)]
pub(super) enum Step<R: Body, E> {
    /// It was answered, by whomever.
    Answered(Response<ResponseBody<R>>),
    /// It runs under a claim.
    Runs(Run<R, E>),
}

/// A call with a key that was dispatched.
pub(super) struct Run<R: Body, E> {
    pub(super) future: BoxFuture<'static, Answer<R, E>>,
    /// What goes on when the client leaves.
    pub(super) detached: Option<Detached>,
}

/// What a call needs to go on alone.
pub(super) struct Detached {
    pub(super) runtime: Handle,
    pub(super) config: std::sync::Arc<Config>,
}

impl Detached {
    /// Goes on alone; a retiring instance waits for it.
    pub(super) fn go_on(self, rest: impl Future<Output = ()> + Send + 'static) {
        let work: Option<Work> = self.config.work();
        self.runtime.spawn(async move {
            rest.await;
            drop(work);
        });
    }
}

pin_project! {
    /// Response future of an [`IdempotencyKey`](super::IdempotencyKey). Boxed for requests whose body is read only.
    ///
    /// Dropped while a call with a key runs, the call goes on in the eras that have sessions; in the era without them
    /// it is cancelled, and its outcome is recorded as unknown.
    pub struct ResponseFuture<F, R, E>
    where
        R: Body,
        R: 'static,
        E: 'static,
    {
        #[pin]
        state: State<F, R, E>,
        polling: bool,
    }

    impl<F, R, E> PinnedDrop for ResponseFuture<F, R, E>
    where
        R: Body,
        R: 'static,
        E: 'static,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // A call that panicked cannot be gone on with; that it may have run is told by its claim.
            if *this.polling {
                return;
            }
            if let StateProjection::Running { run } = this.state.project()
                && let Some(Run { future, detached: Some(detached) }) = run.take()
            {
                // What it answers is dropped, and a stream that it answers with goes on by itself.
                detached.go_on(async move { drop(future.await) });
            }
        }
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, R: Body, E> {
        Direct { #[pin] future: F, lesson: Option<Lesson> },
        Asking { future: BoxFuture<'static, Result<Step<R, E>, E>> },
        Running { run: Option<Run<R, E>> },
    }
}

impl<F, R: Body, E> ResponseFuture<F, R, E> {
    pub(super) fn direct(future: F, lesson: Option<Lesson>) -> Self {
        Self::in_state(State::Direct { future, lesson })
    }

    pub(super) fn asking(future: BoxFuture<'static, Result<Step<R, E>, E>>) -> Self {
        Self::in_state(State::Asking { future })
    }

    fn in_state(state: State<F, R, E>) -> Self {
        Self {
            state,
            polling: false,
        }
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Answer<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut state = this.state;
        loop {
            match state.as_mut().project() {
                StateProjection::Direct { future, lesson } => {
                    let response = ready!(future.poll(cx))?;
                    return Poll::Ready(Ok(ResponseBody::pass(response, lesson.take())));
                }
                StateProjection::Asking { future } => match ready!(future.as_mut().poll(cx))? {
                    Step::Answered(response) => return Poll::Ready(Ok(response)),
                    Step::Runs(run) => state.set(State::Running { run: Some(run) }),
                },
                StateProjection::Running { run } => {
                    let running = run.as_mut().expect("polled after completion");
                    *this.polling = true;
                    let polled = running.future.as_mut().poll(cx);
                    *this.polling = false;
                    let response = ready!(polled);
                    *run = None;
                    return Poll::Ready(response);
                }
            }
        }
    }
}

impl<F, R: Body, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}
