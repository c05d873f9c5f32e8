//! The lease as a value: what each reply of the directory does to the proof of the own table.
//!
//! Pure: the keeper feeds it what it sent and what came back, and the ownership model explores this very code.

use std::time::Duration;

use crate::{
    clock::Timestamp,
    session::Incarnation,
    store::{Heartbeat, Standing},
};

/// One instance's standing with the directory.
///
/// A session is proven for one unbroken lease under one incarnation. Each lapse begins a new *generation*, and a
/// session that was proven in an older one is proven no more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tenure {
    asked: Duration,
    lease: Duration,
    margin: Duration,
    known: Option<Incarnation>,
    deadline: Option<Timestamp>,
    generation: u64,
    claim_due: bool,
}

impl Tenure {
    /// No lease yet. `margin` is taken off each lease, for clocks that do not run equally fast.
    #[must_use]
    pub fn new(lease: Duration, margin: Duration) -> Self {
        Self {
            asked: lease,
            lease,
            margin,
            known: None,
            deadline: None,
            generation: 1,
            claim_due: true,
        }
    }

    /// The lease to ask for.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Which unbroken lease this is.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Until when the lease is good by this instance's own count.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Whether a claim is due before another heartbeat makes sense.
    #[must_use]
    pub fn claim_due(&self) -> bool {
        self.claim_due
    }

    /// Asks for another claim, for sessions that the last one left unproven.
    pub fn want_claim(&mut self) {
        self.claim_due = true;
    }

