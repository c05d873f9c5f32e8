//! The embedded store's keyed requests: the contract, and the room that they take.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use mcp_session_guard::{
    clock::ManualClock,
    store::{
        Begun, ClaimToken, Fingerprint, KeyClaim, MemoryConfig, MemoryStore, Outcome, Reply,
        RequestKey, RequestLedger, SharedLedger, StoreErrorKind,
        contract::{LedgerHarness, LedgerTimes},
    },
};

use proptest::prelude::*;

use super::InMemory;

const LEASE: Duration = Duration::from_secs(10);
const KEPT: Duration = Duration::from_secs(100);

impl LedgerHarness for InMemory {
    type Ledger = MemoryStore;

    async fn start(times: LedgerTimes) -> Self {
        let config = MemoryConfig::default()
            .with_outcomes(times.outcomes)
            .with_retry_horizon(times.retry_horizon);
        Self::with(config)
    }

    fn ledger(&self) -> &MemoryStore {
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

    mcp_session_guard::ledger_contract!(InMemory);
}

/// The same store behind the adapter that hides which one it is.
struct Erased(Arc<ManualClock>, MemoryStore, SharedLedger);

impl LedgerHarness for Erased {
    type Ledger = SharedLedger;

    async fn start(times: LedgerTimes) -> Self {
        let InMemory { store, clock } = <InMemory as LedgerHarness>::start(times).await;
        Self(clock, store.clone(), SharedLedger::new(store))
    }

    fn ledger(&self) -> &SharedLedger {
        &self.2
    }

    async fn pass(&self, time: Duration) {
        self.0.advance(time);
    }

    async fn lose_memory(&self) {
        self.1.lose_memory();
    }
}

mod erased_contract {
    use super::*;

    mcp_session_guard::ledger_contract!(Erased);
}

fn claim(key: u64) -> KeyClaim {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    KeyClaim::new(
        RequestKey::from_bytes(bytes),
        Fingerprint::from_bytes([0; 32]),
        ClaimToken::from_u128(u128::from(key)),
        LEASE,
    )
}

fn reply(len: usize) -> Outcome {
    Outcome::Reply(Reply::Result(Bytes::from(vec![b'1'; len])))
}

/// What somebody else is told.
async fn ask(store: &MemoryStore, key: u64) -> Begun {
    let mut other = claim(key);
    other.token = ClaimToken::from_u128(u128::MAX);
    store.begin(&other).await.unwrap()
}

#[tokio::test]
async fn when_full_it_says_so_and_forgets_nothing_that_runs_or_ran() {
    let harness = InMemory::with(MemoryConfig::default().with_max_keys(3).with_outcomes(KEPT));
    let store = &harness.store;
    for key in 0..3 {
        store.begin(&claim(key)).await.unwrap();
    }
    store.complete(&claim(0), &reply(1)).await.unwrap();
    store.complete(&claim(1), &Outcome::Unknown).await.unwrap();
    let full = store.begin(&claim(3)).await.unwrap_err();
    assert_eq!(full.kind(), StoreErrorKind::Full);
    assert!(matches!(ask(store, 0).await, Begun::Completed { .. }));
    assert_eq!(ask(store, 1).await, Begun::OutcomeUnknown);
    assert_eq!(ask(store, 2).await, Begun::InFlight);
    // What is over makes room; what runs does not, however long it does.
    for _ in 0..20 {
        harness.clock.advance(LEASE / 2);
        store.renew(&claim(2)).await.unwrap();
    }
    for key in 3..5 {
        let begun = store.begin(&claim(key)).await;
        assert_eq!(begun.unwrap(), Begun::Fresh { attempt: 1 }, "{key}");
    }
    assert_eq!(ask(store, 2).await, Begun::InFlight);
    let full = store.begin(&claim(5)).await.unwrap_err();
    assert_eq!(full.kind(), StoreErrorKind::Full);
    assert_eq!(store.keys(), 3);
}

#[tokio::test]
async fn a_released_key_leaves_its_place() {
    let harness = InMemory::with(MemoryConfig::default().with_max_keys(1));
    let store = &harness.store;
    for key in 0..100 {
        store.begin(&claim(key)).await.unwrap();
        store.release(&claim(key)).await.unwrap();
        harness.clock.advance(LEASE + Duration::from_secs(1));
    }
    assert_eq!(store.keys(), 1);
}

#[tokio::test]
async fn when_outcomes_take_too_much_the_oldest_go_and_are_known_to_have_run() {
    let harness = InMemory::with(MemoryConfig::default().with_max_outcome_bytes(10_000));
    let store = &harness.store;
    for key in 0..100 {
        store.begin(&claim(key)).await.unwrap();
        store.complete(&claim(key), &reply(1000)).await.unwrap();
        assert!(store.outcome_bytes() <= 10_000);
        harness.clock.advance(Duration::from_secs(1));
    }
    assert_eq!((store.keys(), store.outcome_bytes()), (100, 10_000));
    let mut kept = 0;
    for key in 0..100 {
        match ask(store, key).await {
            Begun::Completed { reply, .. } => kept += usize::from(reply.is_some()),
            other => panic!("{key}: {other:?}"),
        }
    }
    assert_eq!(kept, 10);
    let latest = ask(store, 99).await;
    assert!(matches!(latest, Begun::Completed { reply: Some(_), .. }));
}

#[tokio::test]
async fn memory_comes_back_without_a_look_at_every_key() {
    let harness = InMemory::with(MemoryConfig::default().with_outcomes(KEPT));
    let store = &harness.store;
    for key in 0..10_000 {
        store.begin(&claim(key)).await.unwrap();
        store.complete(&claim(key), &reply(10)).await.unwrap();
    }
    harness.clock.advance(KEPT + LEASE);
    // Each call drops a few of its shard's.
    for key in 10_000..20_000 {
        store.begin(&claim(key)).await.unwrap();
        store.complete(&claim(key), &reply(10)).await.unwrap();
    }
    assert_eq!((store.keys(), store.outcome_bytes()), (10_000, 100_000));
    assert_eq!(ask(store, 5).await, Begun::Fresh { attempt: 1 });
}

/// What somebody does with one key.
#[derive(Debug, Clone, Copy)]
enum Move {
    Begin,
    /// The tool starts, if the claim is one's own.
    Run,
    Renew,
    Complete,
    /// Nothing ran, and the claim is given back.
    Release,
    /// Not a word more.
    Die,
    /// A third of a lease goes by.
    Wait,
    LoseMemory,
}

/// How far somebody has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Claimed,
    Running,
    Over,
}

