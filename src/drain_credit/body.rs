//! The body of a response: the inner one, accounted for, or a stream through the layer's own queue, or a refusal.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

use super::{account::Step, queue::Queue, ticket::Ticket};
use crate::outbox::Lever;

/// What bodies of this layer fail with.
pub type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// Body of a [`DrainCredit`](super::DrainCredit)'s response.
    ///
    /// Its place in the session's account is given back when it ends or is dropped, once.
    #[derive(Debug)]
    pub struct ResponseBody<R> {
        #[pin]
        kind: Kind<R>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<R> {
        Inner { #[pin] body: R, ticket: Option<Ticket> },
        Held { body: Arc<Held<R>>, ticket: Option<Ticket> },
        Stream { stream: Stream },
        Refusal { #[pin] body: Full<Bytes> },
    }
}

/// An inner body that can be dropped while nobody polls for it.
pub(super) struct Held<R>(Mutex<Option<Pin<Box<R>>>>);

/// The client's end of a queue.
pub(super) struct Stream(Arc<Queue>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl<R> ResponseBody<R> {
    #[inline]
    pub(super) fn inner(body: R, ticket: Option<Ticket>) -> Self {
        Self {
            kind: Kind::Inner { body, ticket },
        }
    }

    pub(super) fn held(body: Arc<Held<R>>, ticket: Ticket) -> Self {
        let ticket = Some(ticket);
        Self {
            kind: Kind::Held { body, ticket },
        }
    }

    pub(super) fn stream(queue: Arc<Queue>) -> Self {
        Self {
            kind: Kind::Stream {
                stream: Stream(queue),
            },
        }
    }

    pub(super) fn refusal(body: Bytes) -> Self {
        Self {
            kind: Kind::Refusal {
                body: Full::new(body),
            },
        }
    }
}

/// An empty body, for layers outside that answer in this one's place, as tower-http's time-out does.
impl<R> Default for ResponseBody<R> {
    fn default() -> Self {
        Self::refusal(Bytes::new())
    }
}

impl<R> Held<R> {
    pub(super) fn new(body: R) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Box::pin(body)))))
    }

    fn with<T>(&self, look: impl FnOnce(Option<Pin<&mut R>>) -> T) -> T {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        look(body.as_mut().map(Pin::as_mut))
    }
}

impl<R: Send> Lever for Held<R> {
    fn wake(&self) {}

    fn tear_down(&self) {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(body);
    }

    fn ask(&self, _: Bytes) -> bool {
        false
    }
}

/// Keeps the account of an answer that is no stream.
fn account<E>(
    ticket: &mut Option<Ticket>,
    polled: &Poll<Option<Result<Frame<Bytes>, E>>>,
    hint: impl FnOnce() -> (bool, SizeHint),
) {
    let Some(held) = ticket else {
        return;
    };
    let mut step = Step::default();
    step.reading.messages = 1;
    step.reading.answers = 1;
    match polled {
        Poll::Ready(Some(Ok(frame))) => {
            let (ended, size) = hint();
            if !ended {
                step.handed = frame.data_ref().map_or(0, |data| data.len() as u64);
                step.reading.bytes = size.lower();
                held.step(&step, &[]).wake();
                return;
            }
        }
        // It waits for the inner service.
        Poll::Pending => {
            step.reading.held = true;
            held.step(&step, &[]).wake();
            return;
        }
        Poll::Ready(_) => {}
    }
    *ticket = None;
}

impl<R> Body for ResponseBody<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            KindProjection::Inner { mut body, ticket } => {
                // One that was given up is small and whole: whoever reads it after all may have it.
                let polled = body.as_mut().poll_frame(cx);
                account(ticket, &polled, || (body.is_end_stream(), body.size_hint()));
                polled.map_err(Into::into)
            }
            KindProjection::Held { body, ticket } => body.with(|body| {
                let Some(mut body) = body else {
                    *ticket = None;
                    return Poll::Ready(Some(Err(TornDown.into())));
                };
                let polled = body.as_mut().poll_frame(cx);
                account(ticket, &polled, || (body.is_end_stream(), body.size_hint()));
                polled.map_err(Into::into)
            }),
            KindProjection::Stream { stream } => stream.0.poll_next(cx),
            KindProjection::Refusal { body } => body.poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body, .. } => body.is_end_stream(),
            Kind::Held { body, .. } => {
                body.with(|body| body.is_some_and(|body| body.is_end_stream()))
            }
            Kind::Stream { stream } => stream.0.is_end(),
            Kind::Refusal { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body, .. } => body.size_hint(),
            Kind::Held { body, .. } => {
                body.with(|body| body.map_or_else(SizeHint::default, |body| body.size_hint()))
            }
            Kind::Stream { .. } => SizeHint::default(),
            Kind::Refusal { body } => body.size_hint(),
        }
    }
}

impl<R> fmt::Debug for Kind<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inner { .. } => "Inner",
            Self::Held { .. } => "Held",
            Self::Stream { .. } => "Stream",
            Self::Refusal { .. } => "Refusal",
        })
    }
}

/// The answer was given up because its client did not read it. What is missing of it is lost.
#[derive(Debug, Clone, Copy)]
pub struct TornDown;

impl TornDown {
    pub(super) const DETAIL: &'static str =
        "the stream was given up because its client did not read it";
}

impl fmt::Display for TornDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::DETAIL)
    }
}

impl Error for TornDown {}
