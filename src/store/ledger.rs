//! [`RequestLedger`]: which keyed requests ran, and what came of them.

use std::{fmt, future::Future, time::Duration};

use bytes::Bytes;

use super::StoreError;

/// The record of keyed requests that all instances share.
///
/// A key is *begun* before its request is dispatched and *completed* with what came of it. Whoever asks in between is
/// told that it is running; whoever asks later gets the outcome. A claim whose holder died without a word is
/// *unknown*, for nobody can tell how far it came.
///
/// # Contract
///
/// - **Atomic verbs.** Each call happens at one moment or not at all; a back end never reads and then writes. Of any
///   number of attempts to begin one key exactly one is told [`Begun::Fresh`].
/// - **A claim is its token's.** [`renew`](Self::renew), [`complete`](Self::complete) and [`release`](Self::release)
///   are compare-and-set on the token, so a holder that lost its claim changes nothing.
/// - **Lapsed is not released.** A claim whose lease ran out without an outcome is [`Begun::OutcomeUnknown`] for as
///   long as outcomes are kept, and never fresh, unless whoever asks says that it may run again
///   ([`KeyClaim::may_run_again`]). `complete` is taken after a lapse if nobody has claimed the key since.
/// - **Lost replies.** A call whose reply was lost may have happened, and each verb can be repeated: a begin with the
///   token that holds the claim is `Fresh` again, a completion with the same token is acknowledged again, and so is a
///   release.
/// - **A released token is spent.** After [`release`](Self::release) was acknowledged, a begin of the same token that
///   was under way takes nothing: it is [`Fenced`](super::StoreErrorKind::Fenced) for as long as its lease would have
///   been.
/// - **The first fingerprint counts.** A key that is known with another one is [`Begun::Conflict`], whatever its state.
/// - **Recovering.** A ledger that may have forgotten something (it restarted empty, or a replica was promoted) answers
///   [`Recovering`](super::StoreErrorKind::Recovering) for every key that it has not seen since, for as long as clients
///   are expected to retry. A claim that is renewed or completed meanwhile is written again.
/// - **Nothing in progress is evicted,** and nothing that ran is forgotten before its time. Where there is no room for
///   another key, a begin is [`Full`](super::StoreErrorKind::Full).
///
/// A back end runs the suite in `store::contract` (feature `test-util`).
///
/// # Cancel safety
///
/// A dropped call may have happened or not.
pub trait RequestLedger: Send + Sync + 'static {
    /// Claims a key, or says what is known of it.
    ///
    /// # Errors
    ///
    /// Whatever kept the ledger from knowing; the key may have been claimed, and is then recognised by its token.
    fn begin(&self, claim: &KeyClaim) -> impl Future<Output = Result<Begun, StoreError>> + Send;

    /// Extends a claim by its lease, from now on.
    ///
    /// # Errors
    ///
    /// Whatever kept the ledger from knowing; the claim may have been extended.
    fn renew(&self, claim: &KeyClaim) -> impl Future<Output = Result<Held, StoreError>> + Send;

    /// Records what came of a claim. An outcome replaces [`Outcome::Unknown`] of the same token, and nothing else.
    ///
    /// # Errors
    ///
    /// Whatever kept the ledger from knowing; the outcome may have been recorded.
    fn complete(
        &self,
        claim: &KeyClaim,
        outcome: &Outcome,
    ) -> impl Future<Output = Result<Held, StoreError>> + Send;

    /// Gives a claim back whose request did not run. The key is then as if it had never been begun.
    ///
    /// Acknowledged also when the token holds no claim (any more).
    ///
    /// # Errors
    ///
    /// Whatever kept the ledger from knowing; the claim may have been given back.
    fn release(&self, claim: &KeyClaim) -> impl Future<Output = Result<(), StoreError>> + Send;
}

macro_rules! digest {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// The digest with these bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The bytes of the digest.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:02x}{:02x}…)"), self.0[0], self.0[1])
            }
        }
    };
}

digest! {
    /// Which key, of whom: a digest of the scope and of the key that the client chose, so that neither is in the store.
    RequestKey
}
digest! {
    /// What was asked under a key: a digest of the request.
    Fingerprint
}
digest! {
    /// Where a request ran: a digest of its session.
    Origin
}

/// Tells one attempt to run a request from every other, on all instances.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimToken(u128);

impl ClaimToken {
    /// The token with this number. Whoever makes one makes it so that nobody else makes the same.
    #[must_use]
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }

    /// The number behind the token.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimToken({:032x})", self.0)
    }
}

/// A claim on a key: everything that a ledger which lost its memory needs to write it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyClaim {
    /// Which key.
    pub key: RequestKey,
    /// What was asked under it.
    pub fingerprint: Fingerprint,
    /// The session that it runs in, if there is one.
    pub origin: Option<Origin>,
    /// Whose claim it is.
    pub token: ClaimToken,
    /// How long the claim holds after it was last renewed.
    pub lease: Duration,
    /// Whether the request may run although an earlier run may have happened: twice is the same as once.
    pub may_run_again: bool,
    /// Which attempt to run it this is, as [`Begun::Fresh`] said. Ignored by [`begin`](RequestLedger::begin).
    pub attempt: u32,
}

impl KeyClaim {
    /// A first claim on a key by a request that must not run twice.
    #[must_use]
    pub fn new(
        key: RequestKey,
        fingerprint: Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Self {
        Self {
            key,
            fingerprint,
            origin: None,
            token,
            lease,
            may_run_again: false,
            attempt: 1,
        }
    }

    /// Sets the session that it runs in.
    #[must_use]
    pub fn with_origin(mut self, origin: impl Into<Option<Origin>>) -> Self {
        self.origin = origin.into();
        self
    }

    /// Sets whether it may run although an earlier run may have happened.
    #[must_use]
    pub fn with_may_run_again(mut self, may: bool) -> Self {
        self.may_run_again = may;
        self
    }
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Begun {
    /// The claim is the caller's.
    Fresh {
        /// How often a run of the request was begun, this one included.
        attempt: u32,
    },
    /// Somebody else's claim is good.
    InFlight,
    /// It ran.
    Completed {
        /// The session that it ran in.
        origin: Option<Origin>,
        /// What came of it; `None` when it is known to have run, and what came of it was not kept.
        reply: Option<Reply>,
    },
    /// The key is known with another fingerprint.
    Conflict,
    /// A claim ran out, or was given up, without an outcome: it may have run.
    OutcomeUnknown,
}

/// What a compare-and-set on a claim's token found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Held {
    /// The claim was the caller's, and is as the call says.
    Yes,
    /// The key is somebody else's now, or the claim is over: nothing was changed.
    Superseded,
    /// The ledger does not know the key: nothing was changed.
    Absent,
}

/// What came of a request that ran, or of the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It was answered.
    Reply(Reply),
    /// It ran, and the answer is too large to be kept.
    TooLarge,
    /// It may have run.
    Unknown,
}

/// A JSON-RPC answer without its id.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The text of its `result`.
    Result(Bytes),
    /// The text of its `error`.
    Error(Bytes),
}

impl Reply {
    /// The JSON text.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        match self {
            Self::Result(text) | Self::Error(text) => text,
        }
    }

    /// The name of the member that it stands in.
    #[must_use]
    pub const fn member(&self) -> &'static str {
        match self {
            Self::Result(_) => "result",
            Self::Error(_) => "error",
        }
    }
}
