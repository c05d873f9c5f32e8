//! What stands between an inner stream and a client where no outbox does: a bounded queue that passes bytes on as they
//! came.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

use super::{
    account::{Reading, Step},
    body::{BoxError, TornDown},
    sync::{Mutex, MutexGuard, PoisonError},
    ticket::Ticket,
};
use crate::{
    mcp::{RequestId, sse},
    outbox::{Lever, Relief},
    rejection::{Reason, Rejection},
};

/// The size of a frame: what is larger is handed over in parts, so that progress can be seen.
pub(super) const MAX_FRAME: usize = 16 * 1024;
/// How much is held that is no message and costs no credit.
const MAX_UNCOUNTED: u64 = 64 * 1024;
/// Questions of the guard's own that wait for their turn.
const MAX_QUESTIONS: usize = 64;

/// A piece of the inner stream.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// Messages that end in it.
    pub(super) messages: u32,
    /// Answers among them, by the hash of their ids.
    pub(super) answers: Vec<u64>,
    /// Whether it is a part of any message.
    pub(super) counts: bool,
    /// Whether it ends between two events.
    pub(super) whole: bool,
}

/// How the inner stream ended.
#[derive(Debug)]
pub(super) enum End {
    Done(Option<HeaderMap>),
    Failed(BoxError),
}

pub(super) struct Queue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Piece>,
    /// Bytes in all pieces, and in those that count.
    held: usize,
    reading: Reading,
    counted: u64,
    /// A comment, passed on when nothing else is to be said.
    aside: Option<Bytes>,
    questions: VecDeque<Bytes>,
    end: Option<End>,
    /// Requests that are owed an answer, where they are known.
    owed: Vec<(u64, RequestId)>,
    /// Whether more are owed than are known.
    owes_unknown: bool,
    /// Whether the client has a part of an event.
    broken: bool,
    ticket: Option<Ticket>,
    torn: bool,
    gone: bool,
    reader: Option<Waker>,
    producer: Option<Waker>,
    /// Whether the producer waits for room in this very queue.
    starved: bool,
}

/// Why the producer has nothing more to do.
#[derive(Debug)]
pub(super) struct Over;

/// What a change leaves to be done once the lock is released.
#[derive(Default)]
struct Wake {
    reader: Option<Waker>,
    producer: Option<Waker>,
    relief: Relief,
    /// Let go of under no lock.
    ticket: Option<Ticket>,
    pieces: VecDeque<Piece>,
}

impl Wake {
    fn run(self) {
        [self.reader, self.producer]
            .into_iter()
            .flatten()
            .for_each(Waker::wake);
        self.relief.wake();
        drop((self.ticket, self.pieces));
    }
}

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
            Some(ticket) => state.held as u64 - state.counted < MAX_UNCOUNTED && ticket.may_pull(),
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

impl State {
    fn report(&self, taken: u32, handed: u64, arrived: &[u64]) -> Relief {
        let Some(ticket) = &self.ticket else {
            return Relief::default();
        };
        let mut reading = self.reading;
        reading.bytes = self.counted;
        // A part of an event is something to take, too.
        reading.messages = reading.messages.max(u32::from(self.counted > 0));
        let step = Step {
            reading,
            taken,
            handed,
            answered: arrived.len() as u32,
            left: false,
        };
        ticket.step(&step, arrived)
    }

    fn take(&mut self, piece: Piece) -> (Bytes, Relief) {
        self.held -= piece.bytes.len();
        let handed = if piece.counts {
            piece.bytes.len() as u64
        } else {
            0
        };
        self.counted -= handed;
        self.reading.messages -= piece.messages;
        self.reading.answers -= piece.answers.len() as u32;
        self.broken = !piece.whole;
        self.owed.retain(|(id, _)| !piece.answers.contains(id));
        if self.owes_unknown && !piece.answers.is_empty() {
            // One request was made, or the answers of a batch come one by one; either way this is what can be known.
            self.owes_unknown = false;
        }
        let relief = self.report(piece.messages, handed, &piece.answers);
        (piece.bytes, relief)
    }

    /// What a client hears that comes back to life after its stream was given up.
    fn last_words(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        let owed = std::mem::take(&mut self.owed);
        if self.broken || std::mem::take(&mut self.owes_unknown) {
            self.broken = false;
            return Some(Err(TornDown.into()));
        }
        if owed.is_empty() {
            return None;
        }
        let rejection = Rejection::new(Reason::OutcomeUnknown, TornDown::DETAIL);
        let mut out = BytesMut::new();
        for (_, id) in owed {
            sse::encode(&mut out, b"", &rejection.message(Some(&id)));
        }
        Some(Ok(Frame::data(out.freeze())))
    }

    fn let_go(&mut self) -> Wake {
        self.held = 0;
        self.counted = 0;
        self.reading = Reading::default();
        self.aside = None;
        self.questions.clear();
        Wake {
            producer: self.producer.take(),
            ticket: self.ticket.take(),
            pieces: std::mem::take(&mut self.pieces),
            ..Wake::default()
        }
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