fn moves() -> impl Strategy<Value = Vec<(usize, Move)>> {
    let one = prop_oneof![
        4 => Just(Move::Begin),
        4 => Just(Move::Run),
        2 => Just(Move::Renew),
        2 => Just(Move::Complete),
        1 => Just(Move::Release),
        1 => Just(Move::Die),
        3 => Just(Move::Wait),
        1 => Just(Move::LoseMemory),
    ];
    proptest::collection::vec((0usize..3, one), 1..60)
}

proptest! {
    /// Three instances, one key, one tool that must not run twice.
    #[test]
    fn whatever_happens_the_tool_runs_once_and_unknown_is_not_said_for_nothing(moves in moves()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            // Longer than any claim is left alone, as it must be.
            let config = MemoryConfig::default().with_retry_horizon(LEASE * 2);
            let harness = InMemory::with(config);
            let store = &harness.store;
            let mut claims: Vec<_> = (0..3u128).map(|who| {
                let mut claim = claim(1);
                claim.token = ClaimToken::from_u128(who);
                claim
            }).collect();
            let mut stages = [Stage::Idle; 3];
            let (mut runs, mut tokens, mut forgetful) = (0, 3, false);
            // Whether a claim was ever granted that was not given back.
            let mut granted = 0usize;
            for (who, one) in moves {
                let stage = stages[who];
                match one {
                    Move::Begin if stage == Stage::Idle => match store.begin(&claims[who]).await {
                        Ok(Begun::Fresh { .. }) => {
                            granted += 1;
                            stages[who] = Stage::Claimed;
                        }
                        Ok(Begun::OutcomeUnknown) => prop_assert!(granted > 0),
                        Ok(Begun::Completed { .. }) => prop_assert_eq!(runs, 1),
                        Ok(Begun::InFlight) => prop_assert!(granted > 0),
                        Ok(other) => panic!("{other:?}"),
                        Err(error) => prop_assert_eq!(error.kind(), StoreErrorKind::Recovering),
                    },
                    Move::Run if stage == Stage::Claimed => {
                        runs += 1;
                        stages[who] = Stage::Running;
                    }
                    Move::Renew if matches!(stage, Stage::Claimed | Stage::Running) => {
                        store.renew(&claims[who]).await.unwrap();
                    }
                    Move::Complete if stage == Stage::Running => {
                        store.complete(&claims[who], &reply(3)).await.unwrap();
                        stages[who] = Stage::Over;
                    }
                    Move::Release if stage == Stage::Claimed => {
                        store.release(&claims[who]).await.unwrap();
                        granted -= 1;
                        // The next attempt has a token of its own.
                        claims[who].token = ClaimToken::from_u128(tokens);
                        tokens += 1;
                        stages[who] = Stage::Idle;
                    }
                    // What dies with its memory lost was never heard of again: no ledger can know.
                    Move::Die if !forgetful => stages[who] = Stage::Over,
                    Move::Wait => {
                        harness.clock.advance(LEASE / 3);
                        // Whoever lives renews in time.
                        for (claim, stage) in claims.iter().zip(&stages) {
                            if matches!(stage, Stage::Claimed | Stage::Running) {
                                store.renew(claim).await.unwrap();
                            }
                        }
                    }
                    // Before the dead are told of: what they did is lost with the memory.
                    Move::LoseMemory if stages.iter().all(|stage| *stage != Stage::Over) => {
                        forgetful = true;
                        store.lose_memory();
                    }
                    _ => {}
                }
                prop_assert!(runs <= 1, "it ran {runs} times");
            }
            Ok(())
        })?;
    }
}
