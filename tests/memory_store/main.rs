//! The embedded store against the contract of its traits, and its own bounds.

mod events;
mod ledger;
mod model;

use std::{sync::Arc, time::Duration};

use mcp_session_guard::{
    clock::ManualClock,
    session::{Epoch, InstanceId, Residency, SessionId, SessionTerms},
    store::{
        Claim, Lookup, MemoryConfig, MemoryStore, Registered, SessionDirectory, SharedDirectory,
        StoreErrorKind, contract::DirectoryHarness,
    },
};

struct InMemory {
    store: MemoryStore,
    clock: Arc<ManualClock>,
}

impl InMemory {
    fn with(config: MemoryConfig) -> Self {
        let clock = Arc::new(ManualClock::new());
        let store = MemoryStore::with_clock(config, Arc::clone(&clock));
        Self { store, clock }
    }
}

impl DirectoryHarness for InMemory {
    type Directory = MemoryStore;

    async fn start(max_lease: Duration) -> Self {
        Self::with(MemoryConfig::default().with_max_lease(max_lease))
    }

    fn directory(&self) -> &MemoryStore {
        &self.store
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    async fn lose_memory(&self) {
        self.store.lose_memory();
    }
}

mod contract {
    use super::*;

    mcp_session_guard::directory_contract!(InMemory);
}

/// The same store behind the adapter that hides which one it is.
struct Erased(InMemory, SharedDirectory);

impl DirectoryHarness for Erased {
    type Directory = SharedDirectory;

    async fn start(max_lease: Duration) -> Self {
        let inner = InMemory::start(max_lease).await;
        let shared = SharedDirectory::new(inner.store.clone());
        Self(inner, shared)
    }

    fn directory(&self) -> &SharedDirectory {
        &self.1
    }

    async fn pass(&self, time: Duration) {
        self.0.pass(time).await;
    }

    async fn lose_memory(&self) {
        self.0.lose_memory().await;
    }
}

mod erased_contract {
    use super::*;

    mcp_session_guard::directory_contract!(Erased);
}

fn id(n: usize) -> SessionId {
    SessionId::parse(format!("session-{n}")).unwrap()
}

async fn joined(harness: &InMemory) -> InstanceId {
    let who = InstanceId::new("i", Epoch::mint().unwrap());
    harness
        .store
        .claim(&Claim::new(&who, Duration::from_secs(50)))
        .await
        .unwrap();
    who
}

#[tokio::test]
async fn when_full_it_says_so_and_evicts_nothing_live() {
    let harness = InMemory::with(MemoryConfig::default().with_max_sessions(3));
    let who = joined(&harness).await;
    let terms = SessionTerms::new(Residency::Pinned);
    for n in 0..3 {
        harness.store.register(&id(n), &who, &terms).await.unwrap();
    }
    let full = harness.store.register(&id(3), &who, &terms).await;
    assert_eq!(full.unwrap_err().kind(), StoreErrorKind::Full);
    for n in 0..3 {
        let lookup = harness.store.lookup(&id(n)).await.unwrap();
        assert!(matches!(lookup, Lookup::Owned { .. }));
    }
}

#[tokio::test]
async fn tombstones_and_what_is_over_make_room() {
    let config = MemoryConfig::default()
        .with_max_sessions(3)
        .with_max_lease(Duration::from_secs(3600));
    let harness = InMemory::with(config);
    let who = joined(&harness).await;
    let terms = SessionTerms::new(Residency::Pinned);
    let brief = terms.clone().with_retention(Duration::from_secs(5));
    for n in 0..3 {
        let terms = if n == 0 { &brief } else { &terms };
        harness.store.register(&id(n), &who, terms).await.unwrap();
    }
    harness.store.terminate(&id(1), None).await.unwrap();
    for n in 3..5 {
        harness.clock.advance(Duration::from_secs(10));
        let registered = harness.store.register(&id(n), &who, &terms).await;
        assert!(matches!(registered, Ok(Registered::Recorded(_))), "{n}");
    }
    let lookup = harness.store.lookup(&id(2)).await.unwrap();
    assert!(matches!(lookup, Lookup::Owned { .. }));
    let full = harness.store.register(&id(5), &who, &terms).await;
    assert_eq!(full.unwrap_err().kind(), StoreErrorKind::Full);
}

#[tokio::test]
async fn a_tombstone_lasts_its_time() {
    let config = MemoryConfig::default().with_tombstones(Duration::from_secs(30));
    let harness = InMemory::with(config);
    let who = joined(&harness).await;
    let terms = SessionTerms::new(Residency::Pinned);
    harness.store.register(&id(0), &who, &terms).await.unwrap();
    harness.store.terminate(&id(0), None).await.unwrap();
    harness.clock.advance(Duration::from_secs(29));
    assert_eq!(
        harness.store.lookup(&id(0)).await.unwrap(),
        Lookup::Terminated
    );
    harness.clock.advance(Duration::from_secs(1));
    assert_eq!(harness.store.lookup(&id(0)).await.unwrap(), Lookup::Absent);
}
