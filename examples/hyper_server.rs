//! An MCP server on hyper itself, behind the drain layer: `cargo run --example hyper_server -- 8000`. It shows where the
//! socket options go when there is no axum, and how small the HTTP server's own buffer may be.

use std::{error::Error, sync::Arc};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use mcp_session_guard::drain_credit::DrainCreditLayer;
use rmcp::{
    ServerHandler,
    model::{ServerCapabilities, ServerConfig},
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use tokio::net::TcpListener;
use tower::Layer;

#[derive(Clone)]
struct Greeter;

#[tool_router]
impl Greeter {
    #[tool(description = "Greets")]
    fn greet(&self) -> String {
        "hello".into()
    }
}

#[tool_handler]
impl ServerHandler for Greeter {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = match std::env::args().nth(1) {
        Some(port) => port.parse().map_err(|_| format!("not a port: {port}"))?,
        None => 8000,
    };
    let mcp = StreamableHttpService::new(
        || Ok(Greeter),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    // What the kernel and hyper hold for a client is bounded below, so little can be on its way.
    let layer = DrainCreditLayer::new()
        .with_wire_buffer(512 * 1024)
        .on_stalled(|stalled| eprintln!("{:?} does not read", stalled.session));
    let options = layer.socket_options();
    let service = layer.layer(mcp);

    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("serving http://{}/mcp", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        if let Err(error) = options.apply(&socket) {
            eprintln!("an accepted socket keeps its defaults: {error}");
        }
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().max_buf_size(16 * 1024);
            let io = TokioIo::new(socket);
            if let Err(error) = server.serve_connection(io, service).await {
                eprintln!("a connection failed: {error}");
            }
        });
    }
}
