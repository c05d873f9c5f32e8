//! The terms of a session's credit, and the table that decides by them.

use std::time::Duration;

/// How much a session may have outstanding, and how long it may stand still.
#[derive(Debug, Clone, Copy)]
pub(in crate::drain_credit) struct Terms {
    /// Credit in messages, at least one.
    pub(in crate::drain_credit) messages: u32,
    /// Credit in bytes.
    pub(in crate::drain_credit) bytes: u64,
    /// The high-water mark, as a multiple of both.
    pub(in crate::drain_credit) high_water: u32,
    /// How long a flow may stand still before it counts as stuck.
    pub(in crate::drain_credit) drain_window: Duration,
    pub(in crate::drain_credit) liveness: Liveness,
    /// Whether what was taken counts until the client has proven that it arrived.
    pub(in crate::drain_credit) proven: bool,
}

/// How long a flow may stand still before it is torn down.
#[derive(Debug, Clone, Copy)]
pub(in crate::drain_credit) struct Liveness {
    pub(in crate::drain_credit) timeout: Duration,
    /// The slowest rate that is tolerated, in bytes a second, at least one.
    pub(in crate::drain_credit) slowest: u64,
    /// What kernels and proxies between here and the client may hold, in bytes.
    pub(in crate::drain_credit) wire: u64,
}

impl Liveness {
    /// The time-out, and as long as the slowest client takes for what it was handed before.
    pub(in crate::drain_credit) fn allowance(&self, backlog: u64) -> Duration {
        let nanos = u128::from(backlog) * 1_000_000_000 / u128::from(self.slowest.max(1));
        let reading = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.timeout.saturating_add(reading)
    }
}

/// What is known of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::drain_credit) enum Wants {
    /// Its body has not been read.
    Unread,
    /// It holds a request that expects an answer on its session.
    Answer,
    /// It expects none, or must not be refused.
    Nothing,
}

/// How far a session is from its credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::drain_credit) enum Level {
    /// So far that it does not matter what exactly a request carries.
    Far,
    /// Within a quarter of it.
    Near,
    AtCredit,
    AtHighWater,
}

/// Whether what is undrained moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::drain_credit) enum Drain {
    Moves,
    /// Some flow has something undrained and stands still.
    Stuck,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::drain_credit) enum Verdict {
    Admit,
    /// Read the body, then ask again.
    Read,
    Refuse(Refusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::drain_credit) enum Refusal {
    /// At credit, and a stream stands still.
    HalfOpen,
    /// It drains, but too much is outstanding already.
    HighWater,
}

/// The table. `asked` is whether the client has yet to answer a probe: its answer may be in any body.
pub(in crate::drain_credit) fn decide(
    wants: Wants,
    level: Level,
    drain: Drain,
    asked: bool,
) -> Verdict {
    match (wants, level, drain) {
        (Wants::Unread, _, _) if asked => Verdict::Read,
        (Wants::Nothing, _, _) | (_, Level::Far, _) => Verdict::Admit,
        (Wants::Unread, _, _) => Verdict::Read,
        (Wants::Answer, Level::Near, _) => Verdict::Admit,
        (Wants::Answer, Level::AtCredit, Drain::Moves) => Verdict::Admit,
        (Wants::Answer, _, Drain::Stuck) => Verdict::Refuse(Refusal::HalfOpen),
        (Wants::Answer, Level::AtHighWater, Drain::Moves) => Verdict::Refuse(Refusal::HighWater),
    }
}
