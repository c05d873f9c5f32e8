//! The suites that every back end must pass, one named case for each rule of its contract.
//!
//! A back end implements [`DirectoryHarness`] in its tests and calls [`directory_contract!`](crate::directory_contract),
//! which makes one `#[tokio::test]` of each case; [`EventHarness`] and [`event_contract!`](crate::event_contract) do
//! the same for its logs, and [`LedgerHarness`] and [`ledger_contract!`](crate::ledger_contract) for its keyed requests.
//! Each case gets a fresh store.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use mcp_session_guard::{
//!     clock::ManualClock,
//!     store::{MemoryConfig, MemoryStore, contract::DirectoryHarness},
//! };
//!
//! struct InMemory {
//!     store: MemoryStore,
//!     clock: Arc<ManualClock>,
//! }
//!
//! impl DirectoryHarness for InMemory {
//!     type Directory = MemoryStore;
//!
//!     async fn start(max_lease: Duration) -> Self {
//!         let clock = Arc::new(ManualClock::new());
//!         let config = MemoryConfig::default().with_max_lease(max_lease);
//!         let store = MemoryStore::with_clock(config, clock.clone());
//!         Self { store, clock }
//!     }
//!     fn directory(&self) -> &MemoryStore {
//!         &self.store
//!     }
//!     async fn pass(&self, time: Duration) {
//!         self.clock.advance(time);
//!     }
//!     async fn lose_memory(&self) {
//!         self.store.lose_memory();
//!     }
//! }
//!
//! mcp_session_guard::directory_contract!(InMemory);
//! # fn main() {}
//! ```
//!
//! For the logs:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use mcp_session_guard::{
//!     clock::ManualClock,
//!     store::{
//!         MemoryConfig, MemoryStore,
//!         contract::{EventHarness, EventRetention},
//!     },
//! };
//!
//! struct InMemory {
//!     store: MemoryStore,
//!     clock: Arc<ManualClock>,
//! }
//!
//! impl EventHarness for InMemory {
//!     type Events = MemoryStore;
//!
//!     async fn start(retention: EventRetention) -> Self {
//!         let clock = Arc::new(ManualClock::new());
//!         let config = MemoryConfig::default()
//!             .with_max_events_per_session(retention.events)
//!             .with_max_event_bytes_per_session(retention.bytes)
//!             .with_max_event_age(retention.age)
//!             .with_max_streams_per_session(retention.streams);
//!         let store = MemoryStore::with_clock(config, clock.clone());
//!         Self { store, clock }
//!     }
//!     fn events(&self) -> &MemoryStore {
//!         &self.store
//!     }
//!     async fn pass(&self, time: Duration) {
//!         self.clock.advance(time);
//!     }
//! }
//!
//! mcp_session_guard::event_contract!(InMemory);
//! # fn main() {}
//! ```
//!
//! For the keyed requests:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use mcp_session_guard::{
//!     clock::ManualClock,
//!     store::{
//!         MemoryConfig, MemoryStore,
//!         contract::{LedgerHarness, LedgerTimes},
//!     },
//! };
//!
//! struct InMemory {
//!     store: MemoryStore,
//!     clock: Arc<ManualClock>,
//! }
//!
//! impl LedgerHarness for InMemory {
//!     type Ledger = MemoryStore;
//!
//!     async fn start(times: LedgerTimes) -> Self {
//!         let clock = Arc::new(ManualClock::new());
//!         let config = MemoryConfig::default()
//!             .with_outcomes(times.outcomes)
//!             .with_retry_horizon(times.retry_horizon);
//!         let store = MemoryStore::with_clock(config, clock.clone());
//!         Self { store, clock }
//!     }
//!     fn ledger(&self) -> &MemoryStore {
//!         &self.store
//!     }
//!     async fn pass(&self, time: Duration) {
//!         self.clock.advance(time);
//!     }
//!     async fn lose_memory(&self) {
//!         self.store.lose_memory();
//!     }
//! }
//!
//! mcp_session_guard::ledger_contract!(InMemory);
//! # fn main() {}
//! ```

mod claiming;
mod directory;
mod events;
mod forgetting;
mod ledger;
mod reading;
mod recording;
mod recovering;
mod retention;
mod sealing;

use std::{future::Future, time::Duration};

use super::{
    Claim, ClaimReply, Claimed, ClaimedSession, Lookup, Registered, SessionDirectory, Standing,
    TakeOver,
};
use crate::session::{Epoch, Fence, InstanceId, Residency, SessionId, SessionRecord, SessionTerms};

pub use events::{EventHarness, EventRetention};
pub use ledger::{LedgerHarness, LedgerTimes};

#[doc(hidden)]
pub mod cases {
    pub use super::{
        claiming::*, directory::*, forgetting::*, reading::*, recording::*, recovering::*,
        retention::*, sealing::*,
    };
}

/// How the suite drives a back end's directory.
pub trait DirectoryHarness: Sized + Sync {
    /// The back end.
    type Directory: SessionDirectory;

    /// An empty directory that is not recovering and grants leases of at most `max_lease`.
    fn start(max_lease: Duration) -> impl Future<Output = Self>;

    /// The directory.
    fn directory(&self) -> &Self::Directory;

    /// Lets the directory's clock run on by `time`.
    fn pass(&self, time: Duration) -> impl Future<Output = ()>;

