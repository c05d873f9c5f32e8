//! A guarded MCP server to point a client at: `cargo run --example server -- --port 8000`, then connect to
//! `http://127.0.0.1:8000/mcp`. Its notebook lives in the memory of one session, which is what the guard protects.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use axum::{Router, http::request::Parts, serve::ListenerExt};
use mcp_session_guard::{
    affinity_guard::{SelfContained, Switch},
    instance::Instance,
    stack::SessionGuardLayer,
    store::MemoryStore,
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::{tool::Extension, wrapper::Parameters},
    model::{
        ListResourcesResult, PaginatedRequestParams, ReadResourceRequestParams,
        ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, ServerCapabilities,
        ServerConfig,
    },
    schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService,
        session::local::{LocalSessionManager, SessionConfig},
    },
};
use tokio::net::TcpListener;
use tower::Layer;

const LINES: &str = "notebook://lines";

/// The state of one session: rmcp makes one for each.
#[derive(Default)]
struct Notebook {
    lines: Mutex<Vec<String>>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

#[tool_router]
impl Notebook {
    #[tool(description = "Appends a line to this session's notebook")]
    fn session_append(
        &self,
        Parameters(Text { text }): Parameters<Text>,
        Extension(request): Extension<Parts>,
    ) -> Result<String, ErrorData> {
        // Clients of MCP 2026-07-28 have no session. Each of their requests gets a notebook of its own, so an append
        // would be lost behind a success.
        if !request.headers.contains_key("mcp-session-id") {
            return Err(ErrorData::invalid_request("needs a session", None));
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(text);
        Ok(format!("line {}", lines.len()))
    }

    #[tool(
        description = "Counts the words of a text",
        annotations(read_only_hint = true, idempotent_hint = true)
    )]
    fn word_count(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text.split_whitespace().count().to_string()
    }
}

#[tool_handler]
impl ServerHandler for Notebook {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder();
        ServerConfig::new(capabilities.enable_tools().enable_resources().build())
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let lines = vec![Resource::new(LINES, "lines")];
        Ok(ListResourcesResult::with_all_items(lines))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if request.uri != LINES || lines.is_empty() {
            return Err(ErrorData::invalid_params("no such resource", None));
        }
        let contents = ResourceContents::text(lines.join("\n"), LINES);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = match std::env::args().skip(1).find(|arg| arg != "--port") {
        Some(port) => port.parse().map_err(|_| format!("not a port: {port}"))?,
        None => 8000,
    };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = format!("http://{}", listener.local_addr()?);
    // More than one instance: give all of them a store that they share.
    let store = MemoryStore::new();
    let instance = Instance::builder("notebook-1")
        .with_address(&*address)
        .with_idle_limit(SessionConfig::DEFAULT_KEEP_ALIVE)
        .join(store.clone())?;

    let config = StreamableHttpServerConfig::default();
    let sessions = config.cancellation_token.clone();
    let stateless = config.clone().with_legacy_session_mode(false);
    let manager = Arc::new(LocalSessionManager::default());
    let mcp = |config| {
        let notebook = || Ok(Notebook::default());
        StreamableHttpService::new(notebook, Arc::clone(&manager), config)
    };
    // Counting words depends on nothing but the request, so it may be served whatever became of the session. What the kernel
    // holds for a client is bounded by the socket options below.
    let guards = SessionGuardLayer::new(&instance, store)
        .affinity(|layer| layer.stateless_for(SelfContained::new().tool("word_count")))
        .drain(|layer| layer.with_wire_buffer(1 << 20));
    let options = guards.socket_options();
    let guarded = guards.layer(Switch::new(mcp(config), mcp(stateless)));

    let router = Router::new().route_service("/mcp", guarded);
    // They set TCP_NODELAY too: rmcp answers in two small writes, and the second would be held back for 40 ms.
    let listener = listener.tap_io(move |socket| {
        if let Err(error) = options.apply(socket) {
            eprintln!("an accepted socket keeps its defaults: {error}");
        }
    });
    instance.ready().await;
    println!("serving {address}/mcp, Ctrl-C ends it");
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            // Without a signal handler there is no planned end, so it serves on until it is killed.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            let retirement = instance.retire().await;
            println!("retired, {} calls cut", retirement.unfinished_calls());
            // The server waits for its connections, and an open stream would keep it waiting for ever.
            sessions.cancel();
        })
        .await?;
    Ok(())
}
