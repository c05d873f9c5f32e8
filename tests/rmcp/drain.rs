//! The drain layer around real rmcp servers.

use std::{sync::Arc, time::Duration};

use axum::Router;
use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer, drain_credit::DrainCreditLayer,
    resume_guard::ResumeGuardLayer,
};
use reqwest::Method;
use rmcp::{
    RoleServer, ServerHandler,
    model::{ServerCapabilities, ServerConfig},
    service::RequestContext,
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    time::{sleep, timeout},
};
use tower::{Layer, ServiceBuilder};

use crate::{Served, client::Client, join, store};

const PATIENCE: Duration = Duration::from_secs(30);

/// Notifies its client of much more than anybody buffers, on the session's own stream.
#[derive(Clone)]
struct Loud;

#[tool_router]
impl Loud {
    #[tool(description = "Notifies again and again, until nobody takes it any more")]
    async fn shout(&self, context: RequestContext<RoleServer>) -> String {
        tokio::spawn(async move {
            for _ in 0..400_000 {
                if context.peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
        "shouting".into()
    }

    #[tool(description = "Answers")]
    fn quiet(&self) -> String {
        "done".into()
    }
}

#[tool_handler]
impl ServerHandler for Loud {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

type Service = StreamableHttpService<Loud, LocalSessionManager>;

fn loud() -> Service {
    let manager = Arc::new(LocalSessionManager::default());
    StreamableHttpService::new(|| Ok(Loud), manager, StreamableHttpServerConfig::default())
}

fn layer() -> DrainCreditLayer {
    DrainCreditLayer::new()
        .with_credit(16, 1 << 20)
        .with_high_water(2)
        .with_drain_window(Duration::from_millis(200))
        .with_liveness(Duration::from_secs(2), 16 << 20)
}

fn call(id: u64, tool: &str) -> serde_json::Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}})
}

/// A session whose stream is open and not read, and a tool that fills it. Without the layer another call and the DELETE
/// that ends the session hang with it.
async fn the_session_of_an_unread_stream_is_answered(router: Router, layer: DrainCreditLayer) {
    let served = Served::router(router).await;
    let mut client = Client::new(served.url("/mcp"));
    client.open().await;
    let session = client.session.clone().expect("a session");

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut unread = socket.connect(served.address).await.unwrap();
    let get = format!(
        "GET /mcp HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\nmcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n\r\n",
        served.address
    );
    unread.write_all(get.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    unread.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");

    let post = async |message| timeout(PATIENCE, client.post(message)).await;
    let shouting = post(call(100, "shout")).await.expect("answered");
    assert_eq!(shouting.result_text(), "shouting");
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let answer = post(call(101, "quiet")).await.expect("answered");
        if answer.status == 429 {
            assert_eq!(answer.reason(), Some("stream_half_open"));
            assert_eq!(answer.message()["id"], 101);
            break;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            layer.figures()
        );
        sleep(Duration::from_millis(20)).await;
    }
    let ended = timeout(PATIENCE, Client::send(client.request(Method::DELETE))).await;
    let ended = ended.expect("answered");
    assert!(ended.status < 300 || ended.status == 404, "{ended:?}");
    // The server's connection keeps what was torn down until it notices.
    drop(unread);
    while layer.figures().sessions > 0 {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            layer.figures()
        );
        sleep(Duration::from_millis(20)).await;
    }
    let figures = layer.figures();
    assert!(figures.peak_messages <= 32 + 1, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_stream_around_rmcp_alone() {
    let layer = layer();
    let router = Router::new().route_service("/mcp", layer.layer(loud()));
    the_session_of_an_unread_stream_is_answered(router, layer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_stream_with_all_layers() {
    let store = store();
    let instance = join("a", &store).await;
    let layer = layer().with_instance(instance.clone());
    let service = ServiceBuilder::new()
        .layer(AffinityGuardLayer::new(instance.clone()))
        .layer(layer.clone())
        .layer(ResumeGuardLayer::new(instance, store))
        .service(loud());
    let router = Router::new().route_service("/mcp", service);
    the_session_of_an_unread_stream_is_answered(router, layer).await;
}
