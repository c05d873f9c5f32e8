//! What stands between an inner stream and a client where no outbox does: a bounded queue that passes bytes on as they
//! came.

mod state;

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;

pub(super) use self::state::{End, Piece};
use self::state::{State, Wake};

use super::{
    body::BoxError,
    sync::{Mutex, MutexGuard, PoisonError},
    ticket::Ticket,
};
use crate::{mcp::RequestId, outbox::Lever};

/// The size of a frame: what is larger is handed over in parts, so that progress can be seen.
pub(super) const MAX_FRAME: usize = 16 * 1024;
/// How much is held that is no message and costs no credit.
const MAX_UNCOUNTED: u64 = 64 * 1024;
/// Questions of the guard's own that wait for their turn.
const MAX_QUESTIONS: usize = 64;

pub(super) struct Queue {
    state: Mutex<State>,
}

/// Why the producer has nothing more to do.
#[derive(Debug)]
pub(super) struct Over;

impl Queue {
    /// With the requests that the stream owes answers to; `None` where they are not known.
    pub(super) fn new(owed: Option<&[RequestId]>, hash: impl Fn(&RequestId) -> u64) -> Arc<Self> {
        let known = owed.unwrap_or_default().iter();
        Arc::new(Self {
            state: Mutex::new(State {
                owed: known.map(|id| (hash(id), id.clone())).collect(),
                owes_unknown: owed.is_none(),
                ..State::default()
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> (T, Wake)) -> T {
        let (outcome, wake) = change(&mut self.state());
        wake.run();
        outcome
    }

    /// From here on the stream is accounted for.
    pub(super) fn account(&self, ticket: Ticket) {
        self.change(|state| {
            if state.gone || state.torn {
                let ticket = Some(ticket);
                return (
                    (),
                    Wake {
                        ticket,
                        ..Wake::default()
                    },
                );
            }
            state.ticket = Some(ticket);
            let relief = state.report(0, 0, &[]);
            (
                (),
                Wake {
                    relief,
                    ..Wake::default()
                },
            )
        });
    }

    pub(super) fn is_accounted(&self) -> bool {
        self.state().ticket.is_some()
    }

    /// Ready when more may be pulled.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        let mut state = self.state();
        if state.gone || state.torn {
            return Poll::Ready(Err(Over));
        }
        // Left before the account is asked, so that whoever makes room finds it.
        state.producer = Some(cx.waker().clone());
        let may_pull = match &state.ticket {
            Some(ticket) => state.held as u64 - state.counted < MAX_UNCOUNTED && ticket.room() > 0,
            None => state.held < MAX_FRAME,
        };
        state.starved = !may_pull;
        match may_pull {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Ready when nobody wants more.
    pub(super) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<Over> {
        let mut state = self.state();
        if state.gone || state.torn {
            return Poll::Ready(Over);
        }
        match &state.producer {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => state.producer = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    pub(super) fn push(&self, mut piece: Piece) {
        self.change(|state| {
            if state.gone || state.torn {
                return ((), Wake::default());
            }
            let (messages, answers) = (piece.messages, std::mem::take(&mut piece.answers));
            let (counts, whole) = (piece.counts, piece.whole);
            state.held += piece.bytes.len();
            if counts {
                state.counted += piece.bytes.len() as u64;
            }
            // Messages count for the part that they end in.
            let mut rest = piece.bytes;
            while rest.len() > MAX_FRAME {
                let bytes = rest.split_to(MAX_FRAME);
                state.pieces.push_back(Piece {
                    bytes,
                    counts,
                    ..Piece::default()
                });
            }
            state.reading.messages += messages;
            state.reading.answers += answers.len() as u32;
            state.pieces.push_back(Piece {
                bytes: rest,
                messages,
                answers,
                counts,
                whole,
            });
            let relief = state.report(0, 0, &[]);
            let reader = state.reader.take();
            (
                (),
                Wake {
                    reader,
                    relief,
                    ..Wake::default()
                },
            )
        });
    }

    /// Passes a comment on, to a client that has nothing else to read.
    pub(super) fn say(&self, aside: Bytes) {
        self.change(|state| {
            if state.pieces.is_empty() {
                state.aside = Some(aside);
            }
            let reader = state.reader.take();
            (
                (),
                Wake {
                    reader,
                    ..Wake::default()
                },
            )
        });
    }

    pub(super) fn end(&self, end: End) {
        self.change(|state| {
            state.end.get_or_insert(end);
            let reader = state.reader.take();
            (
                (),
                Wake {
                    reader,
                    ..Wake::default()
                },
            )
        });
    }

    /// The client has left, or has all there was.
    pub(super) fn leave(&self) {
        self.change(|state| {
            state.gone = true;
            ((), state.let_go())
        });
    }

    /// What comes next for the client.
    pub(super) fn poll_next(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.change(|state| {
            if let Some(piece) = state.pieces.pop_front() {
                let (bytes, relief) = state.take(piece);
                let starved = std::mem::take(&mut state.starved);
                let producer = state.producer.take_if(|_| starved);
                let wake = Wake {
                    relief,
                    producer,
                    ..Wake::default()
                };
                return (Poll::Ready(Some(Ok(Frame::data(bytes)))), wake);
            }
            if state.torn {
                return (Poll::Ready(state.last_words()), Wake::default());
            }
            let said = state.questions.pop_front().or_else(|| state.aside.take());
            if let Some(said) = said {
                return (Poll::Ready(Some(Ok(Frame::data(said)))), Wake::default());
            }
            let next = match state.end.take() {
                Some(End::Done(Some(trailers))) => {
                    state.end = Some(End::Done(None));
                    Some(Ok(Frame::trailers(trailers)))
                }
                Some(End::Done(None)) => None,
                Some(End::Failed(error)) => {
                    state.end = Some(End::Done(None));
                    Some(Err(error))
                }
                None => {
                    state.reader = Some(cx.waker().clone());
                    return (Poll::Pending, Wake::default());
                }
            };
            if next.is_none() {
                state.end = Some(End::Done(None));
            }
            // At the end everything has been given back, whether or not the body is dropped soon.
            (Poll::Ready(next), state.let_go())
        })
    }

    pub(super) fn is_end(&self) -> bool {
        let state = self.state();
        let ended = match state.torn {
            true => state.owed.is_empty() && !state.owes_unknown,
            false => matches!(state.end, Some(End::Done(None))),
        };
        ended && state.pieces.is_empty() && state.questions.is_empty()
    }
}

impl Lever for Queue {
    fn wake(&self) {
        self.change(|state| {
            let producer = state.producer.take();
            (
                (),
                Wake {
                    producer,
                    ..Wake::default()
                },
            )
        });
    }

    fn tear_down(&self) {
        self.change(|state| {
            state.torn = true;
            let reader = state.reader.take();
            // A stream that owes nothing is cut: a clean end would say that nothing is missing.
            state.owes_unknown |= state.owed.is_empty();
            let wake = state.let_go();
            ((), Wake { reader, ..wake })
        });
    }

    fn ask(&self, question: Bytes) -> bool {
        self.change(|state| {
            if state.gone
                || state.torn
                || state.end.is_some()
                || state.questions.len() == MAX_QUESTIONS
            {
                return (false, Wake::default());
            }
            state.questions.push_back(question);
            let reader = state.reader.take();
            (
                true,
                Wake {
                    reader,
                    ..Wake::default()
                },
            )
        })
    }
}
