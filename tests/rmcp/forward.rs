//! Three instances behind plain round robin, each of which hands what is not its own to the owner.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::OriginalUri, http::Request};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use mcp_session_guard::{
    affinity_guard::{AffinityGuardLayer, HttpForwarder},
    instance::Instance,
    store::MemoryStore,
};
use reqwest::Method;
use rmcp::{
    ServiceExt as _, model::CallToolRequestParams, transport::StreamableHttpClientTransport,
};
use serde_json::json;
use tower::Layer;

use crate::{LEASE, Served, client::Client, notebook, port, store};

/// Under a nested router, which cuts the path.
const PATH: &str = "/api/mcp";

async fn start(name: &str, store: &MemoryStore) -> Served {
    let listener = port().await;
    let address = listener.local_addr().expect("an address");
    let instance = Instance::builder(name)
        .with_address(format!("http://{address}"))
        .with_lease(LEASE)
        .join(store.clone())
        .expect("joins");
    instance.ready().await;
    let forwarder = HttpForwarder::new().with_target(|head| {
        head.extensions
            .get::<OriginalUri>()?
            .path_and_query()
            .cloned()
    });
    let layer = AffinityGuardLayer::new(instance).with_forwarder(forwarder);
    let guarded = Router::new().route_service("/mcp", layer.layer(notebook::service()));
    Served::on(listener, Router::new().nest("/api", guarded))
}

async fn three(store: &MemoryStore) -> [Served; 3] {
    [
        start("a", store).await,
        start("b", store).await,
        start("c", store).await,
    ]
}

/// An edge that knows nothing of sessions: each request goes to the next instance.
async fn round_robin(pods: &[Served; 3]) -> Served {
    let client: HttpClient<HttpConnector, Body> =
        HttpClient::builder(TokioExecutor::new()).build_http();
    let addresses = pods.each_ref().map(|pod| pod.address);
    let turn = Arc::new(AtomicUsize::new(0));
    let pass = move |mut request: Request<Body>| {
        let at = addresses[turn.fetch_add(1, Ordering::Relaxed) % addresses.len()];
        let target = request.uri().path_and_query().expect("a path").clone();
        *request.uri_mut() = format!("http://{at}{target}").parse().expect("a target");
        let client = client.clone();
        async move {
            client
                .request(request)
                .await
                .expect("an answer")
                .map(Body::new)
        }
    };
    Served::router(Router::new().fallback(pass)).await
}

#[tokio::test]
async fn behind_round_robin_every_session_is_served_correctly() {
    let store = store();
    let pods = three(&store).await;
    let edge = round_robin(&pods).await;
    let mut clients: Vec<_> = (0..6).map(|_| Client::new(edge.url(PATH))).collect();
    for client in &mut clients {
        client.open().await;
    }
    for round in 1..=4 {
        for client in &clients {
            let text = client.append("x").await.result_text();
            assert_eq!(text, vec!["x"; round].join("|"));
        }
    }
    for client in &clients {
        let ended = Client::send(client.request(Method::DELETE)).await;
        assert!(ended.status < 300, "{ended:?}");
        let late = client.append("late").await;
        assert_eq!(
            (late.status, late.reason()),
            (404, Some("session_not_found"))
        );
    }
}

#[tokio::test]
async fn an_rmcp_client_does_not_notice() {
    let store = store();
    let pods = three(&store).await;
    let edge = round_robin(&pods).await;
    let transport = StreamableHttpClientTransport::from_uri(edge.url(PATH));
    let client = ().serve(transport).await.expect("initializes");
    for count in 1..=7 {
        let call = CallToolRequestParams::new("count")
            .with_arguments(json!({"steps": 3}).as_object().cloned().unwrap());
        let result = client.call_tool(call).await.expect("a result");
        let text = &result.content[0].as_text().unwrap().text;
        assert_eq!(*text, format!("call {count}"));
    }
    client.cancel().await.expect("closes");
}

#[tokio::test]
async fn a_dead_owner_is_unconfirmed_until_its_session_is_proven_gone() {
    let store = store();
    let pods = three(&store).await;
    let mut client = Client::new(pods[0].url(PATH));
    client.open().await;
    client.append("one").await;
    let client = client.at(pods[1].url(PATH));
    assert_eq!(client.append("two").await.result_text(), "one|two");
    let [doomed, _left, _other] = pods;
    drop(doomed);
    let crashed = Instant::now();
    let mut unconfirmed = 0;
    loop {
        let refused = client.append("x").await;
        match (refused.status, refused.reason()) {
            // The connection that was open broke, or none could be made.
            (503, Some("session_unconfirmed" | "outcome_unknown")) => unconfirmed += 1,
            (404, Some("session_not_found")) => break,
            _ => panic!("{refused:?}"),
        }
        assert!(crashed.elapsed() < LEASE * 10);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(unconfirmed > 0);
}
