//! The cases of the ownership protocol's thirteen rules, as far as the directory keeps them.

#![allow(missing_docs, reason = "the name of each case says what it checks")]

use std::time::Duration;

use super::{DirectoryHarness, LEASE, Stage, instance, session};
use crate::{
    session::{Residency, SessionTerms},
    store::{
        Bury, Claim, Claimed, Lookup, Registered, SessionDirectory, Standing, TakeOver, Terminated,
    },
};

const PINNED: Residency = Residency::Pinned;
const EXTERNALIZED: Residency = Residency::Externalized;
const MOMENT: Duration = Duration::from_secs(1);

pub async fn rule_01_each_lease_has_its_own_length_on_the_directorys_clock<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    stage.open(&id, PINNED).await;
    let mut claim = Claim::new(&stage.bob, LEASE / 2);
    claim.address = Some("http://bob");
    let reply = stage.directory().claim(&claim).await.unwrap();
    assert_eq!(reply.lease, LEASE / 2);
    let bobs = session("b");
    let terms = SessionTerms::new(PINNED);
    stage.register(&bobs, &stage.bob, &terms).await;
    match stage.lookup(&bobs).await {
        Lookup::Owned { address, .. } => assert_eq!(address.as_deref(), Some("http://bob")),
        other => panic!("{other:?}"),
    }
    stage.harness.pass(LEASE / 2).await;
    assert!(matches!(stage.lookup(&bobs).await, Lookup::Orphaned(_)));
    assert_eq!(stage.owner(&id).await.owner, stage.alice);
    // A longer lease than the directory grants is cut, and the claimant told.
    let greedy = Claim::new(&stage.bob, LEASE * 100);
    assert_eq!(stage.directory().claim(&greedy).await.unwrap().lease, LEASE);
}

pub async fn rule_02_a_heartbeat_tells_of_a_lapse<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    stage.harness.pass(LEASE - MOMENT).await;
    assert!(
        stage
            .directory()
            .heartbeat(&stage.alice)
            .await
            .unwrap()
            .extended
    );
    stage.harness.pass(LEASE - MOMENT).await;
    assert!(
        stage
            .directory()
            .heartbeat(&stage.alice)
            .await
            .unwrap()
            .extended
    );
    stage.harness.pass(LEASE).await;
    assert!(
        !stage
            .directory()
            .heartbeat(&stage.alice)
            .await
            .unwrap()
            .extended
    );
}

pub async fn rule_03_a_heartbeat_only_extends_and_a_claim_creates<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let (id, terms) = (session("s"), SessionTerms::new(PINNED));
    assert!(
        !stage
            .directory()
            .heartbeat(&stage.bob)
            .await
            .unwrap()
            .extended
    );
    let without = stage.directory().register(&id, &stage.bob, &terms).await;
    assert_eq!(without.unwrap(), Registered::NoLease);
    let reply = stage.join(&stage.bob).await;
    let beat = stage.directory().heartbeat(&stage.bob).await.unwrap();
    assert!(beat.extended);
    assert_eq!(beat.incarnation, reply.incarnation);
    stage.register(&id, &stage.bob, &terms).await;
}

pub async fn rule_04_what_is_absent_stays_absent_whoever_claims_it<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let known = stage.open(&session("known"), PINNED).await;
    let id = session("unheard-of");
    for standing in [Standing::Lapsed, Standing::Unbroken] {
        let claimed = stage
            .claim_one(&stage.alice, standing, &id, known, PINNED)
            .await;
        assert_eq!(claimed, Claimed::Absent);
        assert_eq!(stage.lookup(&id).await, Lookup::Absent);
    }
}

pub async fn rule_05_a_session_is_buried_only_when_its_owner_has_lapsed<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    assert_eq!(
        stage.directory().bury(&id, fence).await.unwrap(),
        Bury::Lost
    );
    stage.alice_lapses().await;
    // She is back before anybody buried it.
    let claimed = stage
        .claim_one(&stage.alice, Standing::Lapsed, &id, fence, PINNED)
        .await;
    assert_eq!(claimed, Claimed::Held(fence));
    assert_eq!(
        stage.directory().bury(&id, fence).await.unwrap(),
        Bury::Lost
    );
    assert_eq!(stage.owner(&id).await.owner, stage.alice);
}

