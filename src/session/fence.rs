//! The fence: which grant of ownership a session is served under.

use std::fmt;

/// One life of the directory's memory: a store that restarted empty, or a replica that was promoted, is another.
///
/// Ordered by when it began, so that whatever is granted after an amnesia is above everything granted before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    began: u64,
    nonce: u64,
}

impl Incarnation {
    /// `began` in milliseconds since the Unix epoch; `nonce` tells apart two that began at once.
    #[must_use]
    pub const fn new(began: u64, nonce: u64) -> Self {
        Self { began, nonce }
    }

    /// When it began, in milliseconds since the Unix epoch.
    #[must_use]
    pub const fn began(self) -> u64 {
        self.began
    }

    /// The random part.
    #[must_use]
    pub const fn nonce(self) -> u64 {
        self.nonce
    }

    /// An incarnation that begins at `now` and is above this one even if the wall clock ran back.
    #[cfg_attr(not(any(test, feature = "test-util")), allow(dead_code))]
    #[must_use]
    pub(crate) fn successor(self, now: u64, nonce: u64) -> Self {
        Self::new(now.max(self.began.saturating_add(1)), nonce)
    }
}

/// Ordered token of one grant of ownership: the directory's incarnation first, then a counter.
///
/// Every take-over gets a higher fence. A write that carries the fence (see
/// [`Disposition`](crate::affinity_guard::Disposition)) can be refused by whatever it writes to once a higher
/// one has been seen, which is the only protection from a process that wakes up in the middle of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    incarnation: Incarnation,
    counter: u64,
}

impl Fence {
    /// The fence with these parts; back ends use it to read one back from a store.
    #[must_use]
    pub const fn new(incarnation: Incarnation, counter: u64) -> Self {
        Self {
            incarnation,
            counter,
        }
    }

    /// The incarnation of the directory that granted it.
    #[must_use]
    pub const fn incarnation(self) -> Incarnation {
        self.incarnation
    }

    /// How many grants the session has seen in that incarnation.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.counter
    }

    /// The next grant, made by the directory in its incarnation `now`: above `self` in every case.
    #[must_use]
    pub fn next(self, now: Incarnation) -> Self {
        if now > self.incarnation {
            Self::new(now, 1)
        } else {
            // A directory whose incarnation is not above that of a fence it meets must still go up.
            Self::new(self.incarnation, self.counter.saturating_add(1))
        }
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{:x}-{}",
            self.incarnation.began, self.incarnation.nonce, self.counter
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn incarnation()(began in 0u64..4, nonce in 0u64..4) -> Incarnation { Incarnation::new(began, nonce) }
    }

    proptest! {
        #[test]
        fn the_next_fence_is_always_above(old in incarnation(), counter in 0u64..1000, now in incarnation()) {
            let fence = Fence::new(old, counter);
            prop_assert!(fence.next(now) > fence);
        }

        #[test]
        fn a_successor_is_above_whatever_the_wall_clock_says(old in incarnation(), now in 0u64..8, nonce: u64) {
            prop_assert!(old.successor(now, nonce) > old);
        }
    }
}
