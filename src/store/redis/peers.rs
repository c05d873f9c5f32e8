//! What is known of the leases of other instances, so that a session which one of them owns is found without a script.
//!
//! Whoever owns a session is read from its record; whether its lease is live takes the directory's clock. That clock never
//! runs faster than time does, so of a lease that was said to be good for so long something is left for as long here. Two
//! things could make it end earlier, that its instance leaves and that the memory is lost; both change the *generation*,
//! which is read together with the record. Nothing else is concluded from what is kept here: that somebody owns a
//! session is no proof of anything, and whatever is one is asked of the directory.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::clock::Timestamp;

/// More instances than there are, so that nothing grows without end.
const MOST: usize = 4096;
/// How long a lease that was not heard of again makes the directory the first to be asked.
const MISSED: Duration = Duration::from_secs(600);
/// How long the directory is the first to be asked after somebody's lease had ended.
const DOUBT: Duration = Duration::from_secs(1);
/// So many more sessions that do not exist than such that do are asked for before the directory is the first to be asked.
const STRANGERS: u8 = 4;

/// Leases of one generation. Pure: the present is passed in.
#[derive(Debug, Default)]
pub(super) struct Peers {
    generation: Vec<u8>,
    leases: HashMap<u128, Lease>,
    /// The directory's clock at some moment, and here before that.
    clock: Option<(u64, Timestamp)>,
    /// When the first of the leases is no longer good.
    well_until: Timestamp,
    /// Until when the directory is asked first.
    doubt: Timestamp,
    /// How many more sessions were asked for that do not exist than such that do.
    strangers: u8,
}

#[derive(Debug)]
struct Lease {
    until: Timestamp,
    address: Option<Arc<str>>,
}

/// What a script said of a lease: what is left of it in milliseconds, by a clock that showed so much.
pub(super) struct Sample<'a> {
    pub(super) generation: &'a [u8],
    pub(super) owner: u128,
    pub(super) address: Option<Arc<str>>,
    pub(super) left: u64,
    pub(super) clock: u64,
    /// When it was asked for.
    pub(super) asked: Timestamp,
}

impl Peers {
    /// Takes down what was said.
    pub(super) fn learn(&mut self, sample: Sample<'_>) {
        if sample.generation.is_empty() {
            return;
        }
        if self.generation != sample.generation || self.leases.len() >= MOST {
            self.leases.clear();
            self.generation = sample.generation.to_vec();
        }
        self.clock = Some((sample.clock, sample.asked));
        // Less what two clocks may differ by.
        let left = Duration::from_millis(sample.left - sample.left / 64);
        let until = sample.asked.after(left);
        let address = sample.address;
        self.leases.insert(sample.owner, Lease { until, address });
        self.count();
    }

    fn count(&mut self) {
        let all = self.leases.values().map(|lease| lease.until);
        self.well_until = all.min().unwrap_or_default();
    }

    /// A session was asked for whose owner's lease had ended; there may be more of them.
    pub(super) fn doubt(&mut self, now: Timestamp) {
        self.doubt = now.after(DOUBT);
        self.leases
            .retain(|_, lease| now < lease.until.after(MISSED));
        self.count();
    }

    /// A session was asked for that does not exist, or one that does.
    pub(super) fn met(&mut self, stranger: bool) {
        self.strangers = match stranger {
            true => (2 * STRANGERS).min(self.strangers + 1),
            false => self.strangers.saturating_sub(1),
        };
    }

    /// Whether a look at the record is likely to be enough: every lease that was heard of is still good, and those who ask
    /// mostly ask for what there is.
    pub(super) fn are_well(&self, now: Timestamp) -> bool {
        now >= self.doubt && now < self.well_until && self.strangers < STRANGERS
    }

    /// Whether this owner's lease is certainly live and a record that is over then is certainly not over. Gives its address.
    pub(super) fn knows(
        &self,
        now: Timestamp,
        generation: &[u8],
        owner: u128,
        over: u64,
    ) -> Option<Option<Arc<str>>> {
        let lease = self.leases.get(&owner)?;
        let (clock, asked) = self.clock?;
        let since = u64::try_from(now.since(asked).as_millis()).ok()?;
        let latest = clock.saturating_add(since).saturating_add(1);
        (self.generation == generation && now < lease.until && latest < over)
            .then(|| lease.address.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: u64 = u64::MAX;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ORIGIN.after(Duration::from_millis(millis))
    }

    fn peers(left: u64) -> Peers {
        let mut peers = Peers::default();
        peers.learn(Sample {
            generation: b"g",
            owner: 1,
            address: None,
            left,
            clock: 5000,
            asked: at(0),
        });
        peers
    }

    #[test]
    fn a_lease_is_known_for_as_long_as_something_is_left_of_it() {
        let peers = peers(6400);
        assert!(peers.knows(at(6299), b"g", 1, NEVER).is_some());
        assert!(peers.knows(at(6300), b"g", 1, NEVER).is_none());
        assert!(peers.knows(at(0), b"other", 1, NEVER).is_none());
        assert!(peers.knows(at(0), b"g", 2, NEVER).is_none());
    }

    #[test]
    fn a_record_that_may_be_over_is_not_known() {
        let peers = peers(6400);
        assert!(peers.knows(at(100), b"g", 1, 5102).is_some());
        assert!(peers.knows(at(100), b"g", 1, 5101).is_none());
    }

    #[test]
    fn another_generation_forgets_all_leases() {
        let mut peers = peers(6400);
        peers.learn(Sample {
            generation: b"h",
            owner: 2,
            address: None,
            left: 1000,
            clock: 6000,
            asked: at(10),
        });
        assert!(peers.knows(at(10), b"g", 1, NEVER).is_none());
        assert!(peers.knows(at(10), b"h", 1, NEVER).is_none());
        assert!(peers.knows(at(10), b"h", 2, NEVER).is_some());
    }

    #[test]
    fn a_lease_that_may_be_over_and_a_doubt_send_to_the_directory_first() {
        let mut peers = peers(6400);
        assert!(peers.are_well(at(6000)));
        assert!(!peers.are_well(at(6300)));
        peers.doubt(at(100));
        assert!(!peers.are_well(at(1000)));
        assert!(peers.are_well(at(1100)));
        // Not for ever.
        peers.doubt(at(700_000));
        assert!(peers.leases.is_empty());
    }

    #[test]
    fn who_asks_mostly_for_what_there_is_not_is_sent_to_the_directory() {
        let mut peers = peers(6400);
        for _ in 0..100 {
            peers.met(true);
            peers.met(false);
            assert!(peers.are_well(at(0)));
        }
        for _ in 0..100 {
            peers.met(true);
        }
        assert!(!peers.are_well(at(0)));
        for _ in 0..10 {
            peers.met(false);
        }
        assert!(peers.are_well(at(0)));
    }
}
