//! Who owns a session, cluster-wide: the contract.

use std::{future::Future, sync::Arc, time::Duration};

use super::StoreError;
use crate::session::{Fence, Incarnation, InstanceId, SessionId, SessionRecord, SessionTerms};

/// The directory of sessions that all instances share.
///
/// # Contract
///
/// - **Atomic verbs.** Each call happens at one moment or not at all; a back end never reads and then writes.
/// - **Proofs.** [`Lookup::Absent`], [`Lookup::Orphaned`] and [`Lookup::Terminated`] are returned only when they
///   are known to be true. Anything doubtful is an error.
/// - **One clock.** Leases and retentions are counted on the directory's own clock.
/// - **Recovering.** A directory that may have forgotten something (it restarted empty, or a replica was
///   promoted) begins a new [`Incarnation`] and is *recovering* for the length of the longest lease it grants.
///   Until that is over nothing is absent and nothing is orphaned: both are
///   [`StoreErrorKind::Recovering`](super::StoreErrorKind::Recovering).
/// - **Lost replies.** A call whose reply was lost may have happened. Asking again must recognise what is already
///   so: a session registered, claimed or taken over by the caller counts as the caller's.
/// - **Cancel safety.** A call whose future is dropped may or may not have happened, and nothing else.
///
/// The suite in `store::contract` (feature `test-util`) checks every rule on any back end.
pub trait SessionDirectory: Send + Sync + 'static {
    /// Who owns this session?
    ///
    /// # Errors
    ///
    /// [`StoreError`] whenever the answer is not known; never a guess.
    fn lookup(&self, id: &SessionId) -> impl Future<Output = Result<Lookup, StoreError>> + Send;

    /// Records a new session as owned by `owner`, if its lease is live. Never overwrites and never revives.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; with [`Full`](super::StoreErrorKind::Full) when there is no room.
    fn register(
        &self,
        id: &SessionId,
        owner: &InstanceId,
        terms: &SessionTerms,
    ) -> impl Future<Output = Result<Registered, StoreError>> + Send;

    /// Proves a new or lapsed instance's table again, and creates its lease. The only verb that does.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the instance then has proven nothing.
    fn claim(
        &self,
        claim: &Claim<'_>,
    ) -> impl Future<Output = Result<ClaimReply, StoreError>> + Send;

    /// Extends a live lease, or says that there is none. It never makes one.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the lease may or may not have been extended.
    fn heartbeat(
        &self,
        instance: &InstanceId,
    ) -> impl Future<Output = Result<Heartbeat, StoreError>> + Send;

    /// Takes over an [`Externalized`](crate::session::Residency::Externalized) session under a higher fence, if
    /// its fence is still `seen` and its owner's lease has lapsed (or its owner is the caller), and the caller's
    /// lease is live.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the session may have been taken over.
    fn take_over(
        &self,
        id: &SessionId,
        seen: Fence,
        by: &InstanceId,
    ) -> impl Future<Output = Result<TakeOver, StoreError>> + Send;

    /// Leaves a tombstone in the place of a session, if its fence is still `seen` and its owner's lease has
    /// lapsed.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the session may have been buried.
    fn bury(
        &self,
        id: &SessionId,
        seen: Fence,
    ) -> impl Future<Output = Result<Bury, StoreError>> + Send;

    /// Slides the retention of sessions that `owner` served, and returns those that are no longer its own.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; any of them may have been touched.
    fn touch(
        &self,
        owner: &InstanceId,
        ids: &[SessionId],
    ) -> impl Future<Output = Result<Vec<SessionId>, StoreError>> + Send;

    /// Ends a session and leaves a tombstone. With a fence, only while the session has that fence; without one
    /// whatever its fence is, which only a client's own wish may do. The guard always gives the fence that it served
    /// the DELETE under: one that lands late must not end what somebody else has taken over meanwhile.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the session may have been ended.
    fn terminate(
        &self,
        id: &SessionId,
        fence: Option<Fence>,
    ) -> impl Future<Output = Result<Terminated, StoreError>> + Send;

    /// Ends an instance's lease at once. What it still owned is orphaned.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the lease then ends by itself.
    fn leave(&self, instance: &InstanceId) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What a directory knows of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lookup {
    /// A live instance owns it.
    Owned {
        /// The record.
        record: SessionRecord,
        /// Where its owner says that it can be reached.
        address: Option<Arc<str>>,
    },
    /// Its owner's lease has lapsed. A proof.
    Orphaned(SessionRecord),
    /// It was ended or buried. A proof.
    Terminated,
    /// No such session exists anywhere. A proof.
    Absent,
}

