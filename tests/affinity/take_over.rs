//! Sessions whose state is shared: taken over once, rehydrated by exactly one request, under a higher fence.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::join_all};
use http::StatusCode;
use mcp_session_guard::{
    affinity_guard::{AffinityGuardLayer, Disposition},
    instance::Lost,
    session::{Fence, Offer},
    store::StoreErrorKind,
};
use serde_json::json;
use tower::ServiceExt;

use crate::{
    Node,
    support::{
        Answer, CALL, LEASE, Stage, delete,
        directory::Fault,
        inner::{opening, respond},
        post,
    },
};

fn shared(layer: AffinityGuardLayer) -> AffinityGuardLayer {
    let offer = Offer::new(&json!({"tools": {}})).unwrap();
    layer.externalized().with_offer(offer)
}

async fn orphaned(stage: &Stage) -> (String, Fence) {
    let owner = Node::with(stage, "a", shared).await;
    let id = owner.open().await;
    owner.send(post(Some(&id), CALL)).await;
    let Some(Disposition::Owned { fence }) = owner.inner.take()[0].disposition else {
        panic!("no fence at the owner");
    };
    owner.crash();
    tokio::time::sleep(LEASE).await;
    (id, fence)
}

#[tokio::test(start_paused = true)]
async fn the_first_request_rehydrates_and_the_next_are_owned() {
    let stage = Stage::set();
    let node = Node::with(&stage, "b", shared).await;
    let (id, old) = orphaned(&stage).await;
    for expected in ["rehydrate", "owned", "owned"] {
        assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
        let asked = node.inner.take().remove(0);
        assert_eq!(asked.session.as_deref(), Some(&*id));
        let fence = match (asked.disposition, expected) {
            (Some(Disposition::Rehydrate { fence }), "rehydrate") => fence,
            (Some(Disposition::Owned { fence }), "owned") => fence,
            other => panic!("{other:?}"),
        };
        assert!(fence > old);
    }
    assert_eq!(node.directory.take_calls("take_over"), 1);
    assert_eq!(node.directory.take_calls("lookup"), 1);
}

