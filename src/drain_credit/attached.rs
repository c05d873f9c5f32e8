//! Keeps the account of a stream that an outbox carries.

use std::sync::Arc;

use super::{
    account::{Reading, Step},
    ticket::Ticket,
};
use crate::outbox::{Delivered, Gauge, Lever, Progress, Relief};

#[derive(Debug)]
struct Attached {
    ticket: Ticket,
}

/// Has the stream's progress reported to the account, from its first client to its end.
pub(super) fn attach(delivered: &Delivered, mut ticket: Ticket, shared: bool) {
    let Delivered(stream) = delivered;
    let lever = Arc::downgrade(&(Arc::clone(stream) as Arc<dyn Lever>));
    // A client that comes back finds the account that was opened for the first one.
    let gauge = stream.watch(|| {
        ticket.open(shared, lever, false);
        Arc::new(Attached { ticket })
    });
    gauge.on_shared(shared);
}

impl Gauge for Attached {
    fn changed(&self, before: &Progress, now: &Progress) -> Relief {
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let step = Step {
            reading: Reading {
                messages: small(now.messages),
                answers: small(now.answers.min(now.messages)),
                bytes: now.bytes,
                held: now.held,
            },
            taken: small(now.taken - before.taken),
            handed: now.handed - before.handed,
            answered: match now.over {
                // Whatever was not answered will not be.
                true => u32::MAX,
                false => small(now.answered - before.answered),
            },
            left: now.client != before.client,
        };
        self.ticket.step(&step, &[])
    }

    fn room(&self) -> usize {
        usize::try_from(self.ticket.room()).unwrap_or(usize::MAX)
    }

    fn on_shared(&self, shared: bool) {
        self.ticket.on_shared(shared);
    }
}
