//! The body of a response: the inner one, one that is recorded or learned from as it passes, or an answer of the layer's.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

use super::recording::Attached;
use crate::{
    body::{Replay, is_event_stream},
    mcp::{
        ReplyParts, ToolEffects,
        sse::{Decoder, Item},
    },
};

/// What bodies of this layer fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pin_project! {
    /// Body of an [`IdempotencyKey`](super::IdempotencyKey)'s response.
    pub struct ResponseBody<R: Body> {
        #[pin]
        kind: Kind<R>,
    }
}

/// A recorded stream, whichever its body: the type of the whole must not ask for more than the inner service does.
type Recorded<R> = Box<dyn Stream<R> + Send>;

pin_project! {
    #[project = KindProjection]
    enum Kind<R: Body> {
        Inner { #[pin] body: Replay<R> },
        Learning { #[pin] body: R, lesson: Lesson },
        Recorded { body: Recorded<R> },
        Answer { #[pin] body: Full<Bytes> },
    }
}

/// A body that is polled where it lies.
trait Stream<R> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>;
    fn is_end_stream(&self) -> bool;
    fn size_hint(&self) -> SizeHint;
}

impl<R> Stream<R> for Attached<R>
where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        (self.0.poll_frame(cx)).map(|next| next.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl<R: Body> ResponseBody<R> {
    pub(super) fn inner(body: R) -> Self {
        Self::read(Replay::live(body))
    }

    /// A body that was looked into.
    pub(super) fn read(body: Replay<R>) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }

    pub(super) fn answer(body: Bytes) -> Self {
        Self {
            kind: Kind::Answer {
                body: Full::new(body),
            },
        }
    }

    pub(super) fn recorded(stream: Attached<R>) -> Self
    where
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        Self {
            kind: Kind::Recorded {
                body: Box::new(stream),
            },
        }
    }

    /// A response that passes, and is learned from if it is the answer to a lesson.
    pub(super) fn pass(response: Response<R>, lesson: Option<Lesson>) -> Response<Self> {
        match lesson {
            Some(mut lesson) if response.status().is_success() => {
                if is_event_stream(response.headers()) {
                    lesson.decoder = Some(Decoder::new(Lesson::LIMIT));
                }
                response.map(|body| Self {
                    kind: Kind::Learning { body, lesson },
                })
            }
            _ => response.map(Self::inner),
        }
    }
}

/// An empty body, for layers outside that answer in this one's place, as tower-http's time-out does.
impl<R: Body> Default for ResponseBody<R> {
    fn default() -> Self {
        Self::answer(Bytes::new())
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
            KindProjection::Learning { body, lesson } => {
                let polled = body.poll_frame(cx).map_err(Into::into);
                if let Poll::Ready(Some(Ok(frame))) = &polled {
                    lesson.hear(frame.data_ref());
                }
                polled
            }
            KindProjection::Recorded { body } => body.poll_frame(cx),
            KindProjection::Answer { body } => body.poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Learning { body, .. } => body.is_end_stream(),
            Kind::Recorded { body } => body.is_end_stream(),
            Kind::Answer { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Learning { body, .. } => body.size_hint(),
            Kind::Recorded { body } => body.size_hint(),
            Kind::Answer { body } => body.size_hint(),
        }
    }
}

impl<R: Body> std::fmt::Debug for ResponseBody<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResponseBody")
    }
}

/// What is learned from an answer to `tools/list` as it passes.
pub(super) struct Lesson {
    effects: Option<Arc<ToolEffects>>,
    /// For an answer that is a stream.
    decoder: Option<Decoder>,
    text: BytesMut,
}

impl Lesson {
    /// Of a longer answer nothing is learned.
    const LIMIT: usize = 1 << 20;

    pub(super) fn new(effects: &Arc<ToolEffects>) -> Self {
        Self {
            effects: Some(Arc::clone(effects)),
            decoder: None,
            text: BytesMut::new(),
        }
    }

    fn hear(&mut self, piece: Option<&Bytes>) {
        let (Some(piece), Some(effects)) = (piece, &self.effects) else {
            return;
        };
        let heard = match &mut self.decoder {
            Some(decoder) => decoder.feed(piece, |item| {
                if let Item::Event(event) = item {
                    learn(effects, event.data.unwrap_or_default());
                }
            }),
            None if self.text.len() + piece.len() <= Self::LIMIT => {
                self.text.extend_from_slice(piece);
                return;
            }
            None => return self.forget(),
        };
        if heard.is_err() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.effects = None;
        self.text = BytesMut::new();
    }
}

/// With the body: whoever reads one need not ask whether there is more of it.
impl Drop for Lesson {
    fn drop(&mut self) {
        if let Some(effects) = &self.effects {
            // A part of an answer is none, and teaches nothing.
            learn(effects, &self.text);
        }
    }
}

fn learn(effects: &ToolEffects, message: &[u8]) {
    if let Some(reply) = ReplyParts::of(message).filter(|reply| !reply.error) {
        effects.learn(reply.text.as_bytes());
    }
}
