//! One stream or answer of a session: what it has undrained, and since when it stands still.

use std::time::Duration;

use super::Liveness;
use crate::clock::Timestamp;

/// What a flow has undrained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::drain_credit) struct Reading {
    pub(in crate::drain_credit) messages: u32,
    /// How many of them answer a request that has a place reserved on this flow.
    pub(in crate::drain_credit) answers: u32,
    pub(in crate::drain_credit) bytes: u64,
    /// The client asks for more, and it is not the client that is slow.
    pub(in crate::drain_credit) held: bool,
}

/// What has happened on a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::drain_credit) struct Step {
    /// What it has undrained now.
    pub(in crate::drain_credit) reading: Reading,
    /// How many messages the client took.
    pub(in crate::drain_credit) taken: u32,
    /// How many bytes of messages the client took: all or a part of some.
    pub(in crate::drain_credit) handed: u64,
    /// How many places are given back.
    pub(in crate::drain_credit) answered: u32,
    /// Whoever was there has left: of what it took nothing can be proven any more.
    pub(in crate::drain_credit) left: bool,
}

/// Which flow of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::drain_credit) struct FlowId(pub(super) u32);

impl FlowId {
    pub(in crate::drain_credit) fn of(index: usize) -> Self {
        Self(index as u32)
    }

    pub(in crate::drain_credit) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flow {
    pub(super) state: State,
    pub(super) shared: bool,
    /// Its producer waits for the session to come below the high-water mark.
    pub(super) starved: bool,
    pub(super) owes: u32,
    pub(super) reading: Reading,
    /// Since when it stands still; `None` while nobody has looked at the clock.
    pub(super) stall: Option<Stall>,
    pub(super) wire: Wire,
    pub(super) unproven: u32,
    pub(super) probe: Option<Probe>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    /// Free to be used again.
    #[default]
    Closed,
    Open,
    /// Given up; its owner does not know yet.
    Torn,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Stall {
    pub(super) since: Timestamp,
    /// The account's moves at that time.
    pub(super) moves: u64,
}

/// What may be on its way to the client, if it reads as slowly as is tolerated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wire {
    pub(super) bytes: u64,
    pub(super) at: Timestamp,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub(super) sent: Timestamp,
    pub(super) covers: u32,
    pub(super) moves: u64,
}

impl Flow {
    pub(super) fn counted_answers(&self) -> u32 {
        self.reading.answers.min(self.owes)
    }

    pub(super) fn may_stall(&self) -> bool {
        self.state == State::Open && self.reading.messages > 0 && !self.reading.held
    }

    /// Since when nothing has moved that should have; begins to count if nobody has yet.
    pub(super) fn stalled(&mut self, now: Timestamp, moves: u64) -> Option<Stall> {
        let undrained = self
            .may_stall()
            .then(|| *self.stall.get_or_insert(Stall { since: now, moves }));
        let unanswered = self.probe.map(|probe| Stall {
            since: probe.sent,
            moves: probe.moves,
        });
        match (undrained, unanswered) {
            (Some(a), Some(b)) => Some(if a.since <= b.since { a } else { b }),
            (one, other) => one.or(other),
        }
    }

    pub(super) fn stands_still(&mut self, now: Timestamp, moves: u64, window: Duration) -> bool {
        self.stalled(now, moves)
            .is_some_and(|stall| now.since(stall.since) >= window)
    }

    /// When it will have stood still for too long, and the account's moves when it began to.
    pub(super) fn due(
        &mut self,
        now: Timestamp,
        moves: u64,
        liveness: &Liveness,
    ) -> Option<(Timestamp, u64)> {
        let stall = self.stalled(now, moves)?;
        let backlog = self.wire.left(stall.since, liveness);
        Some((stall.since.after(liveness.allowance(backlog)), stall.moves))
    }
}

impl Wire {
    pub(super) fn left(&self, now: Timestamp, liveness: &Liveness) -> u64 {
        let read = now.since(self.at).as_nanos() * u128::from(liveness.slowest) / 1_000_000_000;
        self.bytes
            .saturating_sub(u64::try_from(read).unwrap_or(u64::MAX))
    }

    pub(super) fn put(&mut self, bytes: u64, liveness: &Liveness, now: Option<Timestamp>) {
        if let Some(now) = now {
            self.bytes = self.left(now, liveness);
            self.at = now;
        }
        self.bytes = self.bytes.saturating_add(bytes).min(liveness.wire);
    }
}
