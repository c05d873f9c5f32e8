//! The four figures that show affinity working or failing.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::table::OwnTable;
use crate::clock::Timestamp;

/// What an operator watches. A rising count of [`sessions_not_found`](Self::sessions_not_found) while everything
/// else looks well is the signature of affinity that has stopped working: each client recovers by itself, so
/// nothing else shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Figures {
    /// Sessions that this instance owns.
    pub live_sessions: usize,
    /// How old they are.
    pub ages: Ages,
    /// 404s that were given to requests with a session id, since the instance joined.
    pub sessions_not_found: u64,
    /// Resume attempts that found their events. Counted by the resume layer.
    pub resumes_found: u64,
    /// Resume attempts that missed their events. Counted by the resume layer.
    pub resumes_missed: u64,
}

/// Distribution of the ages of the live sessions; zero when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Ages {
    /// Half of the sessions are younger.
    pub p50: Duration,
    /// Nine tenths are younger.
    pub p90: Duration,
    /// Ninety-nine hundredths are younger.
    pub p99: Duration,
    /// The oldest.
    pub max: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    not_found: AtomicU64,
    found: AtomicU64,
    missed: AtomicU64,
}

impl Counters {
    pub(crate) fn count_not_found(&self) {
        self.not_found.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a client that came back to a stream found its events.
    pub(crate) fn count_resume(&self, found: bool) {
        let counter = if found { &self.found } else { &self.missed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn figures(&self, now: Timestamp, table: &OwnTable) -> Figures {
        let mut ages = Vec::new();
        table.collect(|session| {
            ages.push(now.since(session.opened));
            false
        });
        Figures {
            live_sessions: ages.len(),
            ages: Ages::of(ages),
            sessions_not_found: self.not_found.load(Ordering::Relaxed),
            resumes_found: self.found.load(Ordering::Relaxed),
            resumes_missed: self.missed.load(Ordering::Relaxed),
        }
    }
}

impl Ages {
    fn of(mut ages: Vec<Duration>) -> Self {
        ages.sort_unstable();
        let at = |hundredths: usize| {
            let rank = (ages.len() * hundredths).div_ceil(100).saturating_sub(1);
            ages.get(rank).copied().unwrap_or_default()
        };
        Self {
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        assert_eq!(Ages::of(Vec::new()), Ages::default());
        let seconds = |n| Duration::from_secs(n);
        let ages = Ages::of((1..=100).rev().map(seconds).collect());
        assert_eq!(ages.p50, seconds(50));
        assert_eq!(ages.p99, seconds(99));
        assert_eq!(ages.max, seconds(100));
        assert_eq!(Ages::of(vec![seconds(3)]).p50, seconds(3));
    }
}
