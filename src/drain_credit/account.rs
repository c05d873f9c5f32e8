//! What a session has been given and what of it has drained: facts in, a verdict out.
//!
//! Each stream of a session is a *flow*. What is deliverable on it and not yet taken is *undrained*; an admitted request
//! *reserves* one message until its answer has drained, and the answer takes that place and no second one.

mod flow;
mod verdict;

use self::flow::{Flow, Probe, Stall, State, Wire};
pub(super) use self::{
    flow::{FlowId, Reading, Step},
    verdict::{Drain, Level, Liveness, Refusal, Terms, Verdict, Wants, decide},
};
use crate::clock::Timestamp;

/// One session's account.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Places held by requests, those of flows included.
    reserved: u32,
    messages: u32,
    /// Of the messages, those that have a reserved place.
    answers: u32,
    bytes: u64,
    /// Messages that were taken and not proven to have arrived.
    unproven: u32,
    /// Counts progress on any flow.
    moves: u64,
    flows: Vec<Flow>,
    /// Flows that are closed, to be used again.
    free: Vec<u32>,
    open: u32,
}

/// What a look at an account found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Check {
    /// When to look again, if nothing happens before.
    pub(super) next: Option<Timestamp>,
    /// Not one of the session's flows progresses: the session itself is broken.
    pub(super) ends: bool,
}

impl Account {
    /// As new, with a few flows' worth of memory kept.
    pub(super) fn reset(&mut self) {
        let (mut flows, mut free) = (
            std::mem::take(&mut self.flows),
            std::mem::take(&mut self.free),
        );
        flows.clear();
        flows.shrink_to(8);
        free.clear();
        free.shrink_to(8);
        *self = Self {
            flows,
            free,
            ..Self::default()
        };
    }

    /// Messages that are outstanding in all.
    pub(super) fn occupied(&self) -> u32 {
        (self.reserved + self.messages + self.unproven).saturating_sub(self.answers)
    }

    pub(super) fn reserved(&self) -> u32 {
        self.reserved
    }

    pub(super) fn undrained(&self) -> (u32, u64) {
        (self.messages + self.unproven, self.bytes)
    }

    /// Whether nothing is left to account for.
    pub(super) fn is_blank(&self) -> bool {
        self.reserved == 0 && self.open == 0
    }

    /// Whether a look at the clock could find anything.
    pub(super) fn is_quiet(&self) -> bool {
        self.messages == 0 && self.unproven == 0
    }

    pub(super) fn level(&self, terms: &Terms) -> Level {
        let occupied = self.occupied();
        // One message does not exhaust the credit in bytes by itself, however large it is.
        let bytes = if self.messages > 1 { self.bytes } else { 0 };
        let reaches = |times: u32, margin: u32, margin_bytes: u64| {
            occupied.saturating_add(margin) >= terms.messages.saturating_mul(times)
                || bytes.saturating_add(margin_bytes) >= terms.bytes.saturating_mul(times.into())
        };
        if reaches(terms.high_water, 0, 0) {
            Level::AtHighWater
        } else if reaches(1, 0, 0) {
            Level::AtCredit
        } else if reaches(1, terms.messages / 4, terms.bytes / 4) {
            Level::Near
        } else {
            Level::Far
        }
    }

    /// Whether some flow has something undrained and has stood still for the drain window.
    pub(super) fn drain(&mut self, terms: &Terms, now: Timestamp) -> Drain {
        let moves = self.moves;
        let stuck = |flow: &mut Flow| flow.stands_still(now, moves, terms.drain_window);
        // Each flow is looked at, so that each has its time.
        match self
            .flows
            .iter_mut()
            .map(stuck)
            .fold(false, |any, one| any | one)
        {
            true => Drain::Stuck,
            false => Drain::Moves,
        }
    }

    pub(super) fn reserve(&mut self, places: u32) {
        self.reserved += places;
    }

    pub(super) fn release(&mut self, places: u32) {
        debug_assert!(places <= self.reserved, "a place is given back once");
        self.reserved = self.reserved.saturating_sub(places);
    }

