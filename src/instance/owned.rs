//! One session of the own table, and how it stands.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use event_listener::{Event, EventListener};

use crate::{
    clock::Timestamp,
    session::{Fence, SessionId, SessionTerms},
};

/// One session of the own table.
///
/// `word` holds everything that the hot path has to know in one atomic: how many calls and streams are running,
/// and flags that send a request the slow way. What the hot path reads comes first and lies together, for among
/// many sessions it is the way to memory that takes the time.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct OwnedSession {
    word: AtomicU64,
    generation: AtomicU64,
    active: AtomicU64,
    touched: AtomicU64,
    key: Key,
    pub(crate) terms: SessionTerms,
    pub(crate) opened: Timestamp,
    fence: Mutex<Fence>,
    changed: Event,
}

/// The id where it is compared, which is one way to memory less than behind a pointer. A UUID is short.
#[derive(Debug)]
enum Key {
    Short { len: u8, text: [u8; SHORT] },
    Long(SessionId),
}

const SHORT: usize = 38;

impl Key {
    fn new(id: SessionId) -> Self {
        let bytes = id.as_str().as_bytes();
        let mut text = [0; SHORT];
        match (text.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(bytes);
                Self::Short { len, text }
            }
            _ => Self::Long(id),
        }
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, text } => &text[..usize::from(*len).min(SHORT)],
            Self::Long(id) => id.as_str().as_bytes(),
        }
    }
}

const CALL: u64 = 1;
const STREAM: u64 = 1 << 28;
const CALLS: u64 = STREAM - 1;
const RUNNING: u64 = (1 << 56) - 1;
const LOST: u64 = 1 << 63;
const ENDED: u64 = 1 << 62;
const UNRESTORED: u64 = 1 << 61;
const RESTORING: u64 = 1 << 60;
const UNSEALED: u64 = 1 << 59;

/// What runs on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Running {
    /// A POST: work that a retiring instance waits for.
    Call,
    /// A GET: open for as long as both sides like.
    Stream,
}

impl Running {
    fn unit(self) -> u64 {
        match self {
            Self::Call => CALL,
            Self::Stream => STREAM,
        }
    }
}

/// What the flags of a session say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Good,
    /// Taken over, and the inner service has not yet rehydrated it.
    Unrestored,
    /// Ended here; its tombstone may still be on the way.
    Ended,
    /// Somebody else's now, or nobody's.
    Lost,
}

impl Condition {
    /// Neither ended nor lost.
    #[inline]
    pub(crate) fn is_alive(self) -> bool {
        matches!(self, Self::Good | Self::Unrestored)
    }

    #[inline]
    fn of(word: u64) -> Self {
        if word & LOST != 0 {
            Self::Lost
        } else if word & ENDED != 0 {
            Self::Ended
        } else if word & UNRESTORED != 0 {
            Self::Unrestored
        } else {
            Self::Good
        }
    }
}

impl OwnedSession {
    pub(crate) fn new(
        id: SessionId,
        terms: SessionTerms,
        fence: Fence,
        generation: u64,
        now: Timestamp,
        restored: bool,
    ) -> Self {
        Self {
            key: Key::new(id),
            terms,
            opened: now,
            fence: Mutex::new(fence),
            generation: AtomicU64::new(generation),
            active: AtomicU64::new(now.as_nanos()),
            touched: AtomicU64::new(now.as_nanos()),
            word: AtomicU64::new(if restored { 0 } else { UNRESTORED | UNSEALED }),
            changed: Event::new(),
        }
    }

    /// The id; a copy, for whoever speaks of the session.
    pub(crate) fn id(&self) -> SessionId {
        match &self.key {
            Key::Long(id) => id.clone(),
            Key::Short { .. } => SessionId::of_owned(self.id_bytes()),
        }
    }

    #[inline]
    pub(crate) fn id_bytes(&self) -> &[u8] {
        self.key.as_bytes()
    }

    pub(crate) fn fence(&self) -> Fence {
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Proven again, perhaps under a higher fence.
    pub(crate) fn prove(&self, fence: Fence, generation: u64) {
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner) = fence;
        self.generation.store(generation, Ordering::Release);
        self.changed.notify(usize::MAX);
    }

    /// Counts something as running; says how the session stands, and whether anything else runs on it.
    #[inline]
    pub(crate) fn enter(&self, running: Running) -> (Condition, bool) {
        let before = self.word.fetch_add(running.unit(), Ordering::AcqRel);
        (Condition::of(before), before & RUNNING != 0)
    }

    #[inline]
    pub(crate) fn exit(&self, running: Running, seen: Timestamp) {
        self.active_at(seen);
        self.word.fetch_sub(running.unit(), Ordering::AcqRel);
    }

    pub(crate) fn condition(&self) -> Condition {
        Condition::of(self.word.load(Ordering::Acquire))
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.condition() == Condition::Lost
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.word.load(Ordering::Acquire) & ENDED != 0
    }

    pub(crate) fn is_unrestored(&self) -> bool {
        self.word.load(Ordering::Acquire) & UNRESTORED != 0
    }

    pub(crate) fn calls(&self) -> u64 {
        self.word.load(Ordering::Acquire) & CALLS
    }

    fn is_running(&self) -> bool {
        self.word.load(Ordering::Acquire) & RUNNING != 0
    }