#[tokio::test(start_paused = true)]
async fn of_requests_that_race_one_restores_and_none_overtakes_it() {
    let stage = Stage::set();
    let node = Node::with(&stage, "b", shared).await;
    let (id, _) = orphaned(&stage).await;
    let restored = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&restored);
    node.inner.script(move |asked| {
        let restores = matches!(asked.disposition, Some(Disposition::Rehydrate { .. }));
        let counter = Arc::clone(&counter);
        async move {
            if restores {
                tokio::time::sleep(Duration::from_millis(100)).await;
                counter.fetch_add(1, Ordering::SeqCst);
            }
            assert_eq!(counter.load(Ordering::SeqCst), 1);
            respond(StatusCode::OK, "{}")
        }
    });
    let requests = (0..20).map(|_| node.send(post(Some(&id), CALL)));
    for answer in join_all(requests).await {
        assert_eq!(answer.status, 200);
    }
    let marked = |asked: &crate::support::inner::Asked| {
        matches!(asked.disposition, Some(Disposition::Rehydrate { .. }))
    };
    assert_eq!(
        node.inner
            .take()
            .iter()
            .filter(|asked| marked(asked))
            .count(),
        1
    );
    assert_eq!(node.directory.take_calls("take_over"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restorer_that_fails_or_leaves_is_followed_by_another() {
    let stage = Stage::set();
    let node = Node::with(&stage, "b", shared).await;
    let (id, _) = orphaned(&stage).await;
    node.inner
        .script(|_| async { respond(StatusCode::INTERNAL_SERVER_ERROR, "store down") });
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 500);
    node.inner.take();
    // One that hangs, and whose client gives up.
    node.inner.script(|_| std::future::pending());
    let mut hanging = Box::pin(node.guard.clone().oneshot(post(Some(&id), CALL)));
    while node.inner.take().is_empty() {
        assert!(hanging.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    // Meanwhile the others are not left to wait for ever.
    let waiting = node.send(post(Some(&id), CALL)).await;
    assert_eq!(waiting.refusal(), (503, "session_unconfirmed"));
    drop(hanging);
    node.inner.unscript();
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
    let asked = node.inner.take();
    assert!(matches!(
        asked[0].disposition,
        Some(Disposition::Rehydrate { .. })
    ));
    assert_eq!(node.directory.take_calls("take_over"), 1);
}

#[tokio::test(start_paused = true)]
async fn two_instances_that_race_are_one_owner_and_one_refusal() {
    let stage = Stage::set();
    let nodes = [
        Node::with(&stage, "b", shared).await,
        Node::with(&stage, "c", shared).await,
    ];
    let (id, _) = orphaned(&stage).await;
    let answers = join_all(nodes.iter().map(|node| node.send(post(Some(&id), CALL)))).await;
    let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
}

#[tokio::test(start_paused = true)]
async fn what_this_instance_does_not_offer_is_not_taken_over() {
    let stage = Stage::set();
    let (id, _) = orphaned(&stage).await;
    let other = Offer::new(&json!({"tools": {}, "resources": {}})).unwrap();
    let node = Node::with(&stage, "b", |layer| layer.externalized().with_offer(other)).await;
    let refused = node.send(post(Some(&id), CALL)).await;
    assert_eq!(refused.refusal(), (409, "session_resume_rejected"));
    assert_eq!(refused.json()["error"]["data"]["action"], "reinitialize");
    // Nobody has told this one what it offers, and no client has made it tell.
    let silent = Node::with(&stage, "c", AffinityGuardLayer::externalized).await;
    let refused = silent.send(post(Some(&id), CALL)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    silent.open().await;
    assert_eq!(silent.send(post(Some(&id), CALL)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_take_over_whose_reply_was_lost_is_taken_over_afresh() {
    let stage = Stage::set();
    let node = Node::with(&stage, "b", shared).await;
    let (id, _) = orphaned(&stage).await;
    node.directory.set("take_over", Fault::LosesReply);
    let refused = node.send(post(Some(&id), CALL)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    node.directory.heal();
    // The directory names this instance as the owner of what it never heard that it got.
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
    let asked = node.inner.take();
    assert!(
        matches!(asked[0].disposition, Some(Disposition::Rehydrate { fence }) if fence.counter() == 3)
    );
}

#[tokio::test(start_paused = true)]
async fn a_pinned_session_that_is_named_here_and_is_not_here_is_ended() {
    let stage = Stage::set();
    let node = Node::start(&stage, "b").await;
    // As after a registration that the process forgot: named, and in nobody's memory.
    let id = mcp_session_guard::session::SessionId::parse("ghost").unwrap();
    let terms = mcp_session_guard::session::SessionTerms::default();
    mcp_session_guard::store::SessionDirectory::register(
        &stage.store,
        &id,
        node.instance.id(),
        &terms,
    )
    .await
    .unwrap();
    for _ in 0..2 {
        assert_eq!(node.send(post(Some("ghost"), CALL)).await.refusal().0, 404);
    }
    assert_eq!(node.directory.take_calls("terminate"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_old_owner_wakes_up_and_serves_nothing_of_it() {
    let stage = Stage::set();
    let lost = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&lost);
    let builder = stage.builder("a").on_lost(move |_, fence, why| {
        log.lock().unwrap().push((fence.counter(), why));
    });
    let old = Node::built(&stage, builder, "a", shared).await;
    let new = Node::with(&stage, "b", shared).await;
    let id = old.open().await;
    old.directory
        .set_all(Fault::Fails(StoreErrorKind::Unavailable));
    tokio::time::sleep(LEASE).await;
    assert_eq!(new.send(post(Some(&id), CALL)).await.status, 200);
    let refused = old.send(post(Some(&id), CALL)).await;
    assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
    old.directory.heal();
    old.instance.ready().await;
    assert_eq!(
        old.send(post(Some(&id), CALL)).await.refusal(),
        (409, "session_reassigned")
    );
    assert!(old.inner.take().is_empty());
    assert_eq!(*lost.lock().unwrap(), [(1, Lost::TakenOver)]);
    // Its end is not the old owner's to decide either.
    assert_eq!(old.send(delete(&id)).await.refusal().0, 409);
    assert_eq!(new.send(post(Some(&id), CALL)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_known_handshake_is_served_by_its_owner_only() {
    let stage = Stage::set();
    let owner = Node::with(&stage, "a", shared).await;
    owner.inner.script(|_| async {
        let mut response = opening("unseen");
        *response.body_mut() = respond(StatusCode::OK, "{}").into_body();
        response
    });
    let answer = owner.send(post(None, crate::support::INITIALIZE)).await;
    assert_eq!(answer.session(), "unseen");
    owner.inner.unscript();
    assert_eq!(owner.send(post(Some("unseen"), CALL)).await.status, 200);
    owner.crash();
    tokio::time::sleep(LEASE).await;
    let node = Node::with(&stage, "b", shared).await;
    let refused: Answer = node.send(post(Some("unseen"), CALL)).await;
    assert_eq!(refused.refusal(), (409, "session_resume_rejected"));
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_again_after_an_amnesia_is_rehydrated_and_not_served_from_an_old_copy() {
    let stage = Stage::set();
    let owner = Node::with(&stage, "a", shared).await;
    let id = owner.open().await;
    owner
        .directory
        .set_all(Fault::Fails(StoreErrorKind::Unavailable));
    tokio::time::sleep(LEASE).await;
    // Somebody may have served it meanwhile, under a grant that nobody remembers now.
    stage.store.lose_memory();
    owner.directory.heal();
    tokio::time::sleep(LEASE * 2).await;
    for rehydrates in [true, false] {
        assert_eq!(owner.send(post(Some(&id), CALL)).await.status, 200);
        let asked = owner.inner.take().remove(0);
        let marked = matches!(asked.disposition, Some(Disposition::Rehydrate { .. }));
        assert_eq!(marked, rehydrates);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_comes_through_late_ends_nothing_of_the_new_owners() {
    let stage = Stage::set();
    let old = Node::with(&stage, "a", shared).await;
    let new = Node::with(&stage, "b", shared).await;
    let id = old.open().await;
    let directory = old.directory.clone();
    old.inner.script(move |_| {
        let directory = directory.clone();
        async move {
            directory.set_all(Fault::Fails(StoreErrorKind::Unavailable));
            tokio::time::sleep(LEASE * 2).await;
            directory.heal();
            respond(StatusCode::NO_CONTENT, "")
        }
    });
    let deleting = tokio::spawn(old.guard.clone().oneshot(delete(&id)));
    tokio::time::sleep(LEASE + LEASE / 2).await;
    assert_eq!(new.send(post(Some(&id), CALL)).await.status, 200);
    let refused = Answer::read(deleting.await.unwrap().unwrap()).await;
    assert_eq!(refused.refusal(), (503, "outcome_unknown"));
    assert_eq!(new.send(post(Some(&id), CALL)).await.status, 200);
}
