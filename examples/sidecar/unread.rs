//! A request's body on its way, of which enough is kept to say whose request it was when the server behind does not answer.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Bytes;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

use crate::serve::BoxError;

pub(crate) type Sent = UnsyncBoxBody<Bytes, BoxError>;

/// What is kept of a body, and how much of one is read for its ids after a failure.
const LIMIT: usize = 4 << 20;

/// A body that comes back when it is dropped.
pub(crate) struct Traced {
    parts: Option<Parts>,
    back: Option<oneshot::Sender<Parts>>,
}

struct Parts {
    /// Clones of what went by, which share its memory.
    passed: Vec<Bytes>,
    len: usize,
    rest: Sent,
}

/// Where it comes back to.
pub(crate) struct Unread(oneshot::Receiver<Parts>);

pub(crate) fn trace(body: Sent) -> (Traced, Unread) {
    let (back, unread) = oneshot::channel();
    let parts = Parts {
        passed: Vec::new(),
        len: 0,
        rest: body,
    };
    let traced = Traced {
        parts: Some(parts),
        back: Some(back),
    };
    (traced, Unread(unread))
}

impl Unread {
    /// The whole body, if it was not too long.
    pub(crate) async fn whole(self) -> Option<Bytes> {
        let Parts {
            passed,
            len,
            mut rest,
        } = self.0.await.ok()?;
        if len > LIMIT {
            return None;
        }
        let mut whole = passed.concat();
        while let Some(frame) = rest.frame().await {
            if let Ok(data) = frame.ok()?.into_data() {
                whole.extend_from_slice(&data);
            }
            if whole.len() > LIMIT {
                return None;
            }
        }
        Some(whole.into())
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let (Some(back), Some(parts)) = (self.back.take(), self.parts.take()) {
            let _ = back.send(parts);
        }
    }
}

impl Body for Traced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(parts) = &mut self.parts else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(Pin::new(&mut parts.rest).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            parts.len = parts.len.saturating_add(data.len());
            if parts.len > LIMIT {
                parts.passed = Vec::new();
            } else {
                parts.passed.push(data.clone());
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.parts
            .as_ref()
            .is_none_or(|parts| parts.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.parts.as_ref().map(|parts| parts.rest.size_hint());
        rest.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}
