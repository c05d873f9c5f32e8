//! The body of a guarded response: the inner one, for as long as the session is provably this instance's.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

use super::forward::ForwardBody;
use crate::{body::Replay, instance::Guard};

/// What bodies of this layer fail with.
pub type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// Body of an [`AffinityGuard`](super::AffinityGuard)'s response: the inner body, the owner's if the request was
    /// handed to it, or a refusal.
    ///
    /// A session can be lost while its answer is on the way. Each frame is let out only while the session is
    /// proven; while that is in doubt the body waits, and if the session is lost it fails with [`SessionLost`],
    /// so that nothing is shown under a grant that somebody else may have superseded.
    #[derive(Debug)]
    pub struct ResponseBody<R: Body> {
        #[pin]
        kind: Kind<R>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<R: Body> {
        Inner { #[pin] body: Replay<R>, guard: Option<Guard> },
        Forwarded { #[pin] body: ForwardBody },
        Refusal { #[pin] body: Full<Bytes> },
    }
}

impl<R: Body> ResponseBody<R> {
    #[inline]
    pub(super) fn inner(body: Replay<R>, guard: Option<Guard>) -> Self {
        Self {
            kind: Kind::Inner { body, guard },
        }
    }

    pub(super) fn forwarded(body: ForwardBody) -> Self {
        Self {
            kind: Kind::Forwarded { body },
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
impl<R: Body> Default for ResponseBody<R> {
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
        let (mut body, guard) = match self.project().kind.project() {
            KindProjection::Inner { body, guard } => (body, guard),
            // Proven where it comes from.
            KindProjection::Forwarded { body } => return body.poll_frame(cx),
            KindProjection::Refusal { body } => {
                return body.poll_frame(cx).map_err(|never| match never {});
            }
        };
        loop {
            if let Some(held) = guard.as_mut()
                && ready!(held.poll_proof(cx)).is_err()
            {
                // Whatever it still had to say is not this session's any more.
                *guard = None;
                body.set(Replay::empty());
                return Poll::Ready(Some(Err(SessionLost.into())));
            }
            match body.as_mut().poll_frame(cx) {
                Poll::Ready(frame) => {
                    if frame.is_none() {
                        *guard = None;
                    }
                    return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
                }
                // A silent stream ends when its session is lost, not when it next has something to say.
                Poll::Pending => match guard {
                    Some(guard) => ready!(guard.poll_changed(cx)),
                    None => return Poll::Pending,
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body, .. } => body.is_end_stream(),
            Kind::Forwarded { body } => body.is_end_stream(),
            Kind::Refusal { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body, .. } => body.size_hint(),
            Kind::Forwarded { body } => body.size_hint(),
            Kind::Refusal { body } => body.size_hint(),
        }
    }
}

/// The session was lost while its answer was on the way. What was not yet sent is withheld, and the connection is
/// cut, since the rest of the answer belongs to somebody else's grant.
#[derive(Debug, Clone, Copy)]
pub struct SessionLost;

impl fmt::Display for SessionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the session is no longer this instance's")
    }
}

impl Error for SessionLost {}
