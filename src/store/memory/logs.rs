//! The logs of one session as a value: its streams, its seal, and what goes when there is no more room.

use std::{cmp::Ordering, collections::VecDeque};

use super::{
    log::Log,
    weight::{Limits, Weight},
};
use crate::{
    clock::Timestamp,
    session::{Fence, SessionId},
    store::{
        Append, Ending, Page, Seq, Snapshot, StoreError, StoreErrorKind, StreamHeader, StreamKey,
    },
};

#[derive(Debug)]
pub(super) struct Logs {
    id: SessionId,
    /// Sorted by [`Log::place`].
    streams: VecDeque<Log>,
    sealed: Option<Fence>,
    /// When it was sealed or lost its last stream, whichever came later.
    idle_since: Timestamp,
    weight: Weight,
    /// The place of the newest event.
    order: u64,
    /// Where the oldest event that may go was found last, so that not every append has to look for it.
    oldest: Option<Oldest>,
}

/// Which stream has the session's oldest events that may go.
#[derive(Debug, Clone, Copy)]
struct Oldest {
    at: usize,
    /// The place of the oldest event that may go on any other stream.
    next: u64,
    /// When something that is held elsewhere may lapse.
    until: Timestamp,
}

impl Logs {
    pub(super) fn new(id: SessionId) -> Self {
        Self {
            weight: Weight::of_session(&id),
            id,
            streams: VecDeque::with_capacity(1),
            sealed: None,
            idle_since: Timestamp::ORIGIN,
            order: 0,
            oldest: None,
        }
    }

    pub(super) fn id(&self) -> &SessionId {
        &self.id
    }

    /// The memory that it takes.
    pub(super) fn memory(&self) -> usize {
        self.weight.memory
    }

    pub(super) fn open(
        &mut self,
        now: Timestamp,
        limits: &Limits,
        header: &StreamHeader,
        spare: usize,
    ) -> Result<(), StoreError> {
        if is_below(header.fence, self.sealed) {
            return Err(StoreErrorKind::Fenced.into());
        }
        let found = self.find(now, limits, &header.key);
        if let Some(log) = found.and_then(|at| self.streams.get(at)) {
            return match log.header() == header {
                true => Ok(()),
                false => Err(StoreErrorKind::Corrupt.into()),
            };
        }
        let weight = Weight::of_stream(header);
        let mut freed = 0;
        while self.streams.len() >= limits.streams || weight.memory > spare + freed {
            let Some(at) = self.dispensable(now, limits) else {
                return Err(StoreErrorKind::Full.into());
            };
            freed += self.forget(now, at);
        }
        let mut header = header.clone();
        // One text for all streams of the session.
        header.key.session = self.id.clone();
        let log = Log::new(now, header);
        let place = log.place();
        if self.streams.back().is_none_or(|last| last.place() < place) {
            self.streams.push_back(log);
        } else {
            let at = self.streams.partition_point(|other| other.place() < place);
            self.oldest = None;
            self.streams.insert(at, log);
        }
        self.weight += weight;
        Ok(())
    }

    pub(super) fn append(
        &mut self,
        now: Timestamp,
        limits: &Limits,
        append: &Append<'_>,
        weight: Weight,
        spare: usize,
    ) -> Result<(), StoreError> {
        let at = self.find(now, limits, append.key);
        let Some(log) = at.and_then(|at| self.streams.get_mut(at)) else {
            return Err(StoreErrorKind::Fenced.into());
        };
        if is_over(log, self.sealed) {
            return Err(StoreErrorKind::Fenced.into());
        }
        log.keep(now, append.keep);
        let (first, events) = log.news(append);
        self.changed(now, limits, at);
        if events.is_empty() {
            return Ok(());
        }
        let weight = match events.len() == append.events.len() {
            true => weight,
            false => Weight::of_all(events),
        };
        self.make_room(now, limits, weight, spare)?;
        // Making room takes events and leaves streams where they are.
        if let Some(log) = at.and_then(|at| self.streams.get_mut(at)) {
            log.push(now, &mut self.order, first, events);
            self.weight += weight;
        }
        self.changed(now, limits, at);
        Ok(())
    }