    /// How this instance stands when it claims now.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self.deadline {
            Some(_) => Standing::Unbroken,
            None => Standing::Lapsed,
        }
    }

    /// Whether the lease is good at `now`.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| now < deadline)
    }

    /// Looks at the clock, and un-proves everything if the lease ran out.
    pub fn notice(&mut self, now: Timestamp) {
        if self.deadline.is_some() && !self.holds(now) {
            self.lapse();
        }
    }

    /// Un-proves everything: the lease is over.
    pub fn lapse(&mut self) {
        self.deadline = None;
        self.generation += 1;
        self.claim_due = true;
    }

    /// A heartbeat that was sent at `sent` was answered, and the answer is handled at `now`.
    pub fn on_heartbeat(&mut self, sent: Timestamp, now: Timestamp, reply: &Heartbeat) {
        // Handled after the old deadline: whatever it says, the lease was not unbroken.
        self.notice(now);
        if self.known != Some(reply.incarnation) {
            // The directory may have forgotten the table. Extending now would let this instance believe in
            // sessions that nobody else can see; the claim that is due extends instead.
            self.claim_due = true;
        } else if !reply.extended {
            // The directory saw a lapse that this instance's own clock did not.
            self.lapse();
        } else if self.deadline.is_some() && !self.claim_due {
            self.extend(sent, now, self.lease);
        }
    }

    /// A claim that was sent at `sent` by an instance that stood as `standing` was answered by `incarnation`, which
    /// granted `lease`, and the answer is handled at `now`. Returns whether its outcomes count.
    #[must_use]
    pub fn on_claim(
        &mut self,
        sent: Timestamp,
        now: Timestamp,
        standing: Standing,
        incarnation: Incarnation,
        lease: Duration,
    ) -> bool {
        self.notice(now);
        // It stood unbroken when it claimed and does not any more: the claim said something untrue.
        if standing == Standing::Unbroken && self.deadline.is_none() {
            return false;
        }
        self.lease = lease;
        let before = self.known.replace(incarnation);
        if before.is_some_and(|before| before != incarnation) {
            // The lease goes on, and what the claim spoke of with it. But a grant of the old incarnation whose reply
            // is still on the way was in no claim, and must not be taken for proven when it arrives.
            self.generation += 1;
        }
        self.extend(sent, now, lease);
        self.claim_due = self.deadline.is_none();
        self.deadline.is_some()
    }

    fn extend(&mut self, sent: Timestamp, now: Timestamp, lease: Duration) {
        let deadline = sent.after(lease.saturating_sub(self.margin_of(lease)));
        if now < deadline {
            self.deadline = self.deadline.max(Some(deadline));
        }
    }

    /// Clocks drift apart in proportion to the time between, so a lease that is shorter than was asked for needs as
    /// much less, and is not left with nothing but the margin.
    fn margin_of(&self, lease: Duration) -> Duration {
        if lease >= self.asked {
            return self.margin;
        }
        self.margin
            .mul_f64(lease.as_secs_f64() / self.asked.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Incarnation = Incarnation::new(1, 0);
    const TWO: Incarnation = Incarnation::new(2, 0);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ORIGIN.after(Duration::from_secs(seconds))
    }

    fn held() -> Tenure {
        let mut tenure = Tenure::new(Duration::from_secs(10), Duration::from_secs(1));
        assert!(tenure.on_claim(at(0), at(1), Standing::Lapsed, ONE, Duration::from_secs(10)));
        tenure
    }

    #[test]
    fn the_deadline_counts_from_before_it_was_sent_less_the_margin() {
        let tenure = held();
        assert!(tenure.holds(at(8)));
        assert!(!tenure.holds(at(9)));
    }

    #[test]
    fn a_reply_handled_after_the_deadline_is_a_lapse_however_good_it_is() {
        let mut tenure = held();
        let before = tenure.generation();
        tenure.on_heartbeat(at(8), at(9), &Heartbeat::new(ONE, true));
        assert_ne!(tenure.generation(), before);
        assert!(!tenure.holds(at(9)) && tenure.claim_due());
        // The next heartbeat finds a live lease, and still proves nothing.
        tenure.on_heartbeat(at(9), at(9), &Heartbeat::new(ONE, true));
        assert!(!tenure.holds(at(9)));
    }

    #[test]
    fn the_directorys_word_that_it_lapsed_counts() {
        let mut tenure = held();
        let before = tenure.generation();
        tenure.on_heartbeat(at(2), at(3), &Heartbeat::new(ONE, false));
        assert_ne!(tenure.generation(), before);
        assert_eq!(tenure.standing(), Standing::Lapsed);
    }

    #[test]
    fn another_incarnation_extends_nothing_until_it_was_claimed_under() {
        let mut tenure = held();
        tenure.on_heartbeat(at(2), at(3), &Heartbeat::new(TWO, true));
        assert_eq!(tenure.standing(), Standing::Unbroken);
        assert!(tenure.claim_due());
        // Nor does a second heartbeat of it.
        tenure.on_heartbeat(at(4), at(5), &Heartbeat::new(TWO, true));
        assert!(!tenure.holds(at(9)));
        let generation = tenure.generation();
        assert!(tenure.on_claim(
            at(6),
            at(7),
            Standing::Unbroken,
            TWO,
            Duration::from_secs(10)
        ));
        // What was granted before and is in no claim is proven no more.
        assert_eq!(tenure.generation(), generation + 1);
        assert!(tenure.holds(at(14)) && !tenure.claim_due());
    }

    #[test]
    fn an_unbroken_claim_whose_reply_comes_late_counts_for_nothing() {
        let mut tenure = held();
        assert!(!tenure.on_claim(
            at(8),
            at(9),
            Standing::Unbroken,
            TWO,
            Duration::from_secs(10)
        ));
        assert!(tenure.claim_due());
        assert_eq!(tenure.standing(), Standing::Lapsed);
    }

    #[test]
    fn a_reply_slower_than_the_lease_grants_nothing() {
        let mut tenure = Tenure::new(Duration::from_secs(10), Duration::from_secs(1));
        assert!(!tenure.on_claim(at(0), at(9), Standing::Lapsed, ONE, Duration::from_secs(10)));
        assert!(tenure.claim_due());
    }

    #[test]
    fn the_margin_shrinks_with_a_lease_that_is_shorter_than_was_asked_for() {
        let lease = Duration::from_secs(12);
        let mut whole = Tenure::new(lease, Duration::from_secs(6));
        assert!(whole.on_claim(at(0), at(0), Standing::Lapsed, ONE, lease));
        assert_eq!(whole.deadline(), Some(at(6)));
        let mut cut = Tenure::new(lease, Duration::from_secs(6));
        assert!(cut.on_claim(at(0), at(0), Standing::Lapsed, ONE, lease / 3));
        assert_eq!(cut.deadline(), Some(at(2)));
    }
}
