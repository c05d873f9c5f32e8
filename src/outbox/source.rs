//! The inner service's stream: its body, decoded, and what is known of where it could be gone on with.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use http_body::Body;

use super::batch::Batch;
use crate::mcp::sse::{self, Decoder, Item};

/// Asks the inner service to go on after the event with its own id; `None` when it does not.
pub(crate) type GoOn<R> = Box<dyn FnMut(HeaderValue) -> BoxFuture<'static, Option<R>> + Send>;

pub(crate) struct Source<R> {
    /// None once it was closed.
    body: Option<Pin<Box<R>>>,
    decoder: Decoder,
    event_limit: usize,
    /// The inner service's id of the last event that had one, and how long it asks to wait.
    last_id: Option<Vec<u8>>,
    retry: Option<u64>,
    go_on: Option<GoOn<R>>,
}

/// Why nothing more comes out of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dry {
    /// It ended.
    Ended,
    /// It failed, or said something that cannot be read.
    Failed,
}

/// What an inner stream says besides its messages.
pub(crate) enum Aside<'a> {
    Comment(&'a [u8]),
    Retry(u64),
}

impl<R: Body<Data = Bytes>> Source<R> {
    pub(crate) fn new(body: R, event_limit: usize, go_on: Option<GoOn<R>>) -> Self {
        Self {
            body: Some(Box::pin(body)),
            decoder: Decoder::new(event_limit),
            event_limit,
            last_id: None,
            retry: None,
            go_on,
        }
    }

    /// Reads what is ready, up to a batch and to the frame that fills `room`, and hands each message to `push` and
    /// everything else to `aside`.
    ///
    /// Ready when the batch has something or the body is dry; what was read before it went dry is in the batch. Says
    /// whether there was no more to read for now.
    pub(crate) fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut Batch,
        room: usize,
        mut push: impl FnMut(&mut Batch, sse::Event<'_>),
        mut aside: impl FnMut(Aside<'_>),
    ) -> Poll<Result<bool, Dry>> {
        while !batch.is_full() && batch.len() < room {
            let Some(body) = &mut self.body else {
                return Poll::Ready(Err(Dry::Ended));
            };
            let frame = match body.as_mut().poll_frame(cx) {
                Poll::Pending if batch.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Ok(true)),
                Poll::Ready(None) => return Poll::Ready(Err(Dry::Ended)),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(Dry::Failed)),
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            // Trailers of an event stream have no meaning.
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let Self {
                decoder,
                last_id,
                retry,
                ..
            } = self;
            let fed = decoder.feed(&data, |item| match item {
                Item::Comment(text) => aside(Aside::Comment(text)),
                Item::Event(event) => {
                    if let Some(id) = event.id {
                        let last = last_id.get_or_insert_default();
                        last.clear();
                        last.extend_from_slice(id);
                    }
                    if let Some(millis) = event.retry {
                        *retry = Some(millis);
                        aside(Aside::Retry(millis));
                    }
                    // An event without data is a position of the inner service's, and those are replaced.
                    if event.data.is_some_and(|data| !data.is_empty()) {
                        push(batch, event);
                    }
                }
            });
            if let Err(error) = fed {
                tracing::warn!(%error, "the inner service's stream cannot be read");
                self.last_id = None;
                return Poll::Ready(Err(Dry::Failed));
            }
        }
        Poll::Ready(Ok(false))
    }

    /// Lets go of the inner stream.
    pub(crate) fn close(&mut self) {
        self.body = None;
        self.go_on = None;
    }

    /// Whether a body that went dry may be gone on with, and how long the inner service asks to wait.
    pub(crate) fn may_go_on(&self) -> Option<Duration> {
        self.go_on.as_ref()?;
        self.last_id.as_ref().filter(|id| !id.is_empty())?;
        Some(Duration::from_millis(self.retry.unwrap_or(0)))
    }

    /// Asks for the rest. Whether it is there.
    pub(crate) async fn go_on(&mut self) -> bool {
        let last = self.last_id.as_deref().unwrap_or_default();
        let (Some(go_on), Ok(last)) = (&mut self.go_on, HeaderValue::from_bytes(last)) else {
            return false;
        };
        match go_on(last).await {
            Some(body) => {
                match &mut self.body {
                    Some(old) => old.set(body),
                    none => *none = Some(Box::pin(body)),
                }
                self.decoder = Decoder::new(self.event_limit);
                true
            }
            None => false,
        }
    }
}