pub async fn rule_05_a_buried_session_is_buried_for_its_owner_too<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    stage.alice_lapses().await;
    assert!(matches!(stage.lookup(&id).await, Lookup::Orphaned(_)));
    assert_eq!(
        stage.directory().bury(&id, fence).await.unwrap(),
        Bury::Buried
    );
    // A second time, as when the reply was lost.
    assert_eq!(
        stage.directory().bury(&id, fence).await.unwrap(),
        Bury::Buried
    );
    assert_eq!(stage.lookup(&id).await, Lookup::Terminated);
    let claimed = stage
        .claim_one(&stage.alice, Standing::Lapsed, &id, fence, PINNED)
        .await;
    assert_eq!(claimed, Claimed::Buried);
    assert_eq!(stage.lookup(&id).await, Lookup::Terminated);
}

pub async fn rule_06_a_take_over_raises_the_fence_and_happens_once<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let (id, carol) = (session("s"), instance("carol"));
    let old = stage.open(&id, EXTERNALIZED).await;
    stage.alice_lapses().await;
    stage.join(&carol).await;
    let (one, other) = futures_util::future::join(
        stage.take_over(&id, old, &stage.bob),
        stage.take_over(&id, old, &carol),
    )
    .await;
    let (owner, fence) = match (one, other) {
        (TakeOver::Taken(fence), TakeOver::Lost) => (&stage.bob, fence),
        (TakeOver::Lost, TakeOver::Taken(fence)) => (&carol, fence),
        both => panic!("{both:?}"),
    };
    assert!(fence > old);
    let record = stage.owner(&id).await;
    assert_eq!((&record.owner, record.fence), (owner, fence));
}

pub async fn rule_06_only_an_externalized_session_of_a_lapsed_owner_is_taken_over<
    H: DirectoryHarness,
>() {
    let stage = Stage::<H>::set().await;
    let (pinned, shared) = (session("pinned"), session("shared"));
    let at_pinned = stage.open(&pinned, PINNED).await;
    let at_shared = stage.open(&shared, EXTERNALIZED).await;
    stage.join(&stage.bob).await;
    assert_eq!(
        stage.take_over(&shared, at_shared, &stage.bob).await,
        TakeOver::Lost
    );
    stage.alice_lapses().await;
    assert_eq!(
        stage.take_over(&pinned, at_pinned, &stage.bob).await,
        TakeOver::Lost
    );
    let stranger = instance("no lease");
    assert_eq!(
        stage.take_over(&shared, at_shared, &stranger).await,
        TakeOver::NoLease
    );
    let taken = stage.take_over(&shared, at_shared, &stage.bob).await;
    assert!(matches!(taken, TakeOver::Taken(_)), "{taken:?}");
    // The first owner is back, and told.
    let claimed = stage
        .claim_one(
            &stage.alice,
            Standing::Lapsed,
            &shared,
            at_shared,
            EXTERNALIZED,
        )
        .await;
    assert_eq!(claimed, Claimed::Taken);
}

pub async fn rule_07_a_stale_fence_ends_nothing<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let old = stage.open(&id, EXTERNALIZED).await;
    stage.alice_lapses().await;
    let TakeOver::Taken(new) = stage.take_over(&id, old, &stage.bob).await else {
        panic!("not taken");
    };
    let zombie = stage.directory().terminate(&id, Some(old)).await;
    assert_eq!(zombie.unwrap(), Terminated::Fenced);
    assert_eq!(stage.owner(&id).await.owner, stage.bob);
    let owner = stage.directory().terminate(&id, Some(new)).await;
    assert_eq!(owner.unwrap(), Terminated::Ended);
    assert_eq!(stage.lookup(&id).await, Lookup::Terminated);
}

pub async fn rule_07_a_clients_delete_needs_no_fence<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    stage.open(&id, PINNED).await;
    for _ in 0..2 {
        let ended = stage.directory().terminate(&id, None).await;
        assert_eq!(ended.unwrap(), Terminated::Ended);
        assert_eq!(stage.lookup(&id).await, Lookup::Terminated);
    }
    // What never was leaves no tombstone, whoever asks for it.
    let unknown = session("unknown");
    let ended = stage.directory().terminate(&unknown, None).await;
    assert_eq!(ended.unwrap(), Terminated::Absent);
    assert_eq!(stage.lookup(&unknown).await, Lookup::Absent);
}

pub async fn rule_08_retention_slides_with_touches<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let terms = SessionTerms::new(PINNED).with_retention(LEASE);
    stage.register(&id, &stage.alice, &terms).await;
    for _ in 0..3 {
        stage.harness.pass(LEASE - MOMENT).await;
        stage.directory().heartbeat(&stage.alice).await.unwrap();
        let gone = stage
            .directory()
            .touch(&stage.alice, std::slice::from_ref(&id))
            .await;
        assert!(gone.unwrap().is_empty());
    }
    assert_eq!(stage.owner(&id).await.owner, stage.alice);
    stage.harness.pass(LEASE).await;
    assert_eq!(stage.lookup(&id).await, Lookup::Absent);
}

