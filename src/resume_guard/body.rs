//! The body of a guarded response: the inner one as it is, a stream that the outbox carries, or a refusal.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

use crate::outbox::Delivery;

/// What bodies of this layer fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pin_project! {
    /// Body of a [`ResumeGuard`](super::ResumeGuard)'s response.
    #[derive(Debug)]
    pub struct ResponseBody<R> {
        #[pin]
        kind: Kind<R>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<R> {
        Inner { #[pin] body: R },
        Stream { body: Box<Delivery> },
        Refusal { #[pin] body: Full<Bytes> },
    }
}

impl<R> ResponseBody<R> {
    pub(super) fn inner(body: R) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }

    pub(super) fn stream(delivery: Delivery) -> Self {
        Self {
            kind: Kind::Stream {
                body: Box::new(delivery),
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

impl<R> Body for ResponseBody<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            KindProjection::Inner { body } => body.poll_frame(cx).map_err(Into::into),
            KindProjection::Stream { body } => Pin::new(&mut **body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            KindProjection::Refusal { body } => body.poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Stream { body } => body.is_end_stream(),
            Kind::Refusal { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Stream { body } => body.size_hint(),
            Kind::Refusal { body } => body.size_hint(),
        }
    }
}
