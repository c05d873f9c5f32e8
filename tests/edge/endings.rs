//! Instances that end, and what the clients of their sessions are told through an edge.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::{
    client::Client,
    edge::{Edge, Program},
    homes::came_to,
    manners::hear,
    pods::{Help, addresses, three},
    until,
};

const TOKEN: Help = Help {
    token: true,
    forwarder: false,
};

/// Opens sessions until one is where it is wanted.
async fn session_at(edge: &Edge, name: &str) -> Client {
    until(name, async || {
        let mut client = Client::new(edge.url());
        let opened = client.open().await;
        (came_to(&opened) == name).then_some(client)
    })
    .await
}

#[tokio::test]
async fn the_sessions_of_a_dead_instance_are_told_gone_and_no_others_are() {
    for (program, recipe, token) in [
        (Program::Nginx, "token", true),
        (Program::Nginx, "round-robin", false),
        (Program::HaProxy, "token", true),
        (Program::HaProxy, "stick", false),
    ] {
        let help = Help {
            token,
            forwarder: !token,
        };
        let [first, doomed, last] = three(help).await;
        let pods = [first.address, doomed.address, last.address];
        let edge = Edge::start(program, recipe, pods).await;
        let lost = session_at(&edge, doomed.name).await;
        let kept = session_at(&edge, last.name).await;
        doomed.crash().await;
        until("a 404", async || {
            let refused = lost.append("x").await;
            match (refused.status, refused.reason()) {
                (404, Some("session_not_found")) => Some(()),
                (409, Some("session_reassigned"))
                | (503, Some("session_unconfirmed" | "outcome_unknown")) => None,
                _ => panic!("{program:?} {recipe}: {refused:?}"),
            }
        })
        .await;
        assert_eq!(kept.append("x").await.result_text(), "x");
    }
}

#[tokio::test]
async fn a_retiring_instance_gets_no_new_sessions_and_keeps_those_it_has() {
    for recipe in ["token", "stick"] {
        let pods = three(TOKEN).await;
        let edge = Edge::start(Program::HaProxy, recipe, addresses(&pods)).await;
        let client = session_at(&edge, "pod-a").await;
        // Its running call keeps it.
        let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {
            "name": "count", "arguments": {"steps": 1, "every_ms": 3_600_000},
            "_meta": {"progressToken": "p"}}});
        let call = client.request(Method::POST).json(&call).send();
        let mut call = call.await.expect("a stream");
        hear(&mut call, "notifications/progress").await;
        let pod = pods[0].instance.clone();
        let hour = Duration::from_secs(3600);
        let retiring = tokio::spawn(async move { pod.retire_within(hour).await });
        until("no new session there", async || {
            for _ in 0..9 {
                let opened = Client::new(edge.url()).initialize().await;
                if came_to(&opened) == "pod-a" {
                    assert_eq!(opened.reason(), Some("instance_retiring"));
                    return None;
                }
            }
            Some(())
        })
        .await;
        let answer = client.append("x").await;
        assert_eq!(
            (came_to(&answer), answer.result_text()),
            ("pod-a", "x".into())
        );
        retiring.abort();
    }
}
