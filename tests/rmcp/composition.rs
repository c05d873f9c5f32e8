//! Every way of putting the layer around a service that users have, each on a real server.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, routing::get};
use http::StatusCode;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use mcp_session_guard::affinity_guard::AffinityGuardLayer;
use reqwest::Method;
use tokio::net::TcpListener;
use tower::{Layer, ServiceBuilder, buffer::BufferLayer, limit::ConcurrencyLimitLayer};
use tower_http::{
    compression::CompressionLayer, limit::RequestBodyLimitLayer, timeout::TimeoutLayer,
    trace::TraceLayer,
};

use crate::{Served, client::Client, join, notebook, store};

/// A session can be opened, used and ended, and a session of nobody is refused.
async fn works(url: String) {
    let mut client = Client::new(url);
    client.open().await;
    assert_eq!(client.append("a").await.result_text(), "a");
    assert_eq!(client.append("b").await.result_text(), "a|b");
    let mut stranger = client.at(client.url.clone());
    stranger.session = Some("opened-by-nobody".to_owned());
    let refused = stranger.append("c").await;
    assert_eq!(
        (refused.status, refused.reason()),
        (404, Some("session_not_found"))
    );
    let ended = Client::send(client.request(Method::DELETE)).await;
    assert!(ended.status < 300, "{ended:?}");
    assert_eq!(client.append("d").await.status, 404);
}

#[tokio::test]
async fn router_layer_guards_the_routes_before_it_and_no_others() {
    let instance = join("a", &store()).await;
    let router = Router::new()
        .nest_service("/mcp", notebook::service())
        .layer(AffinityGuardLayer::new(instance))
        .route("/health", get(|| async { "ok" }))
        .nest_service("/unguarded", notebook::service());
    let served = Served::router(router).await;
    works(served.url("/mcp")).await;
    let mut client = Client::new(served.url("/health"));
    client.session = Some("opened-by-nobody".to_owned());
    let answer = Client::send(client.request(Method::GET)).await;
    assert_eq!((answer.status, &*answer.text), (200, "ok"));
    client.url = served.url("/unguarded");
    let answer = client.append("x").await;
    assert_eq!((answer.status, answer.reason()), (404, None));
}

#[tokio::test]
async fn nested_routers_with_an_instance_each() {
    let store = store();
    let guarded = async |name| {
        let layer = AffinityGuardLayer::new(join(name, &store).await);
        Router::new()
            .route_service("/mcp", notebook::service())
            .layer(layer)
    };
    let router = Router::new()
        .nest("/one", guarded("one").await)
        .nest("/api", Router::new().nest("/two", guarded("two").await));
    let served = Served::router(router).await;
    works(served.url("/one/mcp")).await;
    works(served.url("/api/two/mcp")).await;
    let mut client = Client::new(served.url("/one/mcp"));
    client.open().await;
    let crossed = client.at(served.url("/api/two/mcp")).append("x").await;
    assert_eq!(crossed.reason(), Some("session_reassigned"));
}

/// The layer directly around rmcp's service, under hyper-util, without axum.
async fn hyper(http2: bool) {
    let instance = join("a", &store()).await;
    let guard = AffinityGuardLayer::new(instance).layer(notebook::service());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let service = TowerToHyperService::new(guard.clone());
            tokio::spawn(async move {
                let mut builder = auto::Builder::new(TokioExecutor::new());
                if http2 {
                    builder = builder.http2_only();
                } else {
                    builder = builder.http1_only();
                }
                let _ = builder
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    let builder = reqwest::Client::builder();
    let builder = if http2 {
        builder.http2_prior_knowledge()
    } else {
        builder.http1_only()
    };
    let mut client = Client::with(builder, format!("http://{address}/mcp"));
    client.open().await;
    assert_eq!(client.append("a").await.result_text(), "a");
    // A stream stays open beside calls on the same session.
    let stream = client.request(Method::GET).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    let calls = (0..10).map(|_| client.call("wait", serde_json::json!({})));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.result_text(), "waited");
    }
    drop(stream);
    assert_eq!(client.append("b").await.result_text(), "a|b");
    server.abort();
}

#[tokio::test]
async fn hyper_util_with_http_1() {
    hyper(false).await;
}

#[tokio::test]
async fn hyper_util_with_http_2() {
    hyper(true).await;
}

#[tokio::test]
async fn inside_a_service_builder_with_tower_http() {
    let instance = join("a", &store()).await;
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            Duration::from_secs(20),
        ))
        .layer(CompressionLayer::new())
        .layer(RequestBodyLimitLayer::new(1 << 20))
        .layer(AffinityGuardLayer::new(instance))
        .service(notebook::service());
    let served = Served::router(Router::new().route_service("/mcp", stack)).await;
    works(served.url("/mcp")).await;
    let mut client = Client::new(served.url("/mcp"));
    client.open().await;
    // The outer limit is told in its own words, also where the guard reads the body.
    let long = client.append(&"x".repeat(2 << 20)).await;
    assert_eq!((long.status, long.reason()), (413, None));
    client.session = None;
    let long = client.append(&"x".repeat(2 << 20)).await;
    assert_eq!(long.status, 413);
}

// tower-rs/tower-http#420
#[tokio::test]
async fn compression_outside_the_guard_does_not_hold_events_back() {
    let instance = join("a", &store()).await;
    let stack = ServiceBuilder::new()
        .layer(CompressionLayer::new())
        .layer(AffinityGuardLayer::new(instance))
        .service(notebook::service());
    let served = Served::router(Router::new().route_service("/mcp", stack)).await;
    let mut client = Client::new(served.url("/mcp"));
    client.open().await;
    let request = client
        .request(Method::GET)
        .header("accept-encoding", "gzip");
    let mut stream = request.send().await.unwrap();
    assert_eq!(stream.status(), 200);
    // rmcp's priming event, while the stream stays open.
    let first = tokio::time::timeout(Duration::from_secs(10), stream.chunk()).await;
    let first = first.expect("an event in time").unwrap().expect("an event");
    assert!(!first.is_empty());
    let plain = Client::send(client.request(Method::POST).json(&serde_json::json!(
        {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    )))
    .await;
    assert_eq!(plain.message()["id"], 1);
}

#[tokio::test]
async fn around_services_with_real_readiness() {
    let store = store();
    let limited = ServiceBuilder::new()
        .layer(AffinityGuardLayer::new(join("a", &store).await))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(notebook::service());
    let buffered = ServiceBuilder::new()
        .layer(AffinityGuardLayer::new(join("b", &store).await))
        .layer(BufferLayer::new(4))
        .service(notebook::service());
    let buffered = tower::util::MapErr::new(buffered, |error| -> Infallible { panic!("{error}") });
    let router = Router::new()
        .route_service("/limited", limited)
        .route_service("/buffered", buffered);
    let served = Arc::new(Served::router(router).await);
    for path in ["/limited", "/buffered"] {
        works(served.url(path)).await;
        let mut client = Client::new(served.url(path));
        client.open().await;
        let calls = (0..20).map(|_| client.append("x"));
        let mut lengths: Vec<_> = futures_util::future::join_all(calls)
            .await
            .iter()
            .map(|answer| answer.result_text().len())
            .collect();
        lengths.sort_unstable();
        let expected: Vec<_> = (1..=20).map(|n| 2 * n - 1).collect();
        assert_eq!(lengths, expected);
    }
}