    /// Has the directory restart empty.
    fn lose_memory(&self) -> impl Future<Output = ()>;
}

/// Makes a `#[tokio::test]` of each case of the directory's contract, for one
/// [`DirectoryHarness`](crate::store::contract::DirectoryHarness).
#[macro_export]
macro_rules! directory_contract {
    ($harness:ty) => {
        $crate::directory_contract!(@cases $harness:
            rule_01_each_lease_has_its_own_length_on_the_directorys_clock
            rule_02_a_heartbeat_tells_of_a_lapse
            rule_03_a_heartbeat_only_extends_and_a_claim_creates
            rule_04_what_is_absent_stays_absent_whoever_claims_it
            rule_05_a_session_is_buried_only_when_its_owner_has_lapsed
            rule_05_a_buried_session_is_buried_for_its_owner_too
            rule_06_a_take_over_raises_the_fence_and_happens_once
            rule_06_only_an_externalized_session_of_a_lapsed_owner_is_taken_over
            rule_07_a_stale_fence_ends_nothing
            rule_07_a_clients_delete_needs_no_fence
            rule_08_retention_slides_with_touches
            rule_08_a_touch_returns_what_is_gone
            rule_09_a_registration_needs_a_lease_and_never_overwrites
            rule_09_a_registration_whose_reply_was_lost_is_recognised
            rule_10_a_named_owner_takes_its_own_session_over_afresh
            rule_11_the_old_fence_is_worth_nothing_after_a_take_over
            rule_12_whoever_leaves_is_lapsed_at_once
            rule_13_a_new_epoch_under_an_old_name_owns_nothing
            recovering_nothing_is_absent_and_nothing_is_orphaned
            recovering_an_unbroken_claim_is_held
            recovering_a_lapsed_claim_is_noted_and_held_later_under_a_higher_fence
            recovering_a_repeated_tombstone_beats_every_claim
            recovering_an_unbroken_claim_beats_a_lapsed_one
            recovering_a_heartbeat_names_the_new_incarnation
            recovering_forgotten_is_not_gone
            recovering_no_fence_ends_what_may_have_a_higher_one
            recovering_a_clients_delete_stands_when_the_owner_claims
            recovering_ends_and_what_nobody_claimed_is_absent
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

const LEASE: Duration = Duration::from_secs(10);

/// A directory with an instance in it, and the moves that many cases begin with.
struct Stage<H> {
    harness: H,
    alice: InstanceId,
    bob: InstanceId,
}

impl<H: DirectoryHarness> Stage<H> {
    async fn set() -> Self {
        let stage = Self {
            harness: H::start(LEASE).await,
            alice: instance("alice"),
            bob: instance("bob"),
        };
        stage.join(&stage.alice).await;
        stage
    }

    fn directory(&self) -> &H::Directory {
        self.harness.directory()
    }

    async fn join(&self, who: &InstanceId) -> ClaimReply {
        self.claim(who, Standing::Lapsed, &[], &[]).await
    }

    async fn claim(
        &self,
        who: &InstanceId,
        standing: Standing,
        sessions: &[ClaimedSession],
        tombstones: &[SessionId],
    ) -> ClaimReply {
        let mut claim = Claim::new(who, LEASE);
        claim.standing = standing;
        claim.sessions = sessions;
        claim.tombstones = tombstones;
        let reply = self.directory().claim(&claim).await.expect("claim");
        assert_eq!(reply.sessions.len(), sessions.len());
        reply
    }

    async fn claim_one(
        &self,
        who: &InstanceId,
        standing: Standing,
        id: &SessionId,
        fence: Fence,
        residency: Residency,
    ) -> Claimed {
        let session = ClaimedSession::new(id.clone(), fence, SessionTerms::new(residency));
        self.claim(who, standing, &[session], &[]).await.sessions[0]
    }

    /// Alice opens a session.
    async fn open(&self, id: &SessionId, residency: Residency) -> Fence {
        let terms = SessionTerms::new(residency);
        self.register(id, &self.alice, &terms).await
    }

    async fn register(&self, id: &SessionId, owner: &InstanceId, terms: &SessionTerms) -> Fence {
        match self.directory().register(id, owner, terms).await {
            Ok(Registered::Recorded(fence)) => fence,
            other => panic!("not registered: {other:?}"),
        }
    }

    async fn lookup(&self, id: &SessionId) -> Lookup {
        self.directory().lookup(id).await.expect("lookup")
    }

    async fn owner(&self, id: &SessionId) -> SessionRecord {
        match self.lookup(id).await {
            Lookup::Owned { record, .. } => record,
            other => panic!("not owned: {other:?}"),
        }
    }

    async fn take_over(&self, id: &SessionId, seen: Fence, by: &InstanceId) -> TakeOver {
        self.directory()
            .take_over(id, seen, by)
            .await
            .expect("take_over")
    }

    /// Alice's lease runs out while Bob's is fresh.
    async fn alice_lapses(&self) {
        self.harness.pass(LEASE).await;
        self.join(&self.bob).await;
    }
}

fn instance(name: &'static str) -> InstanceId {
    InstanceId::new(name, Epoch::mint().expect("randomness"))
}

fn session(id: &str) -> SessionId {
    SessionId::parse(id).expect("a session id")
}
