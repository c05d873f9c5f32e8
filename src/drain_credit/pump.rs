//! The producer's side of a stream that no outbox carries: pulls the inner body into the queue, and counts what it says.

use std::{future::poll_fn, sync::Arc, task::Poll};

use bytes::Bytes;
use http::{HeaderMap, Uri};
use http_body::{Body, Frame};
use tokio::task::yield_now;

use super::{
    body::BoxError,
    carrier::Carrier,
    queue::{End, MAX_FRAME, Piece, Queue},
};
use crate::mcp::{
    RequestId, Subject,
    sse::{Decoder, Item},
};

/// How much is pulled before others get their turn.
const PIECES: usize = 64;

pub(super) struct Pump<R> {
    pub(super) body: R,
    pub(super) queue: Arc<Queue>,
    pub(super) meter: Meter,
    /// For a stream that says by itself which session it belongs to.
    pub(super) carrier: Option<Carrier>,
}

impl<R> Pump<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    /// Until the inner stream ends or nobody wants more of it; then it is dropped.
    pub(super) async fn run(self) {
        let Self {
            body,
            queue,
            mut meter,
            carrier,
        } = self;
        let mut body = Box::pin(body);
        let (mut pieces, mut bytes) = (0, 0);
        loop {
            if poll_fn(|cx| queue.poll_room(cx)).await.is_err() {
                return;
            }
            let next = poll_fn(|cx| match queue.poll_over(cx) {
                Poll::Ready(over) => Poll::Ready(Err(over)),
                Poll::Pending => body.as_mut().poll_frame(cx).map(Ok),
            });
            let frame = match next.await {
                Err(_) => return,
                Ok(None) => return queue.end(End::Done(None)),
                Ok(Some(Err(error))) => return queue.end(End::Failed(error.into())),
                Ok(Some(Ok(frame))) => frame,
            };
            let data = match Frame::into_data(frame) {
                Ok(data) => data,
                Err(frame) => {
                    let trailers: Option<HeaderMap> = frame.into_trailers().ok();
                    return queue.end(End::Done(trailers));
                }
            };
            pieces += 1;
            bytes += data.len();
            match meter.measure(data) {
                Measured::Piece(piece) => queue.push(piece),
                Measured::Comment(bytes) => queue.say(bytes),
                Measured::Endpoint(piece, endpoint) => {
                    if let Some(carrier) = carrier.as_ref().filter(|_| !queue.is_accounted()) {
                        carrier.account(&queue, &endpoint);
                    }
                    queue.push(piece);
                }
            }
            if pieces >= PIECES || bytes >= MAX_FRAME {
                (pieces, bytes) = (0, 0);
                yield_now().await;
            }
        }
    }
}

/// Counts the messages of a stream, and leaves its bytes as they are.
pub(super) struct Meter {
    /// `None` for a stream that cannot be read, because it is compressed or an event is too large: each piece of it
    /// counts as a message.
    decoder: Option<Decoder>,
    hash: fn(&RequestId) -> u64,
}

pub(super) enum Measured {
    Piece(Piece),
    /// Nothing but comments.
    Comment(Bytes),
    /// It says where the session's requests are to be sent (MCP 2024-11-05).
    Endpoint(Piece, Uri),
}

impl Meter {
    pub(super) fn new(event_limit: usize, readable: bool, hash: fn(&RequestId) -> u64) -> Self {
        Self {
            decoder: readable.then(|| Decoder::new(event_limit)),
            hash,
        }
    }

    pub(super) fn measure(&mut self, bytes: Bytes) -> Measured {
        let opaque = |bytes| {
            Measured::Piece(Piece {
                bytes,
                messages: 1,
                counts: true,
                ..Piece::default()
            })
        };
        let Some(decoder) = &mut self.decoder else {
            return opaque(bytes);
        };
        let within = !decoder.is_between_events();
        let (mut messages, mut events, mut answers, mut endpoint) = (0, 0, Vec::new(), None);
        let fed = decoder.feed(&bytes, |item| {
            let Item::Event(event) = item else {
                return;
            };
            events += 1;
            let Some(data) = event.data.filter(|data| !data.is_empty()) else {
                return;
            };
            if event.event == b"endpoint" {
                endpoint = std::str::from_utf8(data)
                    .ok()
                    .and_then(|uri| uri.parse().ok());
                return;
            }
            messages += 1;
            Subject::of(data).visit(&mut |part| {
                if let Subject::Answer(id) = part {
                    answers.push((self.hash)(id));
                }
            });
        });
        if fed.is_err() {
            tracing::warn!(
                "an event is larger than can be read: the stream is passed on uncounted"
            );
            self.decoder = None;
            return opaque(bytes);
        }
        let whole = decoder.is_between_events();
        if !within && whole && events == 0 {
            return Measured::Comment(bytes);
        }
        let piece = Piece {
            bytes,
            messages,
            answers,
            counts: messages > 0 || !whole,
            whole,
        };
        match endpoint {
            Some(endpoint) => Measured::Endpoint(piece, endpoint),
            None => Measured::Piece(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(pieces: &[&'static str]) -> Vec<String> {
        let mut meter = Meter::new(64, true, |id| id.as_json().parse().unwrap_or(0));
        let measured =
            pieces.iter().map(
                |piece| match meter.measure(Bytes::from_static(piece.as_bytes())) {
                    Measured::Comment(_) => "comment".to_owned(),
                    Measured::Endpoint(_, uri) => format!("endpoint {uri}"),
                    Measured::Piece(piece) => format!(
                        "{} {:?}{}{}",
                        piece.messages,
                        piece.answers,
                        if piece.counts { " counts" } else { "" },
                        if piece.whole { " whole" } else { "" }
                    ),
                },
            );
        measured.collect()
    }

    #[test]
    fn what_counts_as_a_message() {
        assert_eq!(
            measure(&[
                ": still here\n\n",
                "id: 7\ndata:\n\n",
                "data: {\"method\":\"n\"}\n\n",
                "data: {\"id\":3,\"result\":{}}\n\n: c\n\ndata: {\"id\":4,\"error\":{}}\n\n",
                "data: {\"id\":5,",
                "\"result\":1}\n",
                "\n",
                "event: endpoint\ndata: /m?sessionId=a\n\n",
            ]),
            [
                "comment",
                "0 [] whole",
                "1 [] counts whole",
                "2 [3, 4] counts whole",
                "0 [] counts",
                "0 [] counts",
                "1 [5] counts whole",
                "endpoint /m?sessionId=a",
            ]
        );
    }

    #[test]
    fn what_cannot_be_read_counts_piece_by_piece() {
        let long = "data: 0123456789012345678901234567890123456789012345678901234567890123456789";
        assert_eq!(measure(&[long, "\n\n", ": c\n\n"]), ["1 [] counts"; 3]);
    }
}
