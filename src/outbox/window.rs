//! One stream's state between its producer and its client, pure: what was published, who reads it and how far, how it
//! ended. No clock, no I/O; whom to wake is part of each answer.

use std::{collections::VecDeque, task::Waker};

use bytes::Bytes;

use super::{batch::MAX_FRAME, drain::Progress};
use crate::{
    mcp::RequestIds,
    store::{Ending, Seq},
};

/// Events that were ready together, numbered without a gap, in one piece of memory.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    pub(crate) first: Seq,
    pub(crate) bytes: Bytes,
    /// Where each event but the last ends; empty for a single event.
    pub(crate) ends: Box<[usize]>,
    /// The requests that are answered in it.
    pub(crate) answers: RequestIds,
    /// Whether the log has it.
    pub(crate) logged: bool,
}

impl Chunk {
    pub(crate) fn len(&self) -> usize {
        self.ends.len() + 1
    }

    /// The number after its last event.
    pub(crate) fn end(&self) -> Seq {
        self.first.plus(self.len() as u64)
    }

    /// What of it comes from `next` on.
    fn from(mut self, next: Seq) -> Self {
        let skipped = next.get().saturating_sub(self.first.get());
        if let Some(last) = usize::try_from(skipped).ok().and_then(|n| n.checked_sub(1))
            && let Some(&end) = self.ends.get(last)
        {
            self.bytes = self.bytes.slice(end..);
            self.ends = self.ends[last + 1..].iter().map(|at| at - end).collect();
            self.first = next;
        }
        self
    }
}

/// How much is held for a client that is behind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes that are held in memory; what is beyond is read from the log again.
    pub(crate) window: usize,
    /// Bytes that the producer may be ahead of an attached client before it is no longer pulled.
    pub(crate) lag: usize,
}

#[derive(Debug)]
pub(crate) struct Window {
    bounds: Bounds,
    chunks: VecDeque<Chunk>,
    held: usize,
    /// Answers in what is held.
    answers: usize,
    head: Seq,
    /// Whether the log was opened, and so whether events carry ids; `None` until that is known.
    numbered: Option<bool>,
    attached: Option<Attached>,
    generation: u64,
    /// A comment or a reconnection time to pass on when nothing else is to be said.
    aside: Option<Bytes>,
    /// A question of the guard's own, which is asked once.
    question: Option<Bytes>,
    ending: Option<Ending>,
    reader: Option<Waker>,
    producer: Option<Waker>,
    /// Whether the producer waits for room, and not only for a client to come or go.
    starved: bool,
    /// Whether the stream was given up from outside.
    torn: bool,
    /// What was taken so far, and what was last reported of it.
    taken: Taking,
    reported: Progress,
}

#[derive(Debug, Clone, Copy, Default)]
struct Taking {
    messages: u64,
    bytes: u64,
    answers: u64,
}

#[derive(Debug)]
struct Attached {
    generation: u64,
    next: Seq,
    /// What was published before is the log's matter; what came after counts as lag.
    since: Seq,
    lag: usize,
    /// Bytes of what was taken that are yet to be handed to the wire.
    in_hand: usize,
    /// It asks for more, and waits for the log or for a proof.
    held: bool,
}

/// What a reader gets.
#[derive(Debug)]
pub(crate) enum Taken {
    Chunk(Chunk),
    /// The next events are in the log only.
    Behind,
    Aside(Bytes),
    Ended(Ending),
    /// Another client has attached.
    Superseded,
    Wait,
}

/// Wakers to be woken once the lock is released.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Wake(Option<Waker>, Option<Waker>);

impl Wake {
    pub(crate) fn wake(self) {
        if let Some(reader) = self.0 {
            reader.wake();
        }
        if let Some(producer) = self.1 {
            producer.wake();
        }
    }
}

