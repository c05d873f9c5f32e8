//! The log of one stream as a value: what was recorded, what is missing, and what is held for whom.

use std::collections::VecDeque;

use super::weight::{Hole, Weight};
use crate::{
    clock::Timestamp,
    mcp::Subject,
    session::{Epoch, Fence},
    store::{Append, Ending, Event, Page, Seq, Snapshot, StreamHeader},
};

#[derive(Debug)]
pub(super) struct Log {
    header: StreamHeader,
    events: VecDeque<Logged>,
    /// Missing numbers above the first event, in order. Each hole follows an event, so there are no more of them.
    holes: VecDeque<Hole>,
    /// The last number that is known to have been given.
    head: Seq,
    ended: Option<(Seq, Ending)>,
    /// The first number that somebody has yet to read.
    keep: Seq,
    /// Whether it was a reader who said so last, and not the producer.
    reader: bool,
    /// When it was last read or written.
    touched: Timestamp,
}

#[derive(Debug)]
pub(super) struct Logged {
    seq: Seq,
    /// Its place among the events of all the session's streams.
    order: u64,
    at: Timestamp,
    event: Event,
}

impl Log {
    pub(super) fn new(now: Timestamp, header: StreamHeader) -> Self {
        Self {
            header,
            events: VecDeque::new(),
            holes: VecDeque::new(),
            head: Seq::START,
            ended: None,
            keep: Seq::START.next(),
            reader: false,
            touched: now,
        }
    }

    pub(super) fn header(&self) -> &StreamHeader {
        &self.header
    }

    pub(super) fn fence(&self) -> Fence {
        self.header.fence
    }

    /// What the logs of a session are sorted by. Producers count up, so a new one comes last.
    pub(super) fn place(&self) -> (u64, Epoch) {
        (self.header.key.stream, self.header.key.epoch)
    }

    pub(super) fn touched(&self) -> Timestamp {
        self.touched
    }

    pub(super) fn touch(&mut self, now: Timestamp) {
        self.touched = now;
    }

    pub(super) fn ended(&self) -> Option<(Seq, Ending)> {
        self.ended
    }

    pub(super) fn weight(&self) -> Weight {
        let mut weight = Weight::of_stream(&self.header);
        for logged in &self.events {
            weight += Weight::of(&logged.event);
        }
        weight
    }

    pub(super) fn is_idle(&self, now: Timestamp, nanos: u64) -> bool {
        now.nanos_since(self.touched) >= nanos
    }

    /// Whether there is anything that somebody has yet to read.
    pub(super) fn is_held(&self, now: Timestamp, age: u64) -> bool {
        self.head >= self.keep && !self.is_idle(now, age)
    }

    /// The place of the first event among all the session's, unless it is held.
    pub(super) fn oldest(&self, now: Timestamp, age: u64) -> Option<u64> {
        let first = self.events.front()?;
        let free = first.seq < self.keep || self.is_idle(now, age);
        free.then_some(first.order)
    }

    /// When what is held in it lapses, unless it is touched again.
    pub(super) fn lapses(&self, age: u64) -> u64 {
        self.touched.as_nanos().saturating_add(age)
    }

    /// Takes the first event out. Its number is a gap from now on.
    pub(super) fn take(&mut self) -> Weight {
        let Some(taken) = self.events.pop_front() else {
            return Weight::default();
        };
        match self.events.front() {
            Some(first) => {
                while self.holes.front().is_some_and(|hole| hole.1 < first.seq) {
                    self.holes.pop_front();
                }
            }
            None => self.holes.clear(),
        }
        shrink(&mut self.events);
        shrink(&mut self.holes);
        Weight::of(&taken.event)
    }

    /// Takes out what is older than `age` and held for nobody.
    pub(super) fn expire(&mut self, now: Timestamp, age: u64) -> Weight {
        let mut gone = Weight::default();
        while let Some(first) = self.events.front()
            && now.nanos_since(first.at) >= age
            && self.oldest(now, age).is_some()
        {
            gone += self.take();
        }
        gone
    }