/// What came of [`register`](SessionDirectory::register).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Registered {
    /// It is recorded, under this fence.
    Recorded(Fence),
    /// There is a session or a tombstone of that id already, and it is not the caller's.
    Occupied,
    /// The caller has no live lease.
    NoLease,
}

/// How an instance stands when it claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Its lease lapsed, or it never had one: somebody else may have acted in the meantime.
    Lapsed,
    /// Its lease never lapsed by its own count; the directory's memory did.
    Unbroken,
}

/// A batch of sessions that an instance says it owns.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Claim<'a> {
    /// Who claims.
    pub instance: &'a InstanceId,
    /// How long a lease it wants.
    pub lease: Duration,
    /// Where it can be reached by its peers.
    pub address: Option<&'a str>,
    /// How it stands.
    pub standing: Standing,
    /// What it says it owns.
    pub sessions: &'a [ClaimedSession],
    /// Tombstones that it wrote and repeats, for a directory that may have forgotten them. They win over every
    /// claim. A directory that is not recovering need not look at them.
    pub tombstones: &'a [SessionId],
}

impl<'a> Claim<'a> {
    /// A claim of nothing, which is how a new instance gets its lease.
    #[must_use]
    pub fn new(instance: &'a InstanceId, lease: Duration) -> Self {
        Self {
            instance,
            lease,
            address: None,
            standing: Standing::Lapsed,
            sessions: &[],
            tombstones: &[],
        }
    }
}

/// One session in a [`Claim`]: everything a directory needs to know it again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ClaimedSession {
    /// Its id.
    pub id: SessionId,
    /// The fence that it was last proven under.
    pub fence: Fence,
    /// What was fixed when it was opened.
    pub terms: SessionTerms,
}

impl ClaimedSession {
    /// A claim on one session.
    #[must_use]
    pub fn new(id: SessionId, fence: Fence, terms: SessionTerms) -> Self {
        Self { id, fence, terms }
    }
}

/// The directory's reply to a [`Claim`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimReply {
    /// The incarnation that replied.
    pub incarnation: Incarnation,
    /// How long a lease it granted, counted from no later than when the claim was sent.
    pub lease: Duration,
    /// What came of each session, in the order of the claim.
    pub sessions: Vec<Claimed>,
}

impl ClaimReply {
    /// A reply from its parts; for back ends.
    #[must_use]
    pub fn new(incarnation: Incarnation, lease: Duration, sessions: Vec<Claimed>) -> Self {
        Self {
            incarnation,
            lease,
            sessions,
        }
    }
}

/// What came of one claimed session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claimed {
    /// It is the claimant's, under this fence.
    Held(Fence),
    /// It is noted, but a better claim may yet come: the directory is recovering and the claimant's lease had
    /// lapsed. It must not be served before a later claim says [`Held`](Self::Held).
    Noted,
    /// It was ended or buried.
    Buried,
    /// Another instance has it, or had it since.
    Taken,
    /// The directory does not know it. It is gone, and must not be registered again.
    Absent,
}

/// The directory's reply to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Heartbeat {
    /// The incarnation that replied. One that the instance has not claimed under means that the directory may
    /// have forgotten its sessions.
    pub incarnation: Incarnation,
    /// Whether there was a live lease to extend.
    pub extended: bool,
}

impl Heartbeat {
    /// A reply from its parts; for back ends.
    #[must_use]
    pub fn new(incarnation: Incarnation, extended: bool) -> Self {
        Self {
            incarnation,
            extended,
        }
    }
}

/// What came of [`take_over`](SessionDirectory::take_over).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TakeOver {
    /// The caller owns it, under this fence.
    Taken(Fence),
    /// Its fence or its owner is not what the caller saw; look again.
    Lost,
    /// The caller has no live lease.
    NoLease,
}

/// What came of [`bury`](SessionDirectory::bury).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bury {
    /// There is a tombstone now.
    Buried,
    /// Its fence or its owner is not what the caller saw; look again.
    Lost,
}

/// What came of [`terminate`](SessionDirectory::terminate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Terminated {
    /// There is a tombstone now, or was one already.
    Ended,
    /// There is no such session.
    Absent,
    /// The session has another fence; it was left alone.
    Fenced,
}
