//! One claim on its way: asked for, dispatched under, and settled, whatever happens to whoever holds it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

use super::{decide::Settlement, layer::Config};
use crate::{
    outbox::within,
    store::{Begun, KeyClaim, Outcome, Reply, RequestLedger, StoreError, StoreErrorKind},
};

/// The waits between two attempts to tell the ledger something that it must hear.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long a ledger that could not be reached is left alone before it is asked again.
const PAUSE: Duration = Duration::from_millis(20);
/// How many words to the ledger may be under way, and how many bytes of outcomes.
const MAX_UNRECORDED: usize = 65_536;
const MAX_UNRECORDED_BYTES: usize = 64 << 20;

/// A claim that is asked for or held. Dropped before it is settled, the ledger is told what is then true.
pub(super) struct Claimed {
    config: Arc<Config>,
    claim: KeyClaim,
    stage: Stage,
    runtime: Option<Handle>,
}

enum Stage {
    /// Nothing was dispatched.
    Begun,
    /// The inner service was asked.
    Dispatched,
    /// The ledger is being told.
    Telling(Word),
    Settled,
}

/// What the ledger has to hear.
enum Word {
    Complete(Outcome),
    Release,
}

impl Word {
    async fn tell(&self, config: &Config, claim: &KeyClaim) -> Result<(), StoreError> {
        match self {
            Self::Complete(outcome) => {
                let held = within(
                    config.store_deadline,
                    config.ledger.complete(claim, outcome),
                );
                let held = held.await?;
                if held != crate::store::Held::Yes {
                    tracing::warn!(?held, "the outcome of a call came too late to be recorded");
                }
                Ok(())
            }
            Self::Release => within(config.store_deadline, config.ledger.release(claim)).await,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Complete(Outcome::Reply(reply)) => reply.text().len(),
            Self::Complete(_) | Self::Release => 0,
        }
    }
}

/// What came of asking for a claim.
pub(super) enum Asked {
    Mine(Claimed),
    Told(Begun),
    Unknown(StoreErrorKind),
}

/// Claims a key, if it can be had.
///
/// # Cancel safety
///
/// Dropped half-way, a claim that may have been taken is given back in the background.
pub(super) async fn ask(config: &Arc<Config>, claim: KeyClaim) -> Asked {
    let mut claimed = Claimed {
        config: Arc::clone(config),
        claim,
        stage: Stage::Begun,
        runtime: Handle::try_current().ok(),
    };
    let mut deadline = None;
    loop {
        let told = within(config.store_deadline, config.ledger.begin(&claim)).await;
        match told {
            Ok(Begun::Fresh { attempt }) => {
                claimed.claim.attempt = attempt;
                claimed.hold();
                return Asked::Mine(claimed);
            }
            Ok(begun) => {
                claimed.stage = Stage::Settled;
                return Asked::Told(begun);
            }
            Err(error) => match error.kind() {
                // The token is recognised if the claim was taken and only the reply was lost.
                StoreErrorKind::Unavailable
                    if Instant::now()
                        < *deadline
                            .get_or_insert_with(|| Instant::now() + config.store_deadline) =>
                {
                    sleep(PAUSE).await;
                }
                kind @ (StoreErrorKind::Recovering
                | StoreErrorKind::Full
                | StoreErrorKind::Fenced) => {
                    // Said by a ledger that took nothing.
                    claimed.stage = Stage::Settled;
                    return Asked::Unknown(kind);
                }
                kind => return Asked::Unknown(kind),
            },
        }
    }
}

impl Claimed {
    fn hold(&self) {
        self.config.claims.hold(
            self.claim,
            &self.config.ledger,
            self.config.store_deadline,
            self.runtime.as_ref(),
        );
    }

    pub(super) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(super) fn claim(&self) -> &KeyClaim {
        &self.claim
    }

    /// Where its tasks run.
    pub(super) fn runtime(&self) -> Option<&Handle> {
        self.runtime.as_ref()
    }

    /// From now on the call may have run.
    pub(super) fn dispatched(&mut self) {
        self.stage = Stage::Dispatched;
    }

    /// Tells the ledger how it ended. Where that takes too long it goes on in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, it goes on in the background.
    pub(super) async fn settle(mut self, settlement: Settlement, reply: Option<Reply>) {
        let word = match (settlement, reply) {
            (Settlement::Record, Some(reply)) => Word::Complete(Outcome::Reply(reply)),
            (Settlement::RecordAsRun, _) => Word::Complete(Outcome::TooLarge),
            (Settlement::Release, _) => Word::Release,
            (Settlement::GiveUp | Settlement::Record, _) => Word::Complete(Outcome::Unknown),
        };
        self.stage = Stage::Telling(word);
        if let Stage::Telling(word) = &self.stage
            && let Err(error) = word.tell(&self.config, &self.claim).await
        {
            tracing::warn!(%error, "the ledger has not heard yet how a call ended");
            return;
        }
        self.stage = Stage::Settled;
        self.config.claims.let_go(self.claim.token);
        self.config.claims.ended();
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let word = match std::mem::replace(&mut self.stage, Stage::Settled) {
            Stage::Settled => return,
            Stage::Begun => Word::Release,
            Stage::Dispatched => Word::Complete(Outcome::Unknown),
            Stage::Telling(word) => word,
        };
        let telling = Telling::new(Arc::clone(&self.config), self.claim, word);
        match &self.runtime {
            Some(runtime) => {
                runtime.spawn(telling.run());
            }
            None => tracing::warn!("no runtime to tell the ledger how a call ended"),
        }
    }
}

/// A word that the ledger did not acknowledge, on a task of its own.
struct Telling {
    config: Arc<Config>,
    claim: KeyClaim,
    word: Word,
    bytes: usize,
    _work: Option<crate::instance::Work>,
}

impl Telling {
    fn new(config: Arc<Config>, claim: KeyClaim, mut word: Word) -> Self {
        let claims = &config.claims;
        if let Word::Release = word {
            // Renewed meanwhile it would be in progress for whoever asks.
            claims.let_go(claim.token);
        }
        let others = claims.unrecorded_bytes.load(Ordering::Relaxed);
        if word.bytes() > 0 && others.saturating_add(word.bytes()) > MAX_UNRECORDED_BYTES {
            word = Word::Complete(Outcome::TooLarge);
        }
        let bytes = word.bytes();
        claims.unrecorded_bytes.fetch_add(bytes, Ordering::Relaxed);
        claims.unrecorded.fetch_add(1, Ordering::Relaxed);
        // What did not run need not be waited for.
        let runs = matches!(word, Word::Complete(_));
        Self {
            _work: config.work().filter(|_| runs),
            config,
            claim,
            word,
            bytes,
        }
    }

    /// Until it is acknowledged; its claim is renewed meanwhile.
    async fn run(self) {
        let mut wait = FIRST_WAIT;
        while let Err(error) = self.word.tell(&self.config, &self.claim).await {
            if self.config.claims.unrecorded.load(Ordering::Relaxed) > MAX_UNRECORDED {
                tracing::error!(%error, "too many outcomes wait to be recorded: one is given up");
                return;
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        self.config.claims.ended();
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let claims = &self.config.claims;
        claims.let_go(self.claim.token);
        claims.unrecorded.fetch_sub(1, Ordering::Relaxed);
        claims
            .unrecorded_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