    /// Opens a flow that owes answers for so many of the reserved places.
    pub(super) fn open(&mut self, owes: u32, shared: bool) -> FlowId {
        let flow = Flow {
            state: State::Open,
            owes,
            shared,
            ..Flow::default()
        };
        self.open += 1;
        let index = match self.free.pop() {
            Some(index) => {
                self.flows[index as usize] = flow;
                index
            }
            None => {
                self.flows.push(flow);
                (self.flows.len() - 1) as u32
            }
        };
        FlowId(index)
    }

    fn flow(&mut self, id: FlowId) -> Option<&mut Flow> {
        self.flows
            .get_mut(id.index())
            .filter(|flow| flow.state == State::Open)
    }

    /// What is known of the connection that a flow is on.
    pub(super) fn shared(&mut self, id: FlowId, shared: bool) {
        if let Some(flow) = self.flow(id) {
            flow.shared = shared;
        }
    }

    /// A flow that was just opened has one message, which answers what it owes.
    pub(super) fn deliverable(&mut self, id: FlowId, bytes: u64) {
        if let Some(flow) = self.flow(id) {
            flow.reading = Reading {
                messages: 1,
                answers: 1,
                bytes,
                held: false,
            };
            let answers = flow.counted_answers();
            self.messages += 1;
            self.answers += answers;
            self.bytes += bytes;
        }
    }

    /// Something has happened on a flow; `None` where the clock was not worth a look. Whether flows that starve may go
    /// on.
    pub(super) fn step(
        &mut self,
        id: FlowId,
        step: &Step,
        terms: &Terms,
        now: Option<Timestamp>,
    ) -> bool {
        let had_room = self.has_room(terms);
        let moved = step.taken > 0 || step.handed > 0;
        self.moves += u64::from(moved);
        let moves = self.moves;
        let Some(flow) = self.flow(id) else {
            return false;
        };
        let before = (flow.reading, flow.unproven, flow.counted_answers());
        if moved {
            flow.stall = None;
            flow.wire.put(step.handed, &terms.liveness, now);
            if terms.proven {
                flow.unproven += step.taken;
            }
        }
        if step.left {
            flow.stall = None;
            flow.wire = Wire::default();
            flow.unproven = 0;
            flow.probe = None;
        }
        flow.reading = step.reading;
        if !flow.may_stall() {
            flow.stall = None;
        } else if let (None, Some(since)) = (flow.stall, now) {
            flow.stall = Some(Stall { since, moves });
        }
        // Its client has taken all there is, so it may go on whatever the others do.
        let served = flow.starved && flow.reading.messages == 0 && flow.unproven == 0;
        let given_back = step.answered.min(flow.owes);
        flow.owes -= given_back;
        let after = (flow.reading, flow.unproven, flow.counted_answers());
        self.count(before, after);
        self.release(given_back);
        served || (!had_room && self.has_room(terms))
    }

    fn count(&mut self, before: (Reading, u32, u32), after: (Reading, u32, u32)) {
        self.messages = self.messages - before.0.messages + after.0.messages;
        self.bytes = self.bytes - before.0.bytes + after.0.bytes;
        self.unproven = self.unproven - before.1 + after.1;
        self.answers = self.answers - before.2 + after.2;
    }

    /// Gives back whatever a flow still holds.
    fn clear(&mut self, id: FlowId, state: State) {
        let Some(flow) = self.flows.get_mut(id.index()) else {
            return;
        };
        let before = (flow.reading, flow.unproven, flow.counted_answers());
        let owes = flow.owes;
        let was = std::mem::replace(
            flow,
            Flow {
                state,
                ..Flow::default()
            },
        );
        if was.state != State::Closed && state == State::Closed {
            self.open -= 1;
            self.free.push(id.0);
        }
        self.count(before, (Reading::default(), 0, 0));
        self.release(owes);
    }

    /// The flow is over. Whether flows that starve may go on.
    pub(super) fn close(&mut self, id: FlowId, terms: &Terms) -> bool {
        let had_room = self.has_room(terms);
        self.clear(id, State::Closed);
        !had_room && self.has_room(terms)
    }

    /// The flow is given up: its credit is free, once, and nothing that happens on it counts any more.
    pub(super) fn tear(&mut self, id: FlowId) {
        self.clear(id, State::Torn);
    }