pub async fn rule_08_a_touch_returns_what_is_gone<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let [live, ended, unheard, bobs] = ["live", "ended", "unheard-of", "bobs"].map(session);
    stage.open(&live, PINNED).await;
    stage.open(&ended, PINNED).await;
    stage.directory().terminate(&ended, None).await.unwrap();
    stage.join(&stage.bob).await;
    stage
        .register(&bobs, &stage.bob, &SessionTerms::new(PINNED))
        .await;
    let ids = [live.clone(), ended.clone(), unheard.clone(), bobs.clone()];
    let mut gone = stage.directory().touch(&stage.alice, &ids).await.unwrap();
    gone.sort();
    let mut expected = vec![ended, unheard, bobs];
    expected.sort();
    assert_eq!(gone, expected);
}

pub async fn rule_09_a_registration_needs_a_lease_and_never_overwrites<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let terms = SessionTerms::new(PINNED);
    stage.open(&id, PINNED).await;
    stage.join(&stage.bob).await;
    let other = stage.directory().register(&id, &stage.bob, &terms).await;
    assert_eq!(other.unwrap(), Registered::Occupied);
    assert_eq!(stage.owner(&id).await.owner, stage.alice);
    stage.directory().terminate(&id, None).await.unwrap();
    for who in [&stage.alice, &stage.bob] {
        let again = stage.directory().register(&id, who, &terms).await;
        assert_eq!(again.unwrap(), Registered::Occupied);
    }
    assert_eq!(stage.lookup(&id).await, Lookup::Terminated);
    stage.harness.pass(LEASE).await;
    let lapsed = stage
        .directory()
        .register(&session("t"), &stage.alice, &terms)
        .await;
    assert_eq!(lapsed.unwrap(), Registered::NoLease);
    assert_eq!(stage.lookup(&session("t")).await, Lookup::Absent);
}

pub async fn rule_09_a_registration_whose_reply_was_lost_is_recognised<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let first = stage.open(&id, PINNED).await;
    assert_eq!(stage.open(&id, PINNED).await, first);
}

pub async fn rule_10_a_named_owner_takes_its_own_session_over_afresh<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let old = stage.open(&id, EXTERNALIZED).await;
    let TakeOver::Taken(new) = stage.take_over(&id, old, &stage.alice).await else {
        panic!("not taken");
    };
    assert!(new > old);
    let record = stage.owner(&id).await;
    assert_eq!((record.owner, record.fence), (stage.alice.clone(), new));
}

pub async fn rule_11_the_old_fence_is_worth_nothing_after_a_take_over<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let old = stage.open(&id, EXTERNALIZED).await;
    stage.alice_lapses().await;
    stage.take_over(&id, old, &stage.bob).await;
    stage.alice_lapses().await;
    // Everything that a sleeper could still do under the grant it fell asleep with.
    stage.join(&stage.alice).await;
    assert_eq!(
        stage.take_over(&id, old, &stage.alice).await,
        TakeOver::Lost
    );
    assert_eq!(stage.directory().bury(&id, old).await.unwrap(), Bury::Lost);
    let ended = stage.directory().terminate(&id, Some(old)).await;
    assert_eq!(ended.unwrap(), Terminated::Fenced);
    let gone = stage
        .directory()
        .touch(&stage.alice, std::slice::from_ref(&id))
        .await;
    assert_eq!(gone.unwrap(), std::slice::from_ref(&id));
    assert_eq!(stage.owner(&id).await.owner, stage.bob);
}

pub async fn rule_12_whoever_leaves_is_lapsed_at_once<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    stage.directory().leave(&stage.alice).await.unwrap();
    assert!(matches!(stage.lookup(&id).await, Lookup::Orphaned(_)));
    assert!(
        !stage
            .directory()
            .heartbeat(&stage.alice)
            .await
            .unwrap()
            .extended
    );
    assert_eq!(
        stage.directory().bury(&id, fence).await.unwrap(),
        Bury::Buried
    );
}

pub async fn rule_13_a_new_epoch_under_an_old_name_owns_nothing<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    let restarted = instance("alice");
    assert_ne!(restarted, stage.alice);
    stage.join(&restarted).await;
    assert_eq!(stage.owner(&id).await.owner, stage.alice);
    let claimed = stage
        .claim_one(&restarted, Standing::Lapsed, &id, fence, PINNED)
        .await;
    assert_eq!(claimed, Claimed::Taken);
    stage.harness.pass(LEASE).await;
    stage.join(&restarted).await;
    match stage.lookup(&id).await {
        Lookup::Orphaned(record) => assert_eq!(record.owner, stage.alice),
        other => panic!("{other:?}"),
    }
}
