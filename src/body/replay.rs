//! A body that may have been read from already.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// What a layer that reads bodies passes on: first what was read, then what was not.
    ///
    /// Size hint, trailers and errors are those of the body that came in. A body that was not looked into is
    /// passed through frame by frame.
    pub struct Replay<B: Body> {
        prefix: Option<Bytes>,
        #[pin]
        rest: Rest<B>,
    }
}

pin_project! {
    #[project = RestProjection]
    enum Rest<B: Body> {
        Live { #[pin] body: B },
        // Read from, and pinned where it was read.
        Pinned { body: Pin<Box<B>> },
        // Read to its end, of which this is left.
        End { trailers: Option<HeaderMap> },
        // Read until it failed.
        Failed { error: Option<B::Error> },
    }
}

impl<B: Body> Replay<B> {
    pub(crate) fn live(body: B) -> Self {
        Self {
            prefix: None,
            rest: Rest::Live { body },
        }
    }

    /// No body at all, for a request of the layer's own.
    pub(crate) fn empty() -> Self {
        Self::ended(Bytes::new(), None)
    }

    pub(crate) fn ended(read: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self {
            prefix: some(read),
            rest: Rest::End { trailers },
        }
    }

    pub(crate) fn failed(read: Bytes, error: B::Error) -> Self {
        Self {
            prefix: some(read),
            rest: Rest::Failed { error: Some(error) },
        }
    }

    pub(crate) fn pinned(read: Bytes, body: Pin<Box<B>>) -> Self {
        Self {
            prefix: some(read),
            rest: Rest::Pinned { body },
        }
    }
}

fn some(read: Bytes) -> Option<Bytes> {
    (!read.is_empty()).then_some(read)
}

impl<B: Body<Data = Bytes>> Body for Replay<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if let Some(prefix) = this.prefix.take() {
            return Poll::Ready(Some(Ok(Frame::data(prefix))));
        }
        match this.rest.project() {
            RestProjection::Live { body } => body.poll_frame(cx),
            RestProjection::Pinned { body } => body.as_mut().poll_frame(cx),
            RestProjection::End { trailers } => Poll::Ready(
                trailers
                    .take()
                    .map(|trailers| Ok(Frame::trailers(trailers))),
            ),
            RestProjection::Failed { error } => Poll::Ready(error.take().map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_none()
            && match &self.rest {
                Rest::Live { body } => body.is_end_stream(),
                Rest::Pinned { body } => body.is_end_stream(),
                Rest::End { trailers } => trailers.is_none(),
                Rest::Failed { error } => error.is_none(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = match &self.rest {
            Rest::Live { body } => body.size_hint(),
            Rest::Pinned { body } => body.size_hint(),
            Rest::End { .. } => SizeHint::with_exact(0),
            Rest::Failed { .. } => SizeHint::default(),
        };
        if let Some(prefix) = &self.prefix {
            let read = prefix.len() as u64;
            // The upper bound first: a lower one above it is refused.
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper.saturating_add(read));
            }
            hint.set_lower(hint.lower().saturating_add(read));
        }
        hint
    }
}

impl<B: Body> fmt::Debug for Replay<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("read", &self.prefix.as_ref().map_or(0, Bytes::len))
            .finish_non_exhaustive()
    }
}
