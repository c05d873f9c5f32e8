//! A server on tower-mcp whose tool repeats what it is told: `load-tower-mcp THREADS`. Says where it listens, and ends with
//! its standard input.

use std::{error::Error, io::Read};

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tower_mcp::{CallToolResult, McpRouter, ToolBuilder, transport::http::HttpTransport};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

type Failure = Box<dyn Error + Send + Sync>;

async fn serve() -> Result<(), Failure> {
    let echo = ToolBuilder::new("echo")
        .description("Repeats a text")
        .handler(|Text { text }: Text| async move { Ok(CallToolResult::text(text)) })
        .build();
    let mcp = McpRouter::new().server_info("echo", "1").tool(echo);
    // As it is by default, but that a call without a session is refused.
    let router = HttpTransport::new(mcp)
        .require_sessions()
        .into_router_at("/mcp");
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            eprintln!("an accepted socket keeps its defaults: {error}");
        }
    });
    axum::serve(listener, router).await?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let threads = std::env::args()
        .nth(1)
        .ok_or("usage: load-tower-mcp THREADS")?
        .parse()?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?;
    // On a worker, as every connection.
    runtime.block_on(async { tokio::spawn(serve()).await? })
}
