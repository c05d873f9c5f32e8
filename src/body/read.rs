//! Reading a body, bounded, without losing any of it.

use std::{future::poll_fn, ops::ControlFlow, pin::Pin};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::HeaderMap;
use http_body::Body;
use tokio::time::{Instant, timeout_at};

use super::Replay;
use crate::mcp::{IdFinder, RequestId};

/// What came of reading a body.
pub(crate) struct ReadBody<B: Body> {
    /// What was read, at most one frame more than the limit.
    pub(crate) bytes: Bytes,
    /// Why reading stopped.
    pub(crate) finding: Finding,
    /// The body as if nobody had read it.
    pub(crate) replay: Replay<B>,
}

/// Why reading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The body ended.
    Ended,
    /// The caller had seen enough.
    Enough,
    /// The body is longer than the limit, or says that it will be.
    TooLarge,
    /// The body failed. What was read is not all that was meant.
    Failed,
    /// The deadline came first.
    TooSlow,
}

/// Reads until the body ends, `look` breaks, more than `limit` bytes were read, or `deadline` comes.
///
/// # Cancel safety
///
/// Dropped half-way, what was read is lost with the body itself, as when any reader of a body is dropped.
pub(crate) async fn read<B>(
    body: B,
    limit: usize,
    deadline: Instant,
    mut look: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> ReadBody<B>
where
    B: Body<Data = Bytes>,
{
    if body.size_hint().lower() > limit as u64 {
        return ReadBody {
            bytes: Bytes::new(),
            finding: Finding::TooLarge,
            replay: Replay::live(body),
        };
    }
    let mut body: Pin<Box<B>> = Box::pin(body);
    let mut read = Collected::default();
    let (finding, rest) = loop {
        let mut next = poll_fn(|cx| body.as_mut().poll_frame(cx));
        // What is there at once costs no timer.
        let next = match (&mut next).now_or_never() {
            Some(frame) => Ok(frame),
            None => timeout_at(deadline, next).await,
        };
        match next {
            Err(_) => break (Finding::TooSlow, Left::Body),
            Ok(None) => break (Finding::Ended, Left::Trailers(None)),
            Ok(Some(Err(error))) => break (Finding::Failed, Left::Error(error)),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Err(frame) => break (Finding::Ended, Left::Trailers(frame.into_trailers().ok())),
                Ok(data) => {
                    let enough = look(&data);
                    read.push(data);
                    if read.len() > limit {
                        break (Finding::TooLarge, Left::Body);
                    }
                    if enough.is_break() {
                        break (Finding::Enough, Left::Body);
                    }
                }
            },
        }
    };
    let bytes = read.into_bytes();
    let replay = match rest {
        Left::Body => Replay::pinned(bytes.clone(), body),
        Left::Trailers(trailers) => Replay::ended(bytes.clone(), trailers),
        Left::Error(error) => Replay::failed(bytes.clone(), error),
    };
    ReadBody {
        bytes,
        finding,
        replay,
    }
}

/// Reads on in a body that is too long, up to four times the limit, and keeps nothing of it but the id of the request.
///
/// A client hears no answer while it is still sending, and some are lost when the connection closes on them then. And the
/// answer needs the id of the request, which may come last.
pub(crate) async fn read_past<B>(
    body: Replay<B>,
    limit: usize,
    deadline: Instant,
) -> Option<RequestId>
where
    B: Body<Data = Bytes>,
{
    let bound = limit.saturating_mul(4);
    if body.size_hint().lower() > bound as u64 {
        return None;
    }
    let mut body = Box::pin(body);
    let mut finder = IdFinder::default();
    let reading = async {
        let mut read = 0usize;
        while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            if let Some(data) = frame.data_ref() {
                finder.feed(data);
                read = read.saturating_add(data.len());
            }
            if read > bound {
                break;
            }
        }
    };
    // What was seen by then is all that will be.
    let _ = timeout_at(deadline, reading).await;
    finder.found()
}

/// What of a body is left after reading.
enum Left<E> {
    Body,
    Trailers(Option<HeaderMap>),
    Error(E),
}

/// Bytes in one piece; not copied while there is only one frame.
#[derive(Default)]
struct Collected {
    one: Bytes,
    many: BytesMut,
}

impl Collected {
    fn len(&self) -> usize {
        self.one.len() + self.many.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.one = data;
        } else {
            let one = std::mem::take(&mut self.one);
            self.many.extend_from_slice(&one);
            self.many.extend_from_slice(&data);
        }
    }

    fn into_bytes(self) -> Bytes {
        if self.many.is_empty() {
            self.one
        } else {
            self.many.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body::Frame;
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    type Frames = Vec<Result<Frame<Bytes>, &'static str>>;

    fn body(frames: Frames) -> impl Body<Data = Bytes, Error = &'static str> {
        StreamBody::new(futures_util::stream::iter(frames))
    }

    fn data(text: &'static str) -> Result<Frame<Bytes>, &'static str> {
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    fn soon() -> Instant {
        Instant::now() + std::time::Duration::from_secs(60)
    }

    async fn whole(frames: Frames, limit: usize) -> (Finding, Result<String, &'static str>, bool) {
        let read = read(body(frames), limit, soon(), |_| ControlFlow::Continue(())).await;
        let finding = read.finding;
        let collected = read.replay.collect().await;
        let trailers = collected
            .as_ref()
            .is_ok_and(|body| body.trailers().is_some());
        let text = collected.map(|body| String::from_utf8(body.to_bytes().to_vec()).unwrap());
        (finding, text, trailers)
    }

    #[tokio::test]
    async fn nothing_is_lost_whatever_was_found() {
        let frames = || {
            vec![
                data("ab"),
                data("cd"),
                Ok(Frame::trailers(HeaderMap::new())),
            ]
        };
        assert_eq!(
            whole(frames(), 4).await,
            (Finding::Ended, Ok("abcd".into()), true)
        );
        assert_eq!(
            whole(frames(), 3).await,
            (Finding::TooLarge, Ok("abcd".into()), true)
        );
        let broken = vec![data("ab"), Err("reset")];
        assert_eq!(
            whole(broken, 9).await,
            (Finding::Failed, Err("reset"), false)
        );
        assert_eq!(
            whole(vec![], 0).await,
            (Finding::Ended, Ok(String::new()), false)
        );
    }

    #[tokio::test]
    async fn a_body_that_says_it_is_too_long_is_not_read() {
        let full = Full::new(Bytes::from_static(b"abcdef"));
        let read = read(full, 5, soon(), |_| panic!("read")).await;
        assert_eq!(read.finding, Finding::TooLarge);
        assert_eq!(read.replay.size_hint().exact(), Some(6));
    }

    #[tokio::test]
    async fn the_size_is_what_it_was() {
        let full = Full::new(Bytes::from_static(b"abcdef"));
        let read = read(full, 6, soon(), |_| ControlFlow::Continue(())).await;
        assert_eq!(read.replay.size_hint().exact(), Some(6));
        assert!(!read.replay.is_end_stream());
        let enough = super::read(body(vec![data("ab"), data("c")]), 9, soon(), |_| {
            ControlFlow::Break(())
        })
        .await;
        assert_eq!(
            (enough.finding, &enough.bytes[..]),
            (Finding::Enough, &b"ab"[..])
        );
        assert_eq!(enough.replay.size_hint().lower(), 2);
        assert_eq!(enough.replay.collect().await.unwrap().to_bytes(), "abc");
    }
}
