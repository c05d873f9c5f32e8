//! An answer that is a stream: its events pass, and the final one is held until it is recorded.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http_body::{Body, Frame, SizeHint};

use super::{
    claim::Claimed,
    decide::{Ending, Said, Settlement, Status, settle},
    future::Detached,
    run::said,
};
use crate::{
    mcp::sse::{Decoder, Item},
    store::Reply,
};

type Next<E> = Option<Result<Frame<Bytes>, E>>;

/// Reads an inner stream for whoever polls it, and for nobody when they have left.
pub(super) struct Recording<R: Body<Data = Bytes>> {
    body: Option<Pin<Box<R>>>,
    answers: Answers,
    /// Until it is known how the call ended.
    claimed: Option<Claimed>,
    settling: Option<BoxFuture<'static, ()>>,
    /// What is let out when the ledger knows.
    held: Option<Next<R::Error>>,
    detaches: bool,
    polling: bool,
}

/// What is looked for in the stream.
struct Answers {
    id: Box<str>,
    status: Status,
    decoder: Decoder,
    limit: usize,
}

impl Answers {
    /// What a piece of the stream says of the call, if it says it.
    fn look(&mut self, piece: &[u8]) -> Option<(Said, Option<Reply>)> {
        let Self {
            id, decoder, limit, ..
        } = self;
        let mut found = None;
        let fed = decoder.feed(piece, |item| {
            if let (Item::Event(event), None) = (item, &found) {
                found = event.data.and_then(|data| said(data, id, *limit));
            }
        });
        match (fed, found) {
            (_, Some(found)) => Some(found),
            (Ok(()), None) => None,
            // Nothing after it can be read: however it goes on, what came of the call is not known here.
            (Err(error), None) => {
                tracing::warn!(%error, "the answer to a call with a key cannot be read");
                Some((Said::Nothing, None))
            }
        }
    }
}

impl<R> Recording<R>
where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    pub(super) fn new(
        body: R,
        claimed: Claimed,
        id: Box<str>,
        status: Status,
        detaches: bool,
    ) -> Self {
        let config = claimed.config();
        Self {
            body: Some(Box::pin(body)),
            answers: Answers {
                id,
                status,
                decoder: Decoder::new(config.event_limit),
                limit: config.outcome_limit,
            },
            claimed: Some(claimed),
            settling: None,
            held: None,
            detaches,
            polling: false,
        }
    }
}

impl<R: Body<Data = Bytes>> Recording<R> {
    fn end(&mut self, settlement: Settlement, reply: Option<Reply>) {
        if let Some(claimed) = self.claimed.take() {
            self.settling = Some(claimed.settle(settlement, reply).boxed());
        }
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Next<R::Error>> {
        loop {
            if let Some(settling) = &mut self.settling {
                ready!(settling.as_mut().poll(cx));
                self.settling = None;
            }
            if let Some(held) = self.held.take() {
                return Poll::Ready(held);
            }
            let Some(body) = &mut self.body else {
                return Poll::Ready(None);
            };
            self.polling = true;
            let polled = body.as_mut().poll_frame(cx);
            self.polling = false;
            let next = ready!(polled);
            if self.claimed.is_none() {
                return Poll::Ready(next);
            }
            let status = self.answers.status;
            let ended = match &next {
                Some(Ok(frame)) => frame.data_ref().and_then(|data| self.answers.look(data)),
                Some(Err(_)) | None => Some((Said::Nothing, None)),
            };
            let Some((said, reply)) = ended else {
                return Poll::Ready(next);
            };
            self.end(settle(Ending { status, said }), reply);
            self.held = Some(next);
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let quiet = self.claimed.is_none() && self.settling.is_none() && self.held.is_none();
        quiet && self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match (&self.body, &self.held) {
            (Some(body), None) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

impl<R: Body<Data = Bytes>> Recording<R> {
    /// The rest of it, for nobody, if the call is to go on without its client.
    fn leave(&mut self) -> Option<(Detached, Self)> {
        // A body that panicked cannot be gone on with.
        if self.polling || !self.detaches {
            return None;
        }
        let claimed = self.claimed.take()?;
        let detached = Detached {
            runtime: claimed.runtime()?.clone(),
            config: std::sync::Arc::clone(claimed.config()),
        };
        let id = std::mem::take(&mut self.answers.id);
        let status = self.answers.status;
        let limit = self.answers.limit;
        let decoder = std::mem::replace(&mut self.answers.decoder, Decoder::new(0));
        let rest = Self {
            body: self.body.take(),
            answers: Answers {
                id,
                status,
                decoder,
                limit,
            },
            claimed: Some(claimed),
            settling: None,
            held: None,
            detaches: false,
            polling: false,
        };
        Some((detached, rest))
    }
}

/// What is held by a response body. Dropped before the call has ended, the call goes on where it is to.
pub(super) struct Attached<R>(pub(super) Recording<R>)
where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send;

impl<R> Drop for Attached<R>
where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    fn drop(&mut self) {
        if let Some((detached, mut rest)) = self.0.leave() {
            detached.go_on(async move {
                // Until it is known how it ended; what comes after that is for nobody.
                while rest.claimed.is_some() || rest.settling.is_some() {
                    if std::future::poll_fn(|cx| rest.poll_frame(cx))
                        .await
                        .is_none()
                    {
                        break;
                    }
                }
            });
        }
    }
}
