//! One request or body that is being served: the hot path's look in the own table, and the proof it rests on.

use std::{fmt, sync::Arc};

use super::{
    Shared,
    owned::{Condition, OwnedSession, Running},
};
use crate::{clock::Timestamp, session::Fence};

/// Something that runs on a session, counted from admission until it is dropped.
pub(crate) struct Serving {
    session: Arc<OwnedSession>,
    running: Running,
    seen: Timestamp,
}

/// What the own table says of a session.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Owned here, and provably.
    Proven(Serving),
    /// Owned here, provably, and taken over from another instance that the inner service knew it from.
    Unrestored(Serving),
    /// In the table, but the lease has lapsed since it was proven.
    Unproven,
    /// In the table, but idle past its limit, or ended with its tombstone still on the way.
    Over(Arc<OwnedSession>),
    /// Not in the table.
    Unknown,
}

/// Whether what is being served may still be shown to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The session is this instance's.
    Good,
    /// It is not known whose the session is. Hold on.
    Doubtful,
    /// The session is not this instance's any more.
    Lost,
}

impl Shared {
    /// Looks a session up and, if it is in the table, counts the request as running on it.
    #[inline]
    pub(crate) fn admit(&self, id: &[u8], running: Running) -> Admission {
        match self.table.get(id) {
            Some(session) => self.admit_to(session, running),
            None => Admission::Unknown,
        }
    }

    /// As [`admit`](Self::admit), for a session at hand.
    #[inline]
    pub(crate) fn admit_to(&self, session: Arc<OwnedSession>, running: Running) -> Admission {
        // Counted first: from here on the keeper will not find the session quiet and end it.
        let (condition, busy) = session.enter(running);
        let mut serving = Serving {
            session,
            running,
            seen: Timestamp::ORIGIN,
        };
        match condition {
            Condition::Lost => return Admission::Unknown,
            Condition::Ended => return Admission::Over(Arc::clone(&serving.session)),
            Condition::Good | Condition::Unrestored => {}
        }
        let lease = self.lease();
        let now = self.now();
        if !self.proves(&serving.session, lease, now) {
            return Admission::Unproven;
        }
        if !busy && serving.session.is_idle(now, self.times.idle) {
            return Admission::Over(Arc::clone(&serving.session));
        }
        serving.session.active_at(now);
        serving.seen = now;
        if condition == Condition::Unrestored {
            Admission::Unrestored(serving)
        } else {
            Admission::Proven(serving)
        }
    }
}

impl Shared {
    /// Whether the session is proven under this lease, and the directory must still have its record.
    ///
    /// A session may be ahead of the lease: the keeper carries what was proven all along over to the next generation
    /// before it shows that, and the old deadline is good until then.
    #[inline]
    fn proves(&self, session: &OwnedSession, lease: (u64, Timestamp), now: Timestamp) -> bool {
        let (generation, deadline) = lease;
        session.generation() >= generation
            && now < deadline
            && session.is_kept(now, self.times.kept)
    }
}

impl Serving {
    /// Looks at the proof again.
    #[inline]
    pub(crate) fn proof(&mut self, shared: &Shared) -> Proof {
        let mut lease = shared.lease();
        loop {
            let now = shared.now();
            if self.session.condition().is_alive() && shared.proves(&self.session, lease, now) {
                self.seen = now;
                return Proof::Good;
            }
            // The lease may have been extended since it was read; nobody would wake a body that missed it.
            let again = shared.lease();
            if again == lease {
                break;
            }
            lease = again;
        }
        match self.session.condition() {
            Condition::Lost => Proof::Lost,
            _ => Proof::Doubtful,
        }
    }

    /// Something else that runs on the same session, proven as far as this is.
    pub(crate) fn also(&self, running: Running) -> Self {
        self.session.enter(running);
        Self {
            session: Arc::clone(&self.session),
            running,
            seen: self.seen,
        }
    }

    /// The grant that this is served under.
    pub(crate) fn fence(&self) -> Fence {
        self.session.fence()
    }

    pub(crate) fn session(&self) -> &Arc<OwnedSession> {
        &self.session
    }
}

impl Drop for Serving {
    #[inline]
    fn drop(&mut self) {
        self.session.exit(self.running, self.seen);
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("session", &self.session.id())
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}
