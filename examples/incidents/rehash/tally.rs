//! What the sessions lived through, added up, and whether it is what the variant must show.

use std::time::{Duration, Instant};

use super::session::Story;
use crate::report::{
    Figure::{Count, Millis},
    Report, Variant,
};

/// Within which a misdirected request must be answered for what it is: no edge waits much longer.
const DETECTION_LIMIT: Duration = Duration::from_secs(1);

pub(super) fn report(variant: Variant, stories: &[Story], crash: Instant) -> Report {
    let tally = Tally::of(stories);
    let refusals = || stories.iter().flat_map(|story| &story.refusals);
    let refused = |why: &str| refusals().filter(|refusal| refusal.reason == why).count();
    let errors: usize = stories.iter().map(|story| story.errors).sum();
    let first_404 = refusals()
        .filter(|refusal| refusal.reason == "session_not_found")
        .map(|refusal| refusal.received.saturating_duration_since(crash))
        .min();
    Report {
        variant,
        figures: vec![
            ("sessions", Count(stories.len())),
            ("orphaned", Count(tally.orphaned)),
            ("rehashed", Count(tally.rehashed)),
            ("rehashed_of_living", Count(tally.rehashed_of_living)),
            ("silent_losses", Count(tally.silent_losses)),
            ("diverged_notebooks", Count(tally.diverged)),
            ("explicit_errors", Count(refusals().count() + errors)),
            ("reassigned", Count(refused("session_reassigned"))),
            ("unconfirmed", Count(refused("session_unconfirmed"))),
            ("not_found", Count(refused("session_not_found"))),
            ("false_404s", Count(tally.false_404s)),
            ("recovered", Count(tally.recovered)),
            ("detection_ms_p99", Millis(tally.detection)),
            (
                "refusal_ms_p99",
                Millis(p99(refusals().map(|refusal| refusal.took))),
            ),
            ("first_404_ms", Millis(first_404)),
        ],
        broken: tally.broken(variant),
    }
}

struct Tally {
    orphaned: usize,
    rehashed: usize,
    rehashed_of_living: usize,
    silent_losses: usize,
    diverged: usize,
    false_404s: usize,
    recovered: usize,
    never_told: usize,
    detection: Option<Duration>,
}

impl Tally {
    fn of(stories: &[Story]) -> Self {
        let sum = |of: fn(&Story) -> usize| stories.iter().map(of).sum();
        let count = |of: fn(&Story) -> bool| stories.iter().filter(|story| of(story)).count();
        Self {
            orphaned: count(|story| story.orphaned),
            rehashed: count(|story| story.misdirected.is_some()),
            rehashed_of_living: count(|story| story.misdirected.is_some() && !story.orphaned),
            silent_losses: sum(|story| story.silent_losses),
            diverged: count(|story| !story.whole),
            false_404s: sum(|story| story.false_404s),
            recovered: count(|story| story.misdirected.is_some() && story.whole),
            never_told: count(|story| story.misdirected.is_some() && story.told.is_none()),
            detection: p99(stories.iter().filter_map(|story| {
                Some(story.told?.saturating_duration_since(story.misdirected?))
            })),
        }
    }

    /// What should have been seen and was not, in words.
    fn broken(&self, variant: Variant) -> Vec<String> {
        let mut broken = Vec::new();
        let mut never = |seen: bool, what: String| {
            if seen {
                broken.push(what);
            }
        };
        let kinds = [
            self.rehashed_of_living,
            self.rehashed - self.rehashed_of_living,
        ];
        never(
            kinds.contains(&0),
            format!("misdirected sessions of living and of crashed instances: {kinds:?}"),
        );
        if variant == Variant::Unguarded {
            never(
                self.silent_losses == 0,
                "nothing was lost in silence".into(),
            );
            return broken;
        }
        let none_of = [
            (self.silent_losses, "calls were lost in silence"),
            (self.diverged, "notebooks are not what was written"),
            (self.never_told, "misdirected sessions were never told"),
            (
                self.false_404s,
                "times 404 was said of a session that lives",
            ),
            (
                self.rehashed - self.recovered,
                "misdirected sessions did not recover",
            ),
        ];
        for (count, what) in none_of {
            never(count > 0, format!("{count} {what}"));
        }
        never(
            self.detection.is_none_or(|time| time >= DETECTION_LIMIT),
            format!(
                "detection took {:?}, the limit is {DETECTION_LIMIT:?}",
                self.detection
            ),
        );
        broken
    }
}

/// The least value that no more than 1 % of them exceed.
fn p99(times: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    let rank = (times.len() * 99).div_ceil(100);
    times.get(rank.checked_sub(1)?).copied()
}
