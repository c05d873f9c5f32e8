//! How the suite of request ledgers drives a back end, and the moves that many of its cases begin with.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;

use crate::{
    session::Epoch,
    store::{
        Begun, ClaimToken, Fingerprint, Held, KeyClaim, Outcome, Reply, RequestKey, RequestLedger,
        StoreError, StoreErrorKind,
    },
};

/// How the suite drives a back end's ledger.
pub trait LedgerHarness: Sized + Send + Sync + 'static {
    /// The back end.
    type Ledger: RequestLedger;

    /// An empty ledger that is not recovering.
    fn start(times: LedgerTimes) -> impl Future<Output = Self>;

    /// The ledger.
    fn ledger(&self) -> &Self::Ledger;

    /// Lets the ledger's clock run on by `time`.
    fn pass(&self, time: Duration) -> impl Future<Output = ()>;

    /// Has the ledger restart empty.
    fn lose_memory(&self) -> impl Future<Output = ()>;
}

/// What a ledger is to be told about time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LedgerTimes {
    /// How long it is remembered that a request ran, and what came of it.
    pub outcomes: Duration,
    /// How long after a loss of memory no new key is taken.
    pub retry_horizon: Duration,
}

/// Makes a `#[tokio::test]` of each case of the contract of request ledgers, for one
/// [`LedgerHarness`](crate::store::contract::LedgerHarness).
#[macro_export]
macro_rules! ledger_contract {
    ($harness:ty) => {
        $crate::ledger_contract!(@cases $harness:
            a_key_is_fresh_once
            of_many_at_once_one_is_fresh
            keys_are_independent
            another_fingerprint_is_a_conflict_whatever_the_state
            a_begin_whose_reply_was_lost_is_recognised
            an_outcome_is_kept_as_it_was
            an_outcome_is_kept_with_its_origin
            a_completion_is_acknowledged_again
            what_was_too_large_is_known_to_have_run
            a_claim_that_is_renewed_does_not_lapse
            a_lapsed_claim_is_unknown_and_never_fresh
            a_lapsed_claim_may_be_renewed_if_nobody_claimed_it
            a_lapsed_claim_may_be_completed_if_nobody_claimed_it
            what_was_given_up_is_unknown_at_once
            an_unknown_outcome_is_replaced_by_its_own_claims_only
            a_request_that_may_run_again_is_fresh_after_an_unknown_outcome
            a_request_that_may_run_again_waits_for_the_one_that_runs
            a_claim_that_was_taken_changes_nothing
            a_released_key_is_as_if_it_had_never_been
            a_release_is_its_tokens_only
            a_release_is_acknowledged_again
            a_release_undoes_no_outcome
            a_begin_that_comes_after_its_release_takes_nothing
            outcomes_are_kept_for_their_time_and_no_longer
            an_unknown_outcome_is_kept_for_as_long
            recovering_what_was_not_seen_since_is_not_fresh
            recovering_a_claim_is_written_again_by_its_renewal
            recovering_a_claim_is_written_again_by_its_completion
            recovering_ends
            outside_a_recovery_a_renewal_makes_nothing
        );
    };
    (@cases $harness:ty: $($case:ident)+) => {
        $(
            #[tokio::test]
            async fn $case() {
                $crate::store::contract::cases::$case::<$harness>().await;
            }
        )+
    };
}

/// Long enough for a case on a slow back end, and short enough to wait for.
pub(super) const LEASE: Duration = Duration::from_secs(5);
pub(super) const OUTCOMES: Duration = Duration::from_secs(30);
pub(super) const HORIZON: Duration = Duration::from_secs(15);

/// A ledger, and the moves on it.
pub(super) struct Book<H>(pub(super) H);

impl<H: LedgerHarness> Book<H> {
    pub(super) async fn open() -> Self {
        Self(
            H::start(LedgerTimes {
                outcomes: OUTCOMES,
                retry_horizon: HORIZON,
            })
            .await,
        )
    }

    pub(super) async fn try_begin(&self, claim: &KeyClaim) -> Result<Begun, StoreError> {
        self.0.ledger().begin(claim).await
    }

    pub(super) async fn begin(&self, claim: &KeyClaim) -> Begun {
        self.try_begin(claim).await.expect("begin")
    }

    /// A claim that is granted.
    pub(super) async fn claimed(&self, key: u8) -> KeyClaim {
        let claim = claim(key);
        assert_eq!(self.begin(&claim).await, FRESH);
        claim
    }

    pub(super) async fn renew(&self, claim: &KeyClaim) -> Held {
        self.0.ledger().renew(claim).await.expect("renew")
    }

    pub(super) async fn complete(&self, claim: &KeyClaim, outcome: &Outcome) -> Held {
        let completed = self.0.ledger().complete(claim, outcome).await;
        completed.expect("complete")
    }

    pub(super) async fn release(&self, claim: &KeyClaim) {
        self.0.ledger().release(claim).await.expect("release");
    }

    pub(super) async fn pass(&self, time: Duration) {
        self.0.pass(time).await;
    }

    /// What somebody else is told of the key now.
    pub(super) async fn ask(&self, key: u8) -> Begun {
        self.begin(&claim(key)).await
    }

    pub(super) async fn is_recovering(&self, claim: &KeyClaim) -> bool {
        match self.try_begin(claim).await {
            Err(error) => error.kind() == StoreErrorKind::Recovering,
            Ok(_) => false,
        }
    }
}

pub(super) const FRESH: Begun = Begun::Fresh { attempt: 1 };

pub(super) fn claim(key: u8) -> KeyClaim {
    asking(key, 0)
}

/// A claim with a token of its own for something else.
pub(super) fn asking(key: u8, what: u8) -> KeyClaim {
    static TOKENS: AtomicU64 = AtomicU64::new(0);
    let run = Epoch::mint().expect("randomness").as_u128();
    let number = TOKENS.fetch_add(1, Ordering::Relaxed);
    KeyClaim::new(
        RequestKey::from_bytes([key; 32]),
        Fingerprint::from_bytes([what; 32]),
        ClaimToken::from_u128(run ^ u128::from(number)),
        LEASE,
    )
}

pub(super) fn result(text: &'static str) -> Outcome {
    Outcome::Reply(Reply::Result(Bytes::from_static(text.as_bytes())))
}

pub(super) fn completed(outcome: &Outcome) -> Begun {
    let reply = match outcome {
        Outcome::Reply(reply) => Some(reply.clone()),
        Outcome::TooLarge | Outcome::Unknown => None,
    };
    Begun::Completed {
        origin: None,
        reply,
    }
}
