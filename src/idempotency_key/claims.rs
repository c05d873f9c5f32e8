//! The claims that this instance holds: tokens for them, and their renewal while their calls run.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use event_listener::{Event, EventListener};
use futures_util::{StreamExt, stream};
use tokio::{runtime::Handle, time::sleep};

use crate::{
    outbox::within,
    store::{ClaimToken, Held, KeyClaim, RequestLedger, SharedLedger},
};

/// How many claims are renewed at a time.
const AT_ONCE: usize = 64;

/// However short a lease is.
const SHORTEST: Duration = Duration::from_millis(10);

/// What is known of the calls with keys that run here.
#[derive(Debug)]
pub(super) struct Claims {
    run: u128,
    next: AtomicU64,
    held: Mutex<Renewed>,
    waiting: AtomicUsize,
    /// Outcomes that are not recorded yet, in number and in bytes.
    pub(super) unrecorded: AtomicUsize,
    pub(super) unrecorded_bytes: AtomicUsize,
    changed: Event,
}

#[derive(Debug, Default)]
struct Renewed {
    claims: HashMap<ClaimToken, KeyClaim>,
    /// Whether somebody renews them.
    kept: bool,
}

impl Claims {
    pub(super) fn new() -> Self {
        let mut bytes = [0; 16];
        if getrandom::fill(&mut bytes).is_err() {
            // Keys of the hasher are drawn from the system too, when the first one is made.
            let random = |salt: u8| RandomState::new().hash_one(salt).to_le_bytes();
            bytes[..8].copy_from_slice(&random(0));
            bytes[8..].copy_from_slice(&random(1));
        }
        Self {
            run: u128::from_le_bytes(bytes),
            next: AtomicU64::new(0),
            held: Mutex::default(),
            waiting: AtomicUsize::new(0),
            unrecorded: AtomicUsize::new(0),
            unrecorded_bytes: AtomicUsize::new(0),
            changed: Event::new(),
        }
    }

    /// A token that nobody else has.
    pub(super) fn token(&self) -> ClaimToken {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        ClaimToken::from_u128(self.run.wrapping_add(u128::from(next)))
    }

    fn held(&self) -> MutexGuard<'_, Renewed> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews a claim from now on.
    pub(super) fn hold(
        self: &Arc<Self>,
        claim: KeyClaim,
        ledger: &SharedLedger,
        deadline: Duration,
        runtime: Option<&Handle>,
    ) {
        let mut held = self.held();
        held.claims.insert(claim.token, claim);
        if let (false, Some(runtime)) = (held.kept, runtime) {
            held.kept = true;
            let keeper = Keeper(Arc::downgrade(self));
            let every = (claim.lease / 3).max(SHORTEST);
            runtime.spawn(keeper.run(ledger.clone(), every, deadline));
        }
    }

    /// Renews it no more.
    pub(super) fn let_go(&self, token: ClaimToken) {
        self.held().claims.remove(&token);
    }

    /// Tells whoever waits here that a call has ended.
    pub(super) fn ended(&self) {
        self.changed.notify(usize::MAX);
    }

    /// Wakes when a call that ran here has ended; ask again after making it.
    pub(super) fn listen(&self) -> EventListener {
        self.changed.listen()
    }

    /// A place among those that wait, if there is one.
    pub(super) fn wait(self: &Arc<Self>, most: usize) -> Option<Waiting> {
        let more = |waiting: usize| (waiting < most).then_some(waiting + 1);
        (self.waiting)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
            .then(|| Waiting(Arc::clone(self)))
    }
}

/// One that waits.
pub(super) struct Waiting(Arc<Claims>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Renews the claims for as long as there are some. Dropped with its runtime, the next claim finds another.
struct Keeper(Weak<Claims>);

impl Keeper {
    async fn run(self, ledger: SharedLedger, every: Duration, deadline: Duration) {
        loop {
            sleep(every).await;
            let Some(claims) = self.0.upgrade() else {
                return;
            };
            let held: Vec<KeyClaim> = {
                let mut held = claims.held();
                if held.claims.is_empty() {
                    held.kept = false;
                    held.claims.shrink_to(64);
                    drop(held);
                    return self.done();
                }
                held.claims.values().copied().collect()
            };
            drop(claims);
            let ledger = &ledger;
            let renewals = stream::iter(held).for_each_concurrent(AT_ONCE, |claim| async move {
                match within(deadline, ledger.renew(&claim)).await {
                    Ok(Held::Yes) => {}
                    Ok(lost) => tracing::debug!(?lost, "a claim could not be renewed"),
                    Err(error) => tracing::warn!(%error, "a claim could not be renewed"),
                }
            });
            renewals.await;
        }
    }

    /// Ends without the word that nobody renews any more, which was said already.
    fn done(mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(claims) = self.0.upgrade() {
            claims.held().kept = false;
        }
    }
}
