//! The cases of a directory that may have lost its memory.

#![allow(missing_docs, reason = "the name of each case says what it checks")]

use std::time::Duration;

use super::{DirectoryHarness, LEASE, Stage, session};
use crate::{
    session::{Residency, SessionId, SessionTerms},
    store::{
        Claimed, ClaimedSession, Lookup, SessionDirectory, Standing, StoreErrorKind, Terminated,
    },
};

const PINNED: Residency = Residency::Pinned;
const MOMENT: Duration = Duration::from_secs(1);

async fn is_recovering<H: DirectoryHarness>(stage: &Stage<H>, id: &SessionId) -> bool {
    match stage.directory().lookup(id).await {
        Err(error) => error.kind() == StoreErrorKind::Recovering,
        Ok(_) => false,
    }
}

pub async fn recovering_nothing_is_absent_and_nothing_is_orphaned<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    stage.harness.lose_memory().await;
    assert!(is_recovering(&stage, &id).await);
    assert!(is_recovering(&stage, &session("never-was")).await);
    let buried = stage.directory().bury(&id, fence).await;
    assert_eq!(buried.unwrap_err().kind(), StoreErrorKind::Recovering);
    stage.join(&stage.bob).await;
    let taken = stage.directory().take_over(&id, fence, &stage.bob).await;
    assert_eq!(taken.unwrap_err().kind(), StoreErrorKind::Recovering);
    // A lapse during the recovery proves nothing either.
    stage
        .claim_one(&stage.alice, Standing::Unbroken, &id, fence, PINNED)
        .await;
    stage.directory().leave(&stage.alice).await.unwrap();
    assert!(is_recovering(&stage, &id).await);
}

pub async fn recovering_an_unbroken_claim_is_held<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    stage.harness.lose_memory().await;
    let claimed = stage
        .claim_one(&stage.alice, Standing::Unbroken, &id, fence, PINNED)
        .await;
    assert_eq!(claimed, Claimed::Held(fence));
    let record = stage.owner(&id).await;
    assert_eq!((record.owner, record.fence), (stage.alice.clone(), fence));
    // New sessions may be opened meanwhile, under a fence of the new life.
    let new = stage.open(&session("new"), PINNED).await;
    assert!(new > fence);
}

pub async fn recovering_a_lapsed_claim_is_noted_and_held_later_under_a_higher_fence<
    H: DirectoryHarness,
>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    stage.harness.lose_memory().await;
    for _ in 0..2 {
        let claimed = stage
            .claim_one(&stage.alice, Standing::Lapsed, &id, fence, PINNED)
            .await;
        assert_eq!(claimed, Claimed::Noted);
        stage.harness.pass(LEASE / 2).await;
    }
    let claimed = stage
        .claim_one(&stage.alice, Standing::Lapsed, &id, fence, PINNED)
        .await;
    let Claimed::Held(higher) = claimed else {
        panic!("{claimed:?}");
    };
    assert!(higher > fence);
    assert_eq!(stage.owner(&id).await.fence, higher);
}

pub async fn recovering_a_repeated_tombstone_beats_every_claim<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    stage.alice_lapses().await;
    stage.directory().bury(&id, fence).await.unwrap();
    stage.harness.lose_memory().await;
    // The one that was buried speaks first, and claims more than is true.
    stage
        .claim_one(&stage.alice, Standing::Unbroken, &id, fence, PINNED)
        .await;
    let tombstones = std::slice::from_ref(&id);
    stage
        .claim(&stage.bob, Standing::Unbroken, &[], tombstones)
        .await;
    assert_eq!(stage.lookup(&id).await, Lookup::Terminated);
    for standing in [Standing::Unbroken, Standing::Lapsed] {
        let claimed = stage
            .claim_one(&stage.alice, standing, &id, fence, PINNED)
            .await;
        assert_eq!(claimed, Claimed::Buried);
    }
}

