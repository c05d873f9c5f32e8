//! The keys of one shard as a value: verbs in, replies out, `now` passed in.

use std::{collections::VecDeque, time::Duration};

use hashbrown::HashTable;

use crate::{
    clock::Timestamp,
    store::{
        Begun, ClaimToken, Fingerprint, Held, KeyClaim, Origin, Outcome, Reply, RequestKey,
        StoreError, StoreErrorKind,
    },
};

/// How many entries of the queues one call looks at, so that none has to look at all.
const STEP: usize = 4;

#[derive(Debug)]
pub(super) struct Keys {
    retention: Duration,
    records: HashTable<Record>,
    /// When each record is looked at next, in order: all entries of a queue were put in for the same time.
    queue: VecDeque<Due>,
    /// Of released claims, which are remembered for as long as their lease would have been.
    spent: VecDeque<Due>,
    /// Outcomes with bytes, oldest first.
    kept: VecDeque<(u64, ClaimToken)>,
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Due {
    at: Timestamp,
    hash: u64,
    token: ClaimToken,
}

#[derive(Debug)]
struct Record {
    hash: u64,
    key: RequestKey,
    token: ClaimToken,
    fingerprint: Fingerprint,
    origin: Option<Origin>,
    attempt: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Running for as long as the lease is good, and unknown after that.
    Claimed { until: Timestamp },
    /// Kept until then.
    Over { until: Timestamp, end: End },
    /// Given back: nothing but the token is remembered.
    Released { until: Timestamp },
}

#[derive(Debug)]
enum End {
    Reply(Reply),
    TooLarge,
    Unknown,
}

impl Keys {
    pub(super) fn new(retention: Duration) -> Self {
        Self {
            retention,
            records: HashTable::new(),
            queue: VecDeque::new(),
            spent: VecDeque::new(),
            kept: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Bytes of outcomes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(feature = "test-util")]
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.retention);
    }

    /// What is known of a key, which is claimed for whoever asks if an earlier run makes no difference.
    pub(super) fn known(
        &mut self,
        now: Timestamp,
        hash: u64,
        claim: &KeyClaim,
    ) -> Option<Result<Begun, StoreError>> {
        let retention = self.retention;
        let record = (self.records).find_mut(hash, |record| record.key == claim.key)?;
        if record.is_over(now, retention) {
            self.remove(hash, |record| record.key == claim.key);
            return None;
        }
        let own = record.token == claim.token;
        if let State::Released { .. } = record.state {
            // Its begin was under way when it was given up.
            if own {
                return Some(Err(StoreErrorKind::Fenced.into()));
            }
            self.remove(hash, |record| record.key == claim.key);
            return None;
        }
        if record.fingerprint != claim.fingerprint {
            return Some(Ok(Begun::Conflict));
        }
        let unknown = match &record.state {
            State::Claimed { .. } if own => {
                let attempt = record.attempt;
                return Some(Ok(Begun::Fresh { attempt }));
            }
            State::Claimed { until } => now >= *until,
            State::Over {
                end: End::Unknown, ..
            } => true,
            State::Over { end, .. } => {
                let reply = match end {
                    End::Reply(reply) => Some(reply.clone()),
                    End::TooLarge | End::Unknown => None,
                };
                let origin = record.origin;
                return Some(Ok(Begun::Completed { origin, reply }));
            }
            State::Released { .. } => false,
        };
        Some(Ok(match (unknown, claim.may_run_again) {
            (false, _) => Begun::InFlight,
            (true, false) => Begun::OutcomeUnknown,
            (true, true) => {
                record.token = claim.token;
                record.origin = claim.origin;
                record.attempt = record.attempt.saturating_add(1);
                record.state = State::Claimed {
                    until: now.after(claim.lease),
                };
                let attempt = record.attempt;
                self.look_later(now, hash, claim.token);
                Begun::Fresh { attempt }
            }
        }))
    }

    /// Puts a claim in for a key that is not there.
    pub(super) fn insert(&mut self, now: Timestamp, hash: u64, claim: &KeyClaim, attempt: u32) {
        let until = now.after(claim.lease);
        self.put(hash, claim, attempt, State::Claimed { until });
        self.look_later(now, hash, claim.token);
    }

    fn put(&mut self, hash: u64, claim: &KeyClaim, attempt: u32, state: State) {
        let record = Record {
            hash,
            key: claim.key,
            token: claim.token,
            fingerprint: claim.fingerprint,
            origin: claim.origin,
            attempt,
            state,
        };
        self.records
            .insert_unique(hash, record, |record| record.hash);
    }

    fn look_later(&mut self, now: Timestamp, hash: u64, token: ClaimToken) {
        let at = now.after(self.retention);
        self.queue.push_back(Due { at, hash, token });
    }

    /// A record whose time is up is no longer there, swept or not.
    fn forget_if_over(&mut self, now: Timestamp, hash: u64, key: RequestKey) {
        let retention = self.retention;
        let over = |record: &Record| record.key == key && record.is_over(now, retention);
        if self.records.find(hash, over).is_some() {
            self.remove(hash, over);
        }
    }

    pub(super) fn renew(&mut self, now: Timestamp, hash: u64, claim: &KeyClaim) -> Held {
        self.forget_if_over(now, hash, claim.key);
        match self
            .records
            .find_mut(hash, |record| record.key == claim.key)
        {
            None => Held::Absent,
            Some(record) if record.token != claim.token => Held::Superseded,
            Some(record) => match &mut record.state {
                State::Claimed { until } => {
                    *until = now.after(claim.lease);
                    Held::Yes
                }
                State::Over { .. } | State::Released { .. } => Held::Superseded,
            },
        }
    }