impl Window {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            chunks: VecDeque::new(),
            held: 0,
            answers: 0,
            head: Seq::START,
            numbered: None,
            attached: None,
            generation: 0,
            aside: None,
            question: None,
            ending: None,
            reader: None,
            producer: None,
            starved: false,
            torn: false,
            taken: Taking::default(),
            reported: Progress::default(),
        }
    }

    /// A stream of which only the log is left.
    pub(crate) fn over(bounds: Bounds, head: Seq, ending: Ending) -> Self {
        Self {
            head,
            numbered: Some(true),
            ending: Some(ending),
            ..Self::new(bounds)
        }
    }

    pub(crate) fn head(&self) -> Seq {
        self.head
    }

    pub(crate) fn numbered(&self) -> Option<bool> {
        self.numbered
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.attached.is_some()
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// The first event that an attached client has yet to read.
    pub(crate) fn keep(&self, next: Seq) -> Seq {
        self.attached
            .as_ref()
            .map_or(next, |attached| attached.next.min(next))
    }

    /// Whether the producer is so far ahead of its client that it must wait.
    pub(crate) fn is_full(&self) -> bool {
        self.attached
            .as_ref()
            .is_some_and(|attached| attached.lag > self.bounds.lag)
    }

    /// Whether a client that does not get its turn soon will have to read from the log.
    pub(crate) fn is_filling(&self) -> bool {
        self.held > self.bounds.window / 2
    }

    /// Whether an attached client has something yet to read that only the log has.
    pub(crate) fn needs_log(&self) -> bool {
        self.attached.as_ref().is_some_and(|attached| {
            let held = self.chunks.back().map_or(attached.next, Chunk::end);
            held <= self.head
        })
    }

    pub(crate) fn opened(&mut self, numbered: bool) -> Wake {
        self.numbered = Some(numbered);
        Wake(self.reader.take(), None)
    }

    /// Makes the caller the client, from `next` on or from what comes next. An older client is told.
    pub(crate) fn attach(&mut self, next: Option<Seq>) -> (u64, Wake) {
        let next = next.unwrap_or(self.head.next());
        self.generation += 1;
        self.clear();
        self.aside = None;
        self.question = None;
        self.attached = Some(Attached {
            generation: self.generation,
            next,
            since: self.head,
            lag: 0,
            in_hand: 0,
            held: false,
        });
        let wake = Wake(self.reader.take(), self.producer.take());
        (self.generation, wake)
    }

    pub(crate) fn detach(&mut self, generation: u64) -> Wake {
        if self.attached(generation).is_none() {
            return Wake::default();
        }
        self.attached = None;
        self.reader = None;
        self.clear();
        Wake(None, self.producer.take())
    }

    fn clear(&mut self) {
        self.chunks.clear();
        self.held = 0;
        self.answers = 0;
    }

    fn attached(&mut self, generation: u64) -> Option<&mut Attached> {
        self.attached
            .as_mut()
            .filter(|attached| attached.generation == generation)
    }

    /// Publishes what was numbered next, after the log has it or has failed to take it. Given back when it is in no
    /// log and there is no room for it: it would be lost to a client that is there.
    pub(crate) fn publish(&mut self, chunk: Chunk) -> Result<Wake, Chunk> {
        let Some(attached) = &mut self.attached else {
            self.head = Seq::new(chunk.end().get() - 1);
            return Ok(Wake::default());
        };
        let follows = match self.chunks.back() {
            Some(last) => last.end() == chunk.first,
            // What it has yet to read before this is in the log.
            None => attached.next >= chunk.first,
        };
        let fits = self.chunks.is_empty() || self.held + chunk.bytes.len() <= self.bounds.window;
        if !(chunk.logged || (follows && fits)) {
            return Err(chunk);
        }
        self.head = Seq::new(chunk.end().get() - 1);
        attached.lag += chunk.bytes.len();
        if follows && fits && chunk.end() > attached.next {
            self.held += chunk.bytes.len();
            self.answers += chunk.answers.len();
            self.chunks.push_back(chunk);
        }
        Ok(Wake(self.reader.take(), None))
    }

    /// Passes on what is no event: to a client that is there and has nothing else to read.
    pub(crate) fn say(&mut self, aside: Bytes) -> Wake {
        if self.attached.is_none() {
            return Wake::default();
        }
        self.aside = Some(aside);
        Wake(self.reader.take(), None)
    }

    /// Takes what is to be passed on when nothing else is to be said.
    pub(crate) fn aside(&mut self, generation: u64) -> Option<Bytes> {
        self.attached(generation)?;
        self.aside.take()
    }

    /// Asks the client something, once it has read what there is to read.
    pub(crate) fn ask(&mut self, question: Bytes) -> Wake {
        self.question = Some(question);
        Wake(self.reader.take(), None)
    }

    pub(crate) fn end(&mut self, ending: Ending) -> Wake {
        self.ending.get_or_insert(ending);
        self.aside = None;
        self.question = None;
        Wake(self.reader.take(), self.producer.take())
    }

    /// What comes next for this client; keeps its waker if nothing does.
    pub(crate) fn take(&mut self, generation: u64, waker: &Waker) -> (Taken, Wake) {
        let head = self.head;
        let Some(attached) = self
            .attached
            .as_mut()
            .filter(|attached| attached.generation == generation)
        else {
            return (Taken::Superseded, Wake::default());
        };
        if let Some(chunk) = self.chunks.pop_front() {
            self.held -= chunk.bytes.len();
            self.answers -= chunk.answers.len();
            attached.lag = attached.lag.saturating_sub(chunk.bytes.len());
            let chunk = chunk.from(attached.next);
            attached.next = chunk.end();
            self.taken.messages += chunk.len() as u64;
            self.taken.answers += chunk.answers.len() as u64;
            attached.hand(chunk.bytes.len(), &mut self.taken);
            return (Taken::Chunk(chunk), self.relieved());
        }
        if attached.next <= head {
            attached.held = true;
            return (Taken::Behind, Wake::default());
        }
        if let Some(aside) = self.question.take().or_else(|| self.aside.take()) {
            return (Taken::Aside(aside), Wake::default());
        }
        if let Some(ending) = self.ending {
            return (Taken::Ended(ending), Wake::default());
        }
        keep(&mut self.reader, waker);
        (Taken::Wait, Wake::default())
    }

    /// The client has read up to `next` from the log; `lengths` are those of the events it read, the last one right
    /// before `next`.
    pub(crate) fn advance(
        &mut self,
        generation: u64,
        next: Seq,
        lengths: impl DoubleEndedIterator<Item = usize>,
    ) -> Wake {
        let mut taken = self.taken;
        if let Some(attached) = self.attached(generation) {
            let fresh = next.get().saturating_sub(attached.since.get() + 1);
            let fresh = usize::try_from(fresh).unwrap_or(usize::MAX);
            let mut read = 0;
            for (at, length) in lengths.rev().enumerate() {
                read += if at < fresh { length } else { 0 };
                taken.messages += 1;
                attached.hand(length, &mut taken);
            }
            attached.lag = attached.lag.saturating_sub(read);
            attached.next = next;
        }
        self.taken = taken;
        self.relieved()
    }

    /// So many bytes more of what was taken were handed to the wire.
    pub(crate) fn handed(&mut self, generation: u64, bytes: usize) {
        let mut taken = self.taken;
        if let Some(attached) = self.attached(generation) {
            attached.in_hand = attached.in_hand.saturating_sub(bytes);
            attached.held = false;
            taken.bytes += bytes as u64;
        }
        self.taken = taken;
    }

    /// The client asks for more and is kept waiting.
    pub(crate) fn held(&mut self, generation: u64) {
        if let Some(attached) = self.attached(generation) {
            attached.held = true;
        }
    }

    /// Gives the stream up.
    pub(crate) fn tear_down(&mut self) -> Wake {
        self.torn = true;
        Wake(None, self.producer.take())
    }

    pub(crate) fn is_torn(&self) -> bool {
        self.torn
    }

    /// Wakes the producer, whatever it waits for.
    pub(crate) fn wake_producer(&mut self) -> Wake {
        Wake(None, self.producer.take())
    }

    /// The progress that was reported last, and the present one if it is another.
    pub(crate) fn progress(&mut self) -> Option<(Progress, Progress)> {
        let client = self.attached.as_ref();
        let messages = client.map_or(0, |attached| {
            let published = self.head.next().get().saturating_sub(attached.next.get());
            published + u64::from(attached.in_hand > 0)
        });
        let now = Progress {
            messages,
            answers: self.answers as u64,
            bytes: client.map_or(0, |attached| (attached.lag + attached.in_hand) as u64),
            held: client.is_some_and(|attached| attached.held),
            client: client.map_or(0, |attached| attached.generation),
            taken: self.taken.messages,
            handed: self.taken.bytes,
            answered: self.taken.answers,
            over: self.ending.is_some() && messages == 0,
        };
        let before = std::mem::replace(&mut self.reported, now);
        (before != now).then_some((before, now))
    }

    /// Wakes a producer that waited for room.
    fn relieved(&mut self) -> Wake {
        if self.is_full() || !std::mem::take(&mut self.starved) {
            return Wake::default();
        }
        Wake(None, self.producer.take())
    }

    /// Keeps the producer's waker for when a client comes or goes, or makes room if the producer is `starved` of it.
    pub(crate) fn watch(&mut self, waker: &Waker, starved: bool) {
        self.starved = starved;
        keep(&mut self.producer, waker);
    }

    /// Keeps the reader's waker for when it is known whether the stream is numbered.
    pub(crate) fn watch_opening(&mut self, waker: &Waker) {
        keep(&mut self.reader, waker);
    }
}

impl Attached {
    /// As much of what was taken as fits into a frame goes to the wire at once.
    fn hand(&mut self, bytes: usize, taken: &mut Taking) {
        let first = bytes.min(MAX_FRAME);
        taken.bytes += first as u64;
        self.in_hand = bytes - first;
        self.held = false;
    }
}

fn keep(kept: &mut Option<Waker>, waker: &Waker) {
    match kept {
        Some(kept) if kept.will_wake(waker) => {}
        kept => *kept = Some(waker.clone()),
    }
}
