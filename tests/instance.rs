//! How an instance joins, holds its lease and goes, without any HTTP.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use mcp_session_guard::{
    instance::{Instance, JoinErrorKind},
    session::SessionId,
    store::{Lookup, MemoryConfig, MemoryStore, SessionDirectory, StoreErrorKind},
};
use support::{
    LEASE, Stage,
    directory::{Fault, Faulty},
};

#[tokio::test]
async fn times_that_contradict_each_other_do_not_join() {
    for (lease, heartbeat, margin) in [(10, 10, 1), (10, 5, 5), (0, 0, 0), (10, 0, 1)] {
        let joined = Instance::builder("a")
            .with_lease(Duration::from_secs(lease))
            .with_heartbeat(Duration::from_secs(heartbeat))
            .with_margin(Duration::from_secs(margin))
            .join(MemoryStore::new());
        assert_eq!(joined.unwrap_err().kind(), JoinErrorKind::Times);
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_grants_less_than_was_asked_for_is_kept_to() {
    let stage = Stage::set();
    let config = MemoryConfig::default().with_max_lease(Duration::from_secs(2));
    let store = MemoryStore::with_clock(config, stage.clock.clone());
    let wish = stage.builder("a").with_lease(Duration::from_secs(600));
    let instance = stage.join(wish, store).await;
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(instance.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_down_is_tried_again_until_it_is_up() {
    let stage = Stage::set();
    let directory = Faulty::new(stage.store.clone());
    directory.set_all(Fault::Fails(StoreErrorKind::Unavailable));
    let instance = stage.builder("a").join(directory.clone()).unwrap();
    tokio::time::sleep(LEASE * 3).await;
    assert!(!instance.is_ready());
    assert!(directory.take_calls("claim") > 5);
    directory.heal();
    instance.ready().await;
    assert!(instance.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_stops_no_heartbeat_for_ever() {
    let stage = Stage::set();
    let directory = Faulty::new(stage.store.clone());
    let instance = stage.join(stage.builder("a"), directory.clone()).await;
    directory.set("heartbeat", Fault::Hangs);
    tokio::time::sleep(LEASE / 4).await;
    directory.heal();
    for _ in 0..20 {
        tokio::time::sleep(LEASE / 4).await;
        assert!(instance.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_last_handle_is_dropped_the_heartbeats_stop_and_the_lease_runs_out() {
    let stage = Stage::set();
    let directory = Faulty::new(stage.store.clone());
    let instance = stage.join(stage.builder("a"), directory.clone()).await;
    let id = SessionId::parse("s").unwrap();
    let owner = instance.id().clone();
    let terms = mcp_session_guard::session::SessionTerms::default();
    directory.register(&id, &owner, &terms).await.unwrap();
    drop(instance);
    tokio::time::sleep(LEASE / 2).await;
    directory.take_calls("heartbeat");
    let lookup = directory.lookup(&id).await.unwrap();
    assert!(matches!(lookup, Lookup::Owned { .. }));
    tokio::time::sleep(LEASE).await;
    assert_eq!(directory.take_calls("heartbeat"), 0);
    assert_eq!(directory.take_calls("leave"), 0);
    let lookup = directory.lookup(&id).await.unwrap();
    assert!(matches!(lookup, Lookup::Orphaned(_)));
}

#[tokio::test(start_paused = true)]
async fn retiring_ends_the_lease_even_if_the_directory_cannot_be_told() {
    let stage = Stage::set();
    let directory = Faulty::new(stage.store.clone());
    let instance = stage.join(stage.builder("a"), directory.clone()).await;
    directory.set("leave", Fault::Hangs);
    let retirement = instance.retire().await;
    let error = retirement.lease_ended().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::TimedOut);
    directory.take_calls("heartbeat");
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(directory.take_calls("heartbeat"), 0);
    assert!(!instance.is_ready());
}