pub async fn recovering_an_unbroken_claim_beats_a_lapsed_one<H: DirectoryHarness>() {
    let externalized = Residency::Externalized;
    for lapsed_first in [true, false] {
        let stage = Stage::<H>::set().await;
        let id = session("s");
        let old = stage.open(&id, externalized).await;
        stage.alice_lapses().await;
        let new = match stage.take_over(&id, old, &stage.bob).await {
            crate::store::TakeOver::Taken(fence) => fence,
            other => panic!("{other:?}"),
        };
        stage.harness.lose_memory().await;
        let lapsed = stage.claim_one(&stage.alice, Standing::Lapsed, &id, old, externalized);
        let unbroken = stage.claim_one(&stage.bob, Standing::Unbroken, &id, new, externalized);
        if lapsed_first {
            assert_eq!(lapsed.await, Claimed::Noted);
            assert_eq!(unbroken.await, Claimed::Held(new));
        } else {
            assert_eq!(unbroken.await, Claimed::Held(new));
            assert_eq!(lapsed.await, Claimed::Taken);
        }
        let record = stage.owner(&id).await;
        assert_eq!((record.owner, record.fence), (stage.bob.clone(), new));
    }
}

pub async fn recovering_a_heartbeat_names_the_new_incarnation<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let before = stage.directory().heartbeat(&stage.alice).await.unwrap();
    stage.harness.lose_memory().await;
    let after = stage.directory().heartbeat(&stage.alice).await.unwrap();
    assert!(after.incarnation > before.incarnation);
    assert!(!after.extended);
    stage.harness.lose_memory().await;
    let again = stage.directory().heartbeat(&stage.alice).await.unwrap();
    assert!(again.incarnation > after.incarnation);
}

pub async fn recovering_forgotten_is_not_gone<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    stage.harness.lose_memory().await;
    let gone = stage
        .directory()
        .touch(&stage.alice, std::slice::from_ref(&id))
        .await;
    assert!(gone.unwrap().is_empty());
    // Nor may a fence end what is not known; the owner tries again after its claim.
    let ended = stage.directory().terminate(&id, Some(fence)).await;
    assert_eq!(ended.unwrap_err().kind(), StoreErrorKind::Recovering);
}

pub async fn recovering_no_fence_ends_what_may_have_a_higher_one<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    stage.harness.lose_memory().await;
    let claimed = stage
        .claim_one(&stage.alice, Standing::Lapsed, &id, fence, PINNED)
        .await;
    assert_eq!(claimed, Claimed::Noted);
    // What is noted may be an old grant's; whoever has a newer one has yet to speak.
    let ended = stage.directory().terminate(&id, Some(fence)).await;
    assert_eq!(ended.unwrap_err().kind(), StoreErrorKind::Recovering);
    assert_eq!(stage.owner(&id).await.owner, stage.alice);
}

pub async fn recovering_a_clients_delete_stands_when_the_owner_claims<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let id = session("s");
    let fence = stage.open(&id, PINNED).await;
    stage.harness.lose_memory().await;
    let ended = stage.directory().terminate(&id, None).await;
    assert_eq!(ended.unwrap(), Terminated::Ended);
    let claimed = stage
        .claim_one(&stage.alice, Standing::Unbroken, &id, fence, PINNED)
        .await;
    assert_eq!(claimed, Claimed::Buried);
}

pub async fn recovering_ends_and_what_nobody_claimed_is_absent<H: DirectoryHarness>() {
    let stage = Stage::<H>::set().await;
    let (kept, dropped) = (session("kept"), session("dropped"));
    let fence = stage.open(&kept, PINNED).await;
    stage.open(&dropped, PINNED).await;
    stage.harness.lose_memory().await;
    let claim = [ClaimedSession::new(
        kept.clone(),
        fence,
        SessionTerms::new(PINNED),
    )];
    stage.harness.pass(LEASE - MOMENT).await;
    stage
        .claim(&stage.alice, Standing::Unbroken, &claim, &[])
        .await;
    assert!(is_recovering(&stage, &dropped).await);
    stage.harness.pass(MOMENT).await;
    assert_eq!(stage.lookup(&dropped).await, Lookup::Absent);
    assert_eq!(stage.owner(&kept).await.owner, stage.alice);
    // Nobody may bring it back now.
    let claimed = stage
        .claim_one(&stage.alice, Standing::Lapsed, &dropped, fence, PINNED)
        .await;
    assert_eq!(claimed, Claimed::Absent);
}