    /// No activity is older than what was seen already.
    #[inline]
    pub(crate) fn active_at(&self, now: Timestamp) {
        // A plain store: two requests that race differ by less than the heartbeat that looks at this.
        if self.active.load(Ordering::Relaxed) < now.as_nanos() {
            self.active.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Whether nothing was seen of it for `limit` nanoseconds.
    #[inline]
    pub(crate) fn is_idle(&self, now: Timestamp, limit: u64) -> bool {
        let active = Timestamp::from_nanos(self.active.load(Ordering::Relaxed));
        now.nanos_since(active) >= limit
    }

    /// Whether the directory, which keeps a record for `kept` nanoseconds after a touch, must still have this one.
    #[inline]
    pub(crate) fn is_kept(&self, now: Timestamp, kept: u64) -> bool {
        let touched = Timestamp::from_nanos(self.touched.load(Ordering::Relaxed));
        now.nanos_since(touched) < kept
    }

    /// What the heartbeat does: running work is activity. Returns whether the session was active since the
    /// last acknowledged touch.
    pub(crate) fn refresh(&self, now: Timestamp) -> bool {
        if self.is_running() {
            self.active_at(now);
        }
        self.active.load(Ordering::Relaxed) > self.touched.load(Ordering::Relaxed)
    }

    /// A touch that was sent at `sent` was acknowledged.
    pub(crate) fn touched_at(&self, sent: Timestamp) {
        self.touched.store(sent.as_nanos(), Ordering::Relaxed);
        // Whoever waited because the directory might have dropped the record need not any more.
        self.changed.notify(usize::MAX);
    }

    /// Ends it if nothing runs on it, so that no request can slip in between the decision and the tombstone.
    pub(crate) fn end_if_quiet(&self) -> bool {
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (word & RUNNING == 0).then_some(word | ENDED)
            })
            .is_ok()
    }

    pub(crate) fn end(&self) {
        self.set(ENDED);
    }

    pub(crate) fn lose(&self) {
        self.generation.store(0, Ordering::Release);
        self.set(LOST);
    }

    fn set(&self, flag: u64) {
        self.word.fetch_or(flag, Ordering::AcqRel);
        self.changed.notify(usize::MAX);
    }

    /// Whether streams of an older grant may still be written to by whoever held it.
    #[inline]
    pub(crate) fn is_unsealed(&self) -> bool {
        self.word.load(Ordering::Acquire) & UNSEALED != 0
    }

    /// The streams of older grants were sealed.
    pub(crate) fn sealed(&self) {
        self.word.fetch_and(!UNSEALED, Ordering::AcqRel);
    }

    /// Makes the caller the one that has the inner service rehydrate the session.
    pub(crate) fn begin_restore(&self) -> bool {
        let before = self.word.fetch_or(RESTORING, Ordering::AcqRel);
        before & RESTORING == 0 && before & UNRESTORED != 0
    }

    pub(crate) fn end_restore(&self, restored: bool) {
        let flags = if restored {
            RESTORING | UNRESTORED
        } else {
            RESTORING
        };
        self.word.fetch_and(!flags, Ordering::AcqRel);
        self.changed.notify(usize::MAX);
    }

    /// Wakes everything that listens, for a change that is not the session's own.
    pub(crate) fn notify(&self) {
        self.changed.notify(usize::MAX);
    }

    /// Wakes at the next change of the proof or the flags; look again after making it.
    pub(crate) fn listen(&self) -> EventListener {
        self.changed.listen()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Incarnation, Residency};

    fn session(restored: bool) -> OwnedSession {
        OwnedSession::new(
            SessionId::parse("a").unwrap(),
            SessionTerms::new(Residency::Externalized),
            Fence::new(Incarnation::new(1, 1), 1),
            1,
            Timestamp::ORIGIN,
            restored,
        )
    }

    #[test]
    fn a_session_with_work_on_it_is_not_ended_for_idleness() {
        let session = session(true);
        assert_eq!(session.enter(Running::Stream), (Condition::Good, false));
        assert!(!session.end_if_quiet());
        session.exit(Running::Stream, Timestamp::ORIGIN);
        assert!(session.end_if_quiet());
        assert_eq!(session.enter(Running::Call), (Condition::Ended, false));
    }

    #[test]
    fn one_restorer_at_a_time() {
        let session = session(false);
        assert!(session.begin_restore());
        assert!(!session.begin_restore());
        session.end_restore(false);
        assert!(session.begin_restore());
        session.end_restore(true);
        assert!(!session.begin_restore());
    }

    #[test]
    fn an_id_of_any_length_comes_back() {
        for length in [1, 36, SHORT, SHORT + 1, 300] {
            let id = SessionId::parse("x".repeat(length)).unwrap();
            let key = Key::new(id.clone());
            assert_eq!(key.as_bytes(), id.as_str().as_bytes());
            assert_eq!(matches!(key, Key::Long(_)), length > SHORT);
            let terms = SessionTerms::new(Residency::Pinned);
            let fence = Fence::new(Incarnation::new(1, 1), 1);
            let session = OwnedSession::new(id.clone(), terms, fence, 1, Timestamp::ORIGIN, true);
            assert_eq!(session.id(), id);
        }
    }

    #[test]
    fn calls_and_streams_are_counted_apart() {
        let session = session(true);
        session.enter(Running::Stream);
        assert_eq!(session.enter(Running::Call), (Condition::Good, true));
        assert_eq!(session.calls(), 1);
        session.exit(Running::Call, Timestamp::ORIGIN);
        session.lose();
        assert_eq!(session.calls(), 0);
        assert_eq!(session.enter(Running::Call), (Condition::Lost, true));
    }
}
