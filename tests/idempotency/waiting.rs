//! Retries that wait for the call that runs, here and at another instance.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::StatusCode;
use serde_json::json;
use tokio::sync::Notify;

use crate::{
    LEASE, Node, answer, call, keyed, memory, settle,
    support::{directory::Fault, inner::respond},
};

/// Has calls run until they are let go.
fn held(node: &Node, status: u16) -> Arc<Notify> {
    let go = Arc::new(Notify::new());
    let inner_go = Arc::clone(&go);
    node.inner.script(move |asked| {
        let go = Arc::clone(&inner_go);
        let answer = match status {
            200 => answer(&asked.body, &json!({"paid": 5})),
            other => respond(StatusCode::from_u16(other).unwrap(), ""),
        };
        async move {
            go.notified().await;
            answer
        }
    });
    go
}

type Told = Arc<Mutex<Vec<(u16, bool)>>>;

/// Sends a request on a task, and notes how it was answered.
fn send(node: &Node, id: u64, told: &Told) {
    let (node, told) = (node.clone(), Arc::clone(told));
    tokio::spawn(async move {
        let response = node.respond(keyed("k", call(id))).await;
        let replayed = response.headers().contains_key("idempotency-replayed");
        told.lock()
            .unwrap()
            .push((response.status().as_u16(), replayed));
    });
}

fn taken(told: &Told) -> Vec<(u16, bool)> {
    std::mem::take(&mut told.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn who_waits_gets_the_first_outcome_here_at_once_and_elsewhere_soon() {
    let store = memory();
    let wait = |layer: mcp_session_guard::idempotency_key::IdempotencyKeyLayer| {
        layer.waiting(Duration::from_secs(60))
    };
    let (node, other) = (Node::with(&store, wait), Node::with(&store, wait));
    let go = held(&node, 200);
    let (first, here, elsewhere) = (Told::default(), Told::default(), Told::default());
    send(&node, 1, &first);
    settle().await;
    for id in 2..5 {
        send(&node, id, &here);
        send(&other, id, &elsewhere);
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(taken(&here).is_empty() && taken(&elsewhere).is_empty());
    go.notify_one();
    settle().await;
    assert_eq!(taken(&first), [(200, false)]);
    assert_eq!(taken(&here), [(200, true); 3]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(taken(&elsewhere), [(200, true); 3]);
    assert_eq!((node.runs(), other.runs()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_longer_than_they_may() {
    let node = Node::with(&memory(), |layer| layer.waiting(Duration::from_secs(5)));
    let _go = held(&node, 200);
    let told = Told::default();
    send(&node, 1, &told);
    settle().await;
    send(&node, 2, &told);
    tokio::time::sleep(Duration::from_millis(4900)).await;
    assert!(taken(&told).is_empty());
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(taken(&told), [(409, false)]);
}

#[tokio::test(start_paused = true)]
async fn no_more_wait_than_may() {
    let node = Node::with(&memory(), |layer| {
        layer.waiting(Duration::from_secs(60)).with_max_waiting(2)
    });
    let go = held(&node, 200);
    let (first, told) = (Told::default(), Told::default());
    send(&node, 1, &first);
    settle().await;
    for id in 2..7 {
        send(&node, id, &told);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(taken(&told), [(409, false); 3]);
    go.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(taken(&told), [(200, true); 2]);
    // Their places are free again.
    send(&node, 8, &told);
    settle().await;
    assert_eq!(taken(&told), [(200, true)]);
}

#[tokio::test(start_paused = true)]
async fn one_of_those_that_wait_runs_what_did_not_run() {
    let node = Node::with(&memory(), |layer| layer.waiting(Duration::from_secs(60)));
    let go = held(&node, 503);
    let told = Told::default();
    for id in 1..4 {
        send(&node, id, &told);
        settle().await;
    }
    go.notify_one();
    settle().await;
    assert_eq!(taken(&told), [(503, false)]);
    // One of the two, and the other waits for it.
    assert_eq!(node.runs(), 2);
    let _go = held(&node, 200);
    go.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(taken(&told), [(503, false)]);
    assert_eq!(node.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_process_that_died_is_told_so() {
    let store = memory();
    let dead = Node::with(&store, |layer| layer);
    let node = Node::with(&store, |layer| layer.waiting(Duration::from_secs(120)));
    let _go = held(&dead, 200);
    dead.ledger.set("renew", Fault::Hangs);
    let (first, told) = (Told::default(), Told::default());
    send(&dead, 1, &first);
    settle().await;
    send(&node, 2, &told);
    tokio::time::sleep(LEASE - Duration::from_secs(1)).await;
    assert!(taken(&told).is_empty());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(taken(&told), [(409, false)]);
    assert_eq!(node.runs(), 0);
}
