//! Sessions of real rmcp servers: at their owner, elsewhere, after a crash, and carried over by a shared store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use mcp_session_guard::affinity_guard::{Disposition, SelfContained, Switch};
use reqwest::Method;
use rmcp::{
    ServiceExt as _,
    model::CallToolRequestParams,
    transport::{
        StreamableHttpClientTransport,
        streamable_http_server::{
            StreamableHttpServerConfig,
            session::{SessionState, SessionStore, store::SessionStoreError},
        },
    },
};
use serde_json::json;

use crate::{LEASE, Pod, notebook, store};

#[tokio::test]
async fn a_session_is_served_where_it_lives_and_nowhere_else() {
    let store = store();
    let (owner, other) = (Pod::start("a", &store).await, Pod::start("b", &store).await);
    let mut client = owner.client();
    client.open().await;
    assert_eq!(client.append("one").await.result_text(), "one");
    assert_eq!(client.append("two").await.result_text(), "one|two");
    let elsewhere = client.at(other.served.url("/mcp"));
    let refused = elsewhere.append("lost").await;
    assert_eq!(
        (refused.status, refused.reason()),
        (409, Some("session_reassigned"))
    );
    assert_eq!(refused.message()["id"], 3);
    for method in [Method::GET, Method::DELETE] {
        let refused = crate::client::Client::send(elsewhere.request(method)).await;
        assert_eq!(refused.reason(), Some("session_reassigned"));
    }
    assert_eq!(client.append("three").await.result_text(), "one|two|three");
    let ended = crate::client::Client::send(client.request(Method::DELETE)).await;
    assert!(ended.status < 300, "{ended:?}");
    for client in [&client, &elsewhere] {
        let refused = client.append("late").await;
        assert_eq!(
            (refused.status, refused.reason()),
            (404, Some("session_not_found"))
        );
    }
    assert_eq!(owner.instance.figures().live_sessions, 0);
}

#[tokio::test]
async fn after_a_crash_the_truth_is_told_and_an_rmcp_client_recovers_by_itself() {
    let store = store();
    let (doomed, other) = (Pod::start("a", &store).await, Pod::start("b", &store).await);
    let mut client = doomed.client();
    client.open().await;
    client.append("one").await;
    let elsewhere = client.at(other.served.url("/mcp"));
    drop(doomed);
    let crashed = Instant::now();
    // Until it is proven gone nobody says so.
    let gone = loop {
        let refused = elsewhere.append("x").await;
        match (refused.status, refused.reason()) {
            (409, Some("session_reassigned")) => {}
            (404, Some("session_not_found")) => break refused,
            _ => panic!("{refused:?}"),
        }
        assert!(crashed.elapsed() < LEASE * 10);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(gone.message()["error"]["data"]["action"], "reinitialize");

    let transport = StreamableHttpClientTransport::from_uri(other.served.url("/mcp"));
    let real = ().serve(transport).await.expect("initializes");
    let arguments = json!({"text": "real"}).as_object().cloned().unwrap();
    let call = CallToolRequestParams::new("append").with_arguments(arguments);
    let result = real.call_tool(call).await.expect("a result");
    assert_eq!(result.content[0].as_text().unwrap().text, "real");
    real.cancel().await.expect("closes");
}

/// What rmcp shares between instances: the parameters of each handshake.
#[derive(Debug, Default)]
struct Handshakes(Mutex<HashMap<String, SessionState>>);

#[async_trait::async_trait]
impl SessionStore for Handshakes {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        // Slow enough for requests to race.
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(self.0.lock().unwrap().get(id).cloned())
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        self.0.lock().unwrap().insert(id.to_owned(), state.clone());
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        self.0.lock().unwrap().remove(id);
        Ok(())
    }
}

#[tokio::test]
async fn an_externalized_session_goes_on_elsewhere_once_its_owner_is_gone() {
    let store = store();
    let handshakes = Arc::new(Handshakes::default());
    let pod = async |name| {
        let mut config = StreamableHttpServerConfig::default();
        config.session_store = Some(handshakes.clone());
        Pod::with(
            name,
            &store,
            |l| l.externalized(),
            notebook::configured(config),
        )
        .await
    };
    let (doomed, other) = (pod("a").await, pod("b").await);
    // The second instance learns what it offers from a client of its own.
    other.client().open().await;
    let mut client = doomed.client();
    client.open().await;
    let elsewhere = client.at(other.served.url("/mcp"));
    let refused = elsewhere.append("x").await;
    assert_eq!(refused.reason(), Some("session_reassigned"));
    let retired = doomed.instance.retire().await;
    assert_eq!(retired.unfinished_calls(), 0);
    // At once after a planned end, and however many ask.
    let calls = (0..8).map(|_| elsewhere.append("x"));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.result_text().starts_with('x'));
    }
    assert_eq!(
        elsewhere.append("y").await.result_text(),
        "x|x|x|x|x|x|x|x|y"
    );
    let refused = client.append("z").await;
    assert_eq!(refused.reason(), Some("session_reassigned"));
}

#[tokio::test]
async fn a_switch_serves_what_is_self_contained_from_a_service_without_sessions() {
    let store = store();
    let owner = Pod::start("a", &store).await;
    let instance = crate::join("b", &store).await;
    let mut stateless = StreamableHttpServerConfig::default();
    stateless.legacy_session_mode = false;
    stateless.json_response = true;
    let switch = Switch::new(notebook::service(), notebook::configured(stateless));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let noted = tower::ServiceBuilder::new()
        .map_request(move |request: http::Request<_>| {
            log.lock().unwrap().push(Disposition::of(&request));
            request
        })
        .service(switch);
    let layer = mcp_session_guard::affinity_guard::AffinityGuardLayer::new(instance)
        .stateless_for(SelfContained::new().method("tools/list"));
    let router = axum::Router::new().route_service("/mcp", tower::Layer::layer(&layer, noted));
    let served = crate::Served::router(router).await;
    let mut client = owner.client();
    client.open().await;
    let elsewhere = client.at(served.url("/mcp"));
    let list = json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list"});
    let answer = elsewhere.post(list).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.message()["id"], "l");
    assert!(
        answer.message()["result"]["tools"]
            .as_array()
            .unwrap()
            .len()
            > 1
    );
    assert_eq!(*seen.lock().unwrap(), [Some(Disposition::Stateless)]);
    assert_eq!(
        elsewhere.append("x").await.reason(),
        Some("session_reassigned")
    );
}
