//! Streams while it is in doubt whose the session is.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use tower::Layer;

use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer,
    resume_guard::{LogReach, ResumeGuardLayer},
    store::StoreErrorKind,
};

use super::{
    Pod, from, note, result, settle,
    support::{
        LEASE, Stage,
        directory::{Fault, Faulty},
        inner::Inner,
        post,
    },
};

const DOWN: Fault = Fault::Fails(StoreErrorKind::Unavailable);

async fn pod(stage: &Stage, name: &'static str) -> (Pod, Faulty) {
    let directory = Faulty::new(stage.store.clone());
    let instance = stage.join(stage.builder(name), directory.clone()).await;
    let inner = Inner::new(name);
    let taps = super::streaming(&inner, name);
    let resume = ResumeGuardLayer::new(instance.clone(), stage.store.clone())
        .with_log_reach(LogReach::Shared);
    let guard = AffinityGuardLayer::new(instance.clone())
        .externalized()
        .layer(resume.layer(inner.clone()));
    let pod = Pod {
        guard,
        inner,
        instance,
        taps,
    };
    (pod, directory)
}

#[tokio::test(start_paused = true)]
async fn output_is_held_while_in_doubt_and_goes_on_when_proven() {
    let stage = Stage::set();
    let (pod, directory) = pod(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    tap.event("0", &note("1"));
    reader.message().await;
    directory.set_all(DOWN);
    tokio::time::sleep(LEASE).await;
    tap.event("1", &note("2"));
    for _ in 0..3 {
        assert_eq!(reader.now().await, []);
        tokio::time::sleep(LEASE).await;
    }
    directory.heal();
    assert_eq!(reader.message().await.data.unwrap(), note("2"));
    tap.event("2", &result("1"));
    drop(tap);
    assert_eq!(reader.rest().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_ends_each_call_with_an_error_and_shows_nothing_more() {
    let stage = Stage::set();
    let (old, directory) = pod(&stage, "a").await;
    let (new, _) = pod(&stage, "b").await;
    let session = old.open().await;
    old.answer(post(
        Some(&session),
        super::call("0").replace("tools/call", "ping"),
    ))
    .await;
    // The new instance must know what it offers.
    new.open().await;
    let (tap, mut caller) = old.call(&session, "1").await;
    let mut listener = old.listen(&session).await;
    caller.next().await.unwrap();
    listener.next().await.unwrap();
    directory.set_all(DOWN);
    tokio::time::sleep(LEASE).await;
    // Taken over by whoever is asked.
    let ping = super::call("9").replace("tools/call", "ping");
    assert_eq!(new.answer(post(Some(&session), ping)).await.status, 200);
    tap.event("0", &note("stale"));
    settle().await;
    directory.heal();
    let error = caller.message().await;
    assert_eq!(error.error(), ("outcome_unknown".into(), json!(1)));
    assert_eq!(caller.next().await, None);
    assert_eq!(listener.rest().await, []);
    settle().await;
    assert!(tap.is_closed());
    // The id under which it was told is an end everywhere.
    assert_eq!(new.answer(from(&session, error.id())).await.status, 405);
}

#[tokio::test(start_paused = true)]
async fn a_resume_is_held_while_nothing_can_be_confirmed() {
    let stage = Stage::set();
    let (pod, directory) = pod(&stage, "a").await;
    let session = pod.open().await;
    let (tap, mut reader) = pod.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    drop(reader);
    tap.event("0", &result("1"));
    drop(tap);
    settle().await;
    directory.set_all(DOWN);
    tokio::time::sleep(LEASE).await;
    // For as long as it may come right again.
    let asked = Instant::now();
    let mut refused = pod.resume(&session, priming.id()).await;
    assert!(asked.elapsed() > Duration::from_secs(4), "{asked:?}");
    let error = refused.message().await;
    assert_eq!(error.error(), ("session_unconfirmed".into(), json!(1)));
    assert_eq!(refused.next().await, None);
    let heals = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        directory.heal();
    };
    let (mut again, ()) = tokio::join!(pod.resume(&session, priming.id()), heals);
    assert_eq!(again.rest().await.len(), 1);
}