    pub(super) fn complete(
        &mut self,
        now: Timestamp,
        hash: u64,
        claim: &KeyClaim,
        outcome: &Outcome,
    ) -> Held {
        let until = now.after(self.retention);
        let end = match outcome {
            Outcome::Reply(reply) => End::Reply(reply.clone()),
            Outcome::TooLarge => End::TooLarge,
            Outcome::Unknown => End::Unknown,
        };
        let bytes = end.bytes();
        let over = State::Over { until, end };
        self.forget_if_over(now, hash, claim.key);
        match self
            .records
            .find_mut(hash, |record| record.key == claim.key)
        {
            // It ran, whether or not this ledger still knows that it was begun.
            None => self.put(hash, claim, claim.attempt, over),
            Some(record) if record.token != claim.token => return Held::Superseded,
            Some(record) => match &record.state {
                State::Released { .. } => return Held::Superseded,
                State::Claimed { .. }
                | State::Over {
                    end: End::Unknown, ..
                } => record.state = over,
                // Acknowledged again.
                State::Over { .. } => return Held::Yes,
            },
        }
        self.bytes += bytes;
        if bytes > 0 {
            self.kept.push_back((hash, claim.token));
        }
        self.look_later(now, hash, claim.token);
        Held::Yes
    }

    pub(super) fn release(&mut self, now: Timestamp, hash: u64, claim: &KeyClaim) {
        let until = now.after(claim.lease);
        match self
            .records
            .find_mut(hash, |record| record.key == claim.key)
        {
            // The begin may be under way still.
            None => self.put(hash, claim, 0, State::Released { until }),
            Some(record) if record.token == claim.token => match &record.state {
                State::Claimed { .. } => record.state = State::Released { until },
                State::Over { .. } | State::Released { .. } => return,
            },
            Some(_) => return,
        }
        let token = claim.token;
        self.spent.push_back(Due {
            at: until,
            hash,
            token,
        });
    }

    /// Drops a few records whose time is up.
    pub(super) fn tidy(&mut self, now: Timestamp) {
        self.drop_due(now, STEP);
    }

    /// Drops every record whose time is up.
    pub(super) fn drop_over(&mut self, now: Timestamp) {
        self.drop_due(now, usize::MAX);
    }

    fn drop_due(&mut self, now: Timestamp, most: usize) {
        let retention = self.retention;
        for _ in 0..most {
            let Some(due) = self.queue.front().filter(|due| due.at <= now).copied() else {
                break;
            };
            self.queue.pop_front();
            let same = |record: &Record| record.hash == due.hash && record.token == due.token;
            if self.records.find(due.hash, same).is_some_and(|record| {
                // A claim that is renewed, or ran out not long ago, is looked at again; what is over has an entry of
                // its own.
                matches!(record.state, State::Claimed { .. }) && !record.is_over(now, retention)
            }) {
                self.look_later(now, due.hash, due.token);
            } else {
                self.remove(due.hash, |record| {
                    same(record) && record.is_over(now, retention)
                });
            }
        }
        for _ in 0..most {
            let Some(due) = self.spent.front().filter(|due| due.at <= now).copied() else {
                break;
            };
            self.spent.pop_front();
            self.remove(due.hash, |record| {
                record.hash == due.hash
                    && record.token == due.token
                    && record.is_over(now, retention)
            });
        }
    }

    /// Drops the oldest outcomes until `over` bytes are free. That they ran stays known.
    pub(super) fn drop_bytes(&mut self, over: usize) {
        let target = self.bytes.saturating_sub(over);
        while self.bytes > target {
            let Some((hash, token)) = self.kept.pop_front() else {
                break;
            };
            let same = |record: &Record| record.hash == hash && record.token == token;
            if let Some(record) = self.records.find_mut(hash, same)
                && let State::Over { end, .. } = &mut record.state
            {
                self.bytes -= end.bytes();
                *end = End::TooLarge;
            }
        }
    }

    fn remove(&mut self, hash: u64, wanted: impl FnMut(&Record) -> bool) {
        if let Ok(entry) = self.records.find_entry(hash, wanted) {
            let (record, _) = entry.remove();
            self.bytes -= record.bytes();
            // The entries in the queues find nothing when they come up; of outcomes the oldest go first.
            while let Some((hash, token)) = self.kept.front().copied() {
                let same = |record: &Record| record.hash == hash && record.token == token;
                if self.records.find(hash, same).is_some() {
                    break;
                }
                self.kept.pop_front();
            }
        }
        self.shrink();
    }

    /// Gives memory back after a crowd has left.
    fn shrink(&mut self) {
        if self.records.capacity() > 1024 && self.records.capacity() / 8 > self.records.len() {
            let to = self.records.capacity() / 4;
            self.records.shrink_to(to, |record| record.hash);
            self.queue.shrink_to(to);
            self.kept.shrink_to(to);
            self.spent.shrink_to(to);
        }
    }
}

impl Record {
    fn is_over(&self, now: Timestamp, retention: Duration) -> bool {
        match &self.state {
            State::Claimed { until } => now >= until.after(retention),
            State::Over { until, .. } | State::Released { until } => now >= *until,
        }
    }

    fn bytes(&self) -> usize {
        match &self.state {
            State::Over { end, .. } => end.bytes(),
            State::Claimed { .. } | State::Released { .. } => 0,
        }
    }
}

impl End {
    fn bytes(&self) -> usize {
        match self {
            Self::Reply(reply) => reply.text().len(),
            Self::TooLarge | Self::Unknown => 0,
        }
    }
}
