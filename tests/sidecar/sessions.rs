//! Sessions of servers that know nothing of the guards.

#[cfg(feature = "redis")]
use mcp_session_guard::session::{Epoch, InstanceId};
use mcp_session_guard::store::{EventStore, MemoryStore, RequestLedger, SessionDirectory};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    DEADLINE,
    client::Client,
    options::Options,
    peers::{Kind, Peer},
    rig::{Event, Sidecar, Stream},
};

const BOTH: [Kind; 2] = [Kind::TypeScript, Kind::Python];

/// A call that tells of its steps.
fn steps(kind: Kind, client: &Client) -> RequestBuilder {
    let (name, arguments) = match kind {
        Kind::TypeScript => (
            "trigger-long-running-operation",
            json!({"duration": 1, "steps": 4}),
        ),
        Kind::Python => ("count", json!({"steps": 4})),
    };
    let call = json!({"jsonrpc": "2.0", "id": "steps", "method": "tools/call", "params": {
        "name": name, "arguments": arguments, "_meta": {"progressToken": 1}}});
    let posted = client.request(Method::POST).json(&call);
    posted.header("mcp-protocol-version", "2025-11-25")
}

fn told(events: &[Event]) -> Vec<&Value> {
    let steps = events
        .iter()
        .map(|event| &event.message["params"]["progress"]);
    steps.filter(|step| !step.is_null()).collect()
}

fn answered(events: &[Event]) {
    let (last, before) = events.split_last().expect("an answer");
    assert_eq!(last.message["id"], "steps", "{events:?}");
    assert!(last.message["result"]["content"].is_array(), "{events:?}");
    assert!(before.iter().all(|event| event.message["id"].is_null()));
}

#[tokio::test]
async fn a_session_goes_from_beginning_to_end() {
    for kind in BOTH {
        let peer = Peer::start(kind).await;
        let sidecar = Sidecar::before(&peer.url()).await;
        let mut client = sidecar.client();
        let opened = client.open().await;
        assert_eq!(opened.message()["result"]["protocolVersion"], "2025-11-25");
        let own = client.request(Method::GET);
        let own = Stream::of(own.header("mcp-protocol-version", "2025-11-25")).await;

        let events = Stream::of(steps(kind, &client)).await.rest().await;
        assert_eq!(told(&events), [1, 2, 3, 4], "{kind:?}: {events:?}");
        answered(&events);
        // Numbered by the guard, whatever the server's own ids are.
        assert!(events.iter().all(|event| event.id.starts_with("g1.")));

        if kind == Kind::Python {
            assert_eq!(client.append("one").await.result_text(), "one");
            assert_eq!(client.append("two").await.result_text(), "one|two");
        }
        drop(own);
        let ended = Client::send(client.request(Method::DELETE)).await;
        assert_eq!(ended.status, 200, "{kind:?}: {ended:?}");
        let late = client.append("late").await;
        let told = (late.status, late.reason());
        assert_eq!(told, (404, Some("session_not_found")), "{kind:?}");
    }
}

#[tokio::test]
async fn who_comes_back_hears_the_rest_once() {
    for kind in BOTH {
        let peer = Peer::start(kind).await;
        let sidecar = Sidecar::before(&peer.url()).await;
        let mut client = sidecar.client();
        client.open().await;
        let mut call = Stream::of(steps(kind, &client)).await;
        let first = call.next().await.expect("a step");
        let cursor = call.last_id.clone();
        drop(call);
        let back = client.request(Method::GET).header("last-event-id", cursor);
        let mut events = Stream::of(back).await.rest().await;
        events.insert(0, first);
        assert_eq!(told(&events), [1, 2, 3, 4], "{kind:?}: {events:?}");
        answered(&events);
    }
}

#[tokio::test]
async fn a_session_that_nobody_opened_never_gets_to_the_server() {
    let peer = Peer::start(Kind::TypeScript).await;
    let sidecar = Sidecar::before(&peer.url()).await;
    let mut client = sidecar.client();
    client.session = Some("nobodys".into());
    let refused = client.append("x").await;
    // The server itself says 400.
    assert_eq!(
        (refused.status, refused.reason()),
        (404, Some("session_not_found"))
    );
}

#[tokio::test]
async fn two_sidecars_on_one_store_serve_each_other_s_sessions() {
    serve_each_other(MemoryStore::new()).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn two_sidecars_on_one_redis_serve_each_other_s_sessions() {
    let server = crate::redis::Server::start();
    let store = server.store().await;
    // A server that nobody knows may have lost its memory, until the longest lease is over.
    let nobody = InstanceId::new("nobody", Epoch::mint().expect("randomness"));
    store.heartbeat(&nobody).await.expect("heartbeat");
    server.pass(std::time::Duration::from_secs(61));
    serve_each_other(store).await;
}

async fn serve_each_other(store: impl SessionDirectory + EventStore + RequestLedger + Clone) {
    let peers = [
        Peer::start(Kind::Python).await,
        Peer::start(Kind::Python).await,
    ];
    let token =
        |token: &'static str| move |options: &mut Options| options.token = Some(token.into());
    let sidecars = [
        Sidecar::with(&peers[0].url(), store.clone(), token("a")).await,
        Sidecar::with(&peers[1].url(), store, token("b")).await,
    ];
    let mut client = sidecars[0].client();
    client.open().await;
    let session = client.session.as_deref().expect("a session");
    assert!(session.ends_with("~a"), "{session}");
    let elsewhere = client.at(sidecars[1].url());
    assert_eq!(client.append("one").await.result_text(), "one");
    assert_eq!(elsewhere.append("two").await.result_text(), "one|two");
    let events = Stream::of(steps(Kind::Python, &elsewhere))
        .await
        .rest()
        .await;
    assert_eq!(told(&events), [1, 2, 3, 4], "{events:?}");
    let ended = Client::send(elsewhere.request(Method::DELETE)).await;
    assert_eq!(ended.status, 200, "{ended:?}");
    for client in [&client, &elsewhere] {
        let late = client.append("late").await;
        let told = (late.status, late.reason());
        assert_eq!(told, (404, Some("session_not_found")));
    }
}

#[tokio::test]
async fn a_sidecar_that_is_told_to_end_lets_its_calls_finish() {
    let peer = Peer::start(Kind::TypeScript).await;
    let sidecar = Sidecar::before(&peer.url()).await;
    let mut client = sidecar.client();
    client.open().await;
    let own = client.request(Method::GET);
    let own = Stream::of(own.header("mcp-protocol-version", "2025-11-25")).await;
    let mut call = Stream::of(steps(Kind::TypeScript, &client)).await;
    let first = call.next().await.expect("a step");
    sidecar.end();
    // New sessions go elsewhere, and this one is still served.
    let refused = timeout(DEADLINE, async {
        loop {
            let opened = sidecar.client().initialize().await;
            if opened.status != 200 {
                return opened;
            }
        }
    });
    let refused = refused.await.expect("it retires");
    assert_eq!(
        (refused.status, refused.reason()),
        (503, Some("instance_retiring"))
    );
    let mut events = call.rest().await;
    events.insert(0, first);
    assert_eq!(told(&events), [1, 2, 3, 4], "{events:?}");
    answered(&events);
    own.rest().await;
    sidecar.ended().await;
}
