//! The planned end of an instance with calls that run for nobody.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use mcp_session_guard::store::StoreErrorKind;
use serde_json::json;
use tokio::sync::Notify;
use tower::ServiceExt;

use crate::{
    Node, answer, call, is_replay, keyed, memory, settle,
    support::{Stage, directory::Fault},
};

fn held(node: &Node) -> Arc<Notify> {
    let go = Arc::new(Notify::new());
    let inner_go = Arc::clone(&go);
    node.inner.script(move |asked| {
        let go = Arc::clone(&inner_go);
        let answer = answer(&asked.body, &json!({"paid": 5}));
        async move {
            go.notified().await;
            answer
        }
    });
    go
}

#[tokio::test(start_paused = true)]
async fn a_retiring_instance_waits_for_calls_whose_client_has_left() {
    let stage = Stage::set();
    let instance = stage.instance("a").await;
    let node = Node::with(&memory(), |layer| layer.with_instance(instance.clone()));
    let go = held(&node);
    {
        let mut call = Box::pin(node.service.clone().oneshot(keyed("k", call(1))));
        assert!((&mut call).now_or_never().is_none());
    }
    let retiring = tokio::spawn({
        let instance = instance.clone();
        async move { instance.retire_within(Duration::from_secs(60)).await }
    });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!retiring.is_finished());
    go.notify_one();
    let retirement = retiring.await.unwrap();
    assert_eq!(retirement.unfinished_calls(), 0);
    assert!(is_replay(&node.call("k", 2).await));
}

#[tokio::test(start_paused = true)]
async fn it_waits_no_longer_than_the_grace_and_says_what_was_left() {
    let stage = Stage::set();
    let instance = stage.instance("a").await;
    let node = Node::with(&memory(), |layer| layer.with_instance(instance.clone()));
    let _go = held(&node);
    for (key, id) in [("a", 1), ("b", 2)] {
        let mut call = Box::pin(node.service.clone().oneshot(keyed(key, call(id))));
        assert!((&mut call).now_or_never().is_none());
    }
    settle().await;
    let retirement = instance.retire_within(Duration::from_secs(5)).await;
    assert_eq!(retirement.unfinished_calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_outcomes_that_are_not_recorded_yet() {
    let stage = Stage::set();
    let instance = stage.instance("a").await;
    let node = Node::with(&memory(), |layer| layer.with_instance(instance.clone()));
    node.ledger
        .set("complete", Fault::Fails(StoreErrorKind::Unavailable));
    assert_eq!(node.call("k", 1).await.status, 200);
    let retiring = tokio::spawn({
        let instance = instance.clone();
        async move { instance.retire_within(Duration::from_secs(60)).await }
    });
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!retiring.is_finished());
    node.ledger.heal();
    assert_eq!(retiring.await.unwrap().unfinished_calls(), 0);
    assert!(is_replay(&node.call("k", 2).await));
}