    /// What of a batch is above the head. The rest is here already, or a gap for ever.
    pub(super) fn news<'a>(&self, append: &Append<'a>) -> (Seq, &'a [Event]) {
        let known = self.head.get().checked_sub(append.first.get());
        let known = known.map_or(0, |behind| behind.saturating_add(1));
        let known = usize::try_from(known)
            .unwrap_or(usize::MAX)
            .min(append.events.len());
        (append.first.plus(known as u64), &append.events[known..])
    }

    /// The producer has written, and says what is to be kept.
    pub(super) fn keep(&mut self, now: Timestamp, keep: Seq) {
        self.keep = keep;
        self.reader = false;
        self.touched = now;
    }

    /// Adds what is above the head.
    pub(super) fn push(&mut self, now: Timestamp, order: &mut u64, first: Seq, events: &[Event]) {
        self.miss(Seq::new(first.get().saturating_sub(1)));
        // Few streams have more than their answer, and each is kept for a while.
        if self.events.is_empty() {
            self.events.reserve_exact(events.len());
        }
        for event in events {
            self.head = self.head.next();
            *order += 1;
            self.events.push_back(Logged {
                seq: self.head,
                order: *order,
                at: now,
                event: event.clone(),
            });
        }
    }

    pub(super) fn end(&mut self, now: Timestamp, last: Seq, ending: Ending) {
        self.miss(last);
        self.ended = Some((last, ending));
        // The producer holds nothing any more; whoever reads for itself still does.
        if !self.reader {
            self.keep = self.head.next();
        }
        self.touched = now;
    }

    /// Numbers up to `last` were given, and what is not here is lost.
    fn miss(&mut self, last: Seq) {
        if last > self.head {
            // Whatever comes before the first event is missing without saying.
            if !self.events.is_empty() {
                self.holes.push_back((self.head.next(), last));
            }
            self.head = last;
        }
    }

    /// The first number after `after`, up to the head, whose event is not here.
    fn gap(&self, after: Seq) -> Option<Seq> {
        if after >= self.head {
            return None;
        }
        let next = after.next();
        match self.events.front() {
            Some(first) if first.seq <= next => {
                let at = self.holes.partition_point(|hole| hole.1 < next);
                self.holes.get(at).map(|hole| hole.0.max(next))
            }
            _ => Some(next),
        }
    }

    pub(super) fn read(&mut self, now: Timestamp, after: Seq, page: Page) -> Snapshot {
        self.touched = now;
        // Nobody has read what was never said, and what others have yet to read is not theirs to let go.
        if after <= self.head {
            self.keep = after.next();
            self.reader = true;
        }
        let from = self.events.partition_point(|logged| logged.seq <= after);
        let rest = self.events.range(from..);
        let mut events = Vec::with_capacity(page.events.min(rest.len()).max(1));
        let mut bytes = 0usize;
        let mut last = after;
        for logged in rest.clone() {
            bytes = bytes.saturating_add(logged.event.bytes.len());
            let full = events.len() >= page.events || bytes > page.bytes;
            if logged.seq != last.next() || (full && !events.is_empty()) {
                break;
            }
            last = logged.seq;
            events.push(logged.event.clone());
        }
        let subjects = rest
            .filter(|logged| logged.event.subject != Subject::Nothing)
            .map(|logged| (logged.seq, logged.event.subject.clone()))
            .collect();
        Snapshot::new(
            self.header.clone(),
            self.head,
            self.ended.map(|(_, ending)| ending),
            self.gap(after),
            events,
            subjects,
        )
    }
}

/// Gives memory back once most of it is unused; so seldom that it costs nothing.
fn shrink<T>(deque: &mut VecDeque<T>) {
    if deque.capacity() > 64 && deque.capacity() / 4 > deque.len() {
        deque.shrink_to(deque.capacity() / 2);
    }
}