    pub(super) fn end(
        &mut self,
        now: Timestamp,
        limits: &Limits,
        key: &StreamKey,
        last: Seq,
        ending: Ending,
    ) -> Result<(), StoreError> {
        let found = self.find(now, limits, key);
        match found.and_then(|at| self.streams.get_mut(at)) {
            Some(log) if !is_over(log, self.sealed) => {
                log.end(now, last, ending);
                self.changed(now, limits, found);
                Ok(())
            }
            // An attempt whose reply was lost has ended it.
            Some(log)
                if !is_below(log.fence(), self.sealed) && log.ended() == Some((last, ending)) =>
            {
                log.touch(now);
                Ok(())
            }
            _ => Err(StoreErrorKind::Fenced.into()),
        }
    }

    pub(super) fn read_after(
        &mut self,
        now: Timestamp,
        limits: &Limits,
        key: &StreamKey,
        after: Seq,
        page: Page,
    ) -> Option<Snapshot> {
        let at = self.find(now, limits, key)?;
        let log = self.streams.get_mut(at)?;
        let read = log.read(now, after, page);
        self.changed(now, limits, Some(at));
        Some(read)
    }

    pub(super) fn seal(&mut self, now: Timestamp, limits: &Limits, below: Fence) {
        self.sweep(now, limits);
        for log in &mut self.streams {
            // Whoever comes for what is over now has the time that there is from the end on.
            if !is_over(log, self.sealed) && is_below(log.fence(), Some(below)) {
                log.touch(now);
            }
        }
        self.sealed = self.sealed.max(Some(below));
        self.idle_since = now;
    }

    /// Takes what is older than it may be, events and streams. Whether anything is left.
    pub(super) fn sweep(&mut self, now: Timestamp, limits: &Limits) -> bool {
        let sealed = self.sealed;
        let mut gone = Weight::default();
        self.oldest = None;
        self.streams.retain_mut(|log| {
            gone += log.expire(now, limits.age);
            let past = is_past(log, sealed, now, limits);
            if past {
                gone += log.weight();
            }
            !past
        });
        self.weight -= gone;
        if gone != Weight::default() {
            self.lost(now);
        }
        let seal_is_over = now.nanos_since(self.idle_since) >= limits.seals;
        !self.streams.is_empty() || (sealed.is_some() && !seal_is_over)
    }

