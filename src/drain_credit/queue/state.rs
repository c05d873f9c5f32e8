//! What a queue holds and owes.

use std::{collections::VecDeque, task::Waker};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

use super::super::{
    account::{Reading, Step},
    body::{BoxError, TornDown},
    ticket::Ticket,
};
use crate::{
    mcp::{RequestId, sse},
    outbox::Relief,
    rejection::{Reason, Rejection},
};

/// A piece of the inner stream.
#[derive(Debug, Default)]
pub(in crate::drain_credit) struct Piece {
    pub(in crate::drain_credit) bytes: Bytes,
    /// Messages that end in it.
    pub(in crate::drain_credit) messages: u32,
    /// Answers among them, by the hash of their ids.
    pub(in crate::drain_credit) answers: Vec<u64>,
    /// Whether it is a part of any message.
    pub(in crate::drain_credit) counts: bool,
    /// Whether it ends between two events.
    pub(in crate::drain_credit) whole: bool,
}

/// How the inner stream ended.
#[derive(Debug)]
pub(in crate::drain_credit) enum End {
    Done(Option<HeaderMap>),
    Failed(BoxError),
}

#[derive(Default)]
pub(super) struct State {
    pub(super) pieces: VecDeque<Piece>,
    /// Bytes in all pieces, and in those that count.
    pub(super) held: usize,
    pub(super) reading: Reading,
    pub(super) counted: u64,
    /// A comment, passed on when nothing else is to be said.
    pub(super) aside: Option<Bytes>,
    pub(super) questions: VecDeque<Bytes>,
    pub(super) end: Option<End>,
    /// Requests that are owed an answer, where they are known.
    pub(super) owed: Vec<(u64, RequestId)>,
    /// Whether more are owed than are known.
    pub(super) owes_unknown: bool,
    /// Whether the client has a part of an event.
    pub(super) broken: bool,
    pub(super) ticket: Option<Ticket>,
    pub(super) torn: bool,
    pub(super) gone: bool,
    pub(super) reader: Option<Waker>,
    pub(super) producer: Option<Waker>,
    /// Whether the producer waits for room in this very queue.
    pub(super) starved: bool,
}

/// What a change leaves to be done once the lock is released.
#[derive(Default)]
pub(super) struct Wake {
    pub(super) reader: Option<Waker>,
    pub(super) producer: Option<Waker>,
    pub(super) relief: Relief,
    /// Let go of under no lock.
    pub(super) ticket: Option<Ticket>,
    pub(super) pieces: VecDeque<Piece>,
}

impl Wake {
    pub(super) fn run(self) {
        [self.reader, self.producer]
            .into_iter()
            .flatten()
            .for_each(Waker::wake);
        self.relief.wake();
        drop((self.ticket, self.pieces));
    }
}

impl State {
    pub(super) fn report(&self, taken: u32, handed: u64, arrived: &[u64]) -> Relief {
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

    pub(super) fn take(&mut self, piece: Piece) -> (Bytes, Relief) {
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
    pub(super) fn last_words(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
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

    pub(super) fn let_go(&mut self) -> Wake {
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
