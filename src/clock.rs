//! The clock that leases are counted on: one that runs on while the machine is suspended.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A point on a [`Clock`], in nanoseconds since an origin that only that clock knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin of the clock.
    pub const ORIGIN: Self = Self(0);

    /// The point this many nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long `earlier` is ago; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// As [`since`](Self::since), in nanoseconds: a [`Duration`] costs a division to make.
    #[inline]
    pub(crate) fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This point plus `duration`, as late as the clock can count.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// This point less `duration`, the origin at the earliest.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// Where an [`Instance`](crate::instance::Instance) reads the time that its lease is counted on.
///
/// It must never run back, and must run on while the machine is suspended: a lease that slept with its owner
/// would be believed after the directory gave the session away.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The present.
    fn now(&self) -> Timestamp;
}

/// The system's suspend-proof clock: `CLOCK_BOOTTIME` on Linux and Android.
///
/// Elsewhere the standard library's monotonic clock, which on Windows and macOS may stop while the machine
/// sleeps; instances on such a machine must not be suspended.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Timestamp {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // Neither part is negative on this clock.
        Timestamp((time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn now(&self) -> Timestamp {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let origin = *ORIGIN.get_or_init(std::time::Instant::now);
        Timestamp::ORIGIN.after(origin.elapsed())
    }
}

/// Tokio's clock, which stands still and jumps under `tokio::time::pause`; for tests.
///
/// Its origin is the moment it was made. Clones share it. It must be read inside the runtime whose time is
/// paused, so it goes with [`Heartbeats::OnRuntime`](crate::instance::Heartbeats::OnRuntime).
#[derive(Debug, Clone)]
pub struct TokioClock(tokio::time::Instant);

impl TokioClock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::ORIGIN.after(self.0.elapsed())
    }
}

/// A clock that a test turns by hand.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock at its origin.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Turns the clock forward.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let at = Timestamp::from_nanos(5);
        assert_eq!(at.after(Duration::MAX).as_nanos(), u64::MAX);
        assert_eq!(at.before(Duration::from_secs(1)), Timestamp::ORIGIN);
        assert_eq!(at.since(at.after(Duration::from_secs(1))), Duration::ZERO);
    }

    #[test]
    fn the_system_clock_runs_forward() {
        let (first, then) = (SystemClock.now(), SystemClock.now());
        assert!(first > Timestamp::ORIGIN && then >= first);
    }
}