    /// When each stream that is open and was silent for long was last touched, and what it takes.
    pub(super) fn silent<'a>(
        &'a self,
        now: Timestamp,
        limits: &'a Limits,
    ) -> impl Iterator<Item = (Timestamp, usize)> + 'a {
        let silent = move |log: &&Log| log.is_idle(now, limits.patience);
        let found = self.streams.iter().filter(silent);
        found.map(|log| (log.touched(), Weight::of_stream(log.header()).memory))
    }

    /// Takes the streams that were last touched at `until` or before.
    pub(super) fn drop_silent(&mut self, now: Timestamp, until: Timestamp) {
        while let Some(at) = (self.streams.iter()).position(|log| log.touched() <= until) {
            self.forget(now, at);
        }
    }

    /// The stream with this key. What is older than it may be goes first, so that sweeps make no difference.
    fn find(&mut self, now: Timestamp, limits: &Limits, key: &StreamKey) -> Option<usize> {
        let place = (key.stream, key.epoch);
        // Most is said on the newest, or opens a newer one.
        let at = match self.streams.back().map(|log| log.place().cmp(&place)) {
            None | Some(Ordering::Less) => return None,
            Some(Ordering::Equal) => self.streams.len() - 1,
            Some(Ordering::Greater) => (self.streams)
                .binary_search_by(|log| log.place().cmp(&place))
                .ok()?,
        };
        let log = self.streams.get_mut(at)?;
        if is_past(log, self.sealed, now, limits) {
            self.forget(now, at);
            return None;
        }
        self.weight -= log.expire(now, limits.age);
        Some(at)
    }

    /// Room for more events: the oldest go, whatever their stream, until there is.
    fn make_room(
        &mut self,
        now: Timestamp,
        limits: &Limits,
        more: Weight,
        spare: usize,
    ) -> Result<(), StoreError> {
        let full = || StoreError::from(StoreErrorKind::Full);
        // What never fits costs nobody anything.
        if more.events > limits.events || more.bytes > limits.bytes {
            return Err(full());
        }
        let mut freed = 0;
        let fits = |weight: &Weight, freed: usize| {
            weight.events + more.events <= limits.events
                && weight.bytes + more.bytes <= limits.bytes
                && more.memory <= spare + freed
        };
        while !fits(&self.weight, freed) {
            let oldest = self.oldest(now, limits).ok_or_else(full)?;
            let Some(log) = self.streams.get_mut(oldest.at) else {
                return Err(full());
            };
            // What is older than everything on the other streams goes without another look at those.
            while !fits(&self.weight, freed)
                && log
                    .oldest(now, limits.age)
                    .is_some_and(|order| order < oldest.next)
            {
                let taken = log.take();
                freed += taken.memory;
                self.weight -= taken;
            }
            self.oldest = fits(&self.weight, freed).then_some(oldest);
        }
        Ok(())
    }

    /// Where the oldest event is that may go.
    fn oldest(&mut self, now: Timestamp, limits: &Limits) -> Option<Oldest> {
        if let Some(oldest) = self.oldest.take()
            && now < oldest.until
        {
            return Some(oldest);
        }
        // A look at each stream, a few hundred at most; one that is caught up has few events or none.
        let (mut first, mut next, mut until) = (None, u64::MAX, u64::MAX);
        for (at, log) in self.streams.iter().enumerate() {
            match log.oldest(now, limits.age) {
                Some(order) => match first {
                    Some((first, _)) if first < order => next = next.min(order),
                    _ => {
                        if let Some((newer, _)) = first.replace((order, at)) {
                            next = newer;
                        }
                    }
                },
                None => until = until.min(log.lapses(limits.age)),
            }
        }
        first.map(|(_, at)| Oldest {
            at,
            next,
            until: Timestamp::from_nanos(until),
        })
    }

    /// A stream has more, or less of it is held: it may have the oldest event now.
    fn changed(&mut self, now: Timestamp, limits: &Limits, at: Option<usize>) {
        if let Some(oldest) = &mut self.oldest
            && let Some(at) = at.filter(|at| *at != oldest.at)
            && let Some(order) = (self.streams.get(at)).and_then(|log| log.oldest(now, limits.age))
            && order < oldest.next
        {
            self.oldest = None;
        }
    }

    /// A stream that another one may have the place of: the oldest that is over and held for nobody, or else the
    /// oldest that has been silent for long.
    fn dispensable(&self, now: Timestamp, limits: &Limits) -> Option<usize> {
        // In the order in which they were opened, so that the first one looked at will do as a rule.
        let oldest = |wanted: &dyn Fn(&Log) -> bool| self.streams.iter().position(wanted);
        oldest(&|log| is_over(log, self.sealed) && !log.is_held(now, limits.age))
            .or_else(|| oldest(&|log| log.is_idle(now, limits.patience)))
    }

    /// Takes one stream, header and events, and gives its memory.
    fn forget(&mut self, now: Timestamp, at: usize) -> usize {
        let Some(log) = self.streams.remove(at) else {
            return 0;
        };
        let weight = log.weight();
        self.weight -= weight;
        self.oldest = None;
        self.lost(now);
        weight.memory
    }

    /// A stream is gone.
    fn lost(&mut self, now: Timestamp) {
        if self.streams.is_empty() {
            self.idle_since = now;
        }
    }
}

fn is_below(fence: Fence, sealed: Option<Fence>) -> bool {
    sealed.is_some_and(|sealed| fence < sealed)
}

/// Whether nothing is ever added to it again.
fn is_over(log: &Log, sealed: Option<Fence>) -> bool {
    log.ended().is_some() || is_below(log.fence(), sealed)
}

/// Whether it is over, and nobody has come for it in time.
fn is_past(log: &Log, sealed: Option<Fence>, now: Timestamp, limits: &Limits) -> bool {
    is_over(log, sealed) && log.is_idle(now, limits.age)
}
