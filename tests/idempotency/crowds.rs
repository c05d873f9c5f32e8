//! Thousands of duplicates at once, on real threads.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;

use crate::{Node, answer, call, keyed};
use mcp_session_guard::store::MemoryStore;

const KEYS: usize = 20;
const DUPLICATES: usize = 500;

async fn crowd(wait: bool) {
    let store = MemoryStore::new();
    let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
    let nodes: Vec<_> = (0..3)
        .map(|_| {
            let node = Node::with(&store, |layer| match wait {
                true => layer
                    .waiting(std::time::Duration::from_secs(60))
                    .with_max_waiting(usize::MAX),
                false => layer,
            });
            let runs = Arc::clone(&runs);
            node.inner.script(move |asked| {
                let body: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
                let key = body["id"].as_u64().unwrap() as usize % KEYS;
                let run = runs[key].fetch_add(1, Ordering::SeqCst);
                let answer = answer(&asked.body, &json!({"key": key, "run": run}));
                async move {
                    tokio::task::yield_now().await;
                    answer
                }
            });
            node
        })
        .collect();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..KEYS * DUPLICATES {
        let node = nodes[number % nodes.len()].clone();
        calls.spawn(async move {
            let key = format!("k{}", number % KEYS);
            // The id is another one each time, as in a retry.
            let response = node.respond(keyed(&key, call(number as u64))).await;
            response.status().as_u16()
        });
    }
    let (mut answered, mut in_progress) = (0, 0);
    while let Some(status) = calls.join_next().await {
        match status.expect("no panic") {
            200 => answered += 1,
            409 => in_progress += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(answered + in_progress, KEYS * DUPLICATES);
    assert!(!wait || in_progress == 0, "{in_progress}");
    for (key, runs) in runs.iter().enumerate() {
        assert_eq!(runs.load(Ordering::SeqCst), 1, "key {key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_thousands_of_duplicates_at_three_instances_one_runs() {
    crowd(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn and_all_that_wait_get_its_outcome() {
    crowd(true).await;
}