    #[cfg(test)]
    pub(super) fn is_torn(&self, id: FlowId) -> bool {
        let flow = self.flows.get(id.index());
        flow.is_some_and(|flow| flow.state == State::Torn)
    }

    /// Whether what is undrained in all is below the high-water mark.
    fn has_room(&self, terms: &Terms) -> bool {
        let bytes = if self.messages > 1 { self.bytes } else { 0 };
        self.messages + self.unproven < terms.messages.saturating_mul(terms.high_water)
            && bytes < terms.bytes.saturating_mul(terms.high_water.into())
    }

    /// How many messages the producer of a flow may bring: its share of what is left below the high-water mark, so that
    /// all of them together stay below it; above it one, for a client that has taken all there is.
    pub(super) fn room(&mut self, id: FlowId, terms: &Terms) -> u32 {
        let mark = terms.messages.saturating_mul(terms.high_water);
        let left = mark.saturating_sub(self.messages + self.unproven);
        let share = (left / self.open.max(1)).max(1);
        let has_room = self.has_room(terms);
        let Some(flow) = self.flow(id) else {
            return u32::MAX;
        };
        let caught_up = flow.reading.messages == 0 && flow.unproven == 0;
        flow.starved = !(has_room || caught_up);
        match (has_room, caught_up) {
            (true, _) => share,
            (false, true) => 1,
            (false, false) => 0,
        }
    }

    /// The flows whose producers wait for room; they are told once.
    pub(super) fn starved(&mut self) -> impl Iterator<Item = FlowId> {
        let starved = |(index, flow): (usize, &mut Flow)| {
            std::mem::take(&mut flow.starved).then_some(FlowId(index as u32))
        };
        self.flows.iter_mut().enumerate().filter_map(starved)
    }

    /// Looks for flows that have stood still for longer than is allowed, and hands them to `overdue`.
    pub(super) fn check(
        &mut self,
        terms: &Terms,
        now: Timestamp,
        mut overdue: impl FnMut(FlowId),
    ) -> Check {
        let moves = self.moves;
        let mut check = Check::default();
        let (mut any, mut all) = (false, true);
        for (index, flow) in self.flows.iter_mut().enumerate() {
            if flow.state != State::Open {
                continue;
            }
            match flow.due(now, moves, &terms.liveness) {
                Some((due, since)) if due <= now => {
                    overdue(FlowId(index as u32));
                    any = true;
                    // Progress elsewhere shows that the client is there, and on a shared connection it may be another
                    // session's stream that keeps this one from being read.
                    all &= !flow.shared && since == moves;
                }
                Some((due, _)) => {
                    all = false;
                    check.next = Some(check.next.map_or(due, |next| next.min(due)));
                }
                // Nothing is known against it.
                None => all = false,
            }
        }
        check.ends = any && all;
        check
    }

    /// Whether a flow has something that only a probe can prove, and none is under way.
    pub(super) fn wants_probe(&self, id: FlowId) -> bool {
        let flow = self.flows.get(id.index());
        flow.is_some_and(|flow| {
            flow.state == State::Open && flow.probe.is_none() && flow.unproven > 0
        })
    }

    /// A probe is on its way down a flow.
    pub(super) fn probe(&mut self, id: FlowId, now: Timestamp) {
        let moves = self.moves;
        if let Some(flow) = self.flow(id) {
            flow.probe = Some(Probe {
                sent: now,
                covers: flow.unproven,
                moves,
            });
        }
    }

    /// A probe was answered: all that was taken before it has arrived. Whether flows that starve may go on.
    pub(super) fn prove(&mut self, id: FlowId, terms: &Terms) -> bool {
        let had_room = self.has_room(terms);
        self.moves += 1;
        if let Some(flow) = self.flow(id)
            && let Some(probe) = flow.probe.take()
        {
            let proven = probe.covers.min(flow.unproven);
            flow.unproven -= proven;
            flow.wire = Wire::default();
            self.unproven -= proven;
        }
        !had_room && self.has_room(terms)
    }
}

#[cfg(test)]
mod tests;
