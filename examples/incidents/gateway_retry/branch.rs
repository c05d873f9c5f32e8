//! A branch: an MCP server with a tool that moves money, in a process of its own, so that it can be killed.

use std::{net::SocketAddr, process::Stdio, sync::Arc, time::Duration};

use axum::{Router, serve::ListenerExt};
use mcp_session_guard::idempotency_key::IdempotencyKeyLayer;
use rmcp::{
    ErrorData, ServerHandler,
    handler::server::wrapper::Parameters,
    model::{ServerCapabilities, ServerConfig},
    schemars, tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
    time::sleep,
};
use tower::Layer;

use super::{BRANCH, bank::Wire};
use crate::{Error, pod::LEASE, report::Variant};

/// A branch as the gateway sees it.
pub(super) struct Branch {
    pub(super) address: SocketAddr,
    process: Child,
}

impl Branch {
    pub(super) async fn open(variant: Variant, bank: SocketAddr) -> Result<Self, Error> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([BRANCH, &variant.to_string(), &bank.to_string()])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().ok_or("a branch has no output")?;
        let mut address = String::new();
        BufReader::new(stdout).read_line(&mut address).await?;
        Ok(Self {
            address: address.trim().parse()?,
            process,
        })
    }

    /// As the kernel kills a process that took too much memory: not a word to anybody.
    pub(super) async fn kill(mut self) -> Result<(), Error> {
        self.process.kill().await?;
        Ok(())
    }
}

/// The process of a branch, until it is killed.
pub(crate) async fn serve(mut args: impl Iterator<Item = String>) -> Result<(), Error> {
    let guarded = args.next().ok_or("no variant")? == Variant::Guarded.to_string();
    let bank = Wire(args.next().ok_or("no bank")?.parse()?);
    let mcp = StreamableHttpService::new(
        move || Ok(Till { bank }),
        Arc::new(LocalSessionManager::default()),
        // A call may go to any branch: there are no sessions.
        StreamableHttpServerConfig::default().with_legacy_session_mode(false),
    );
    let router = Router::new();
    let router = if guarded {
        let once = IdempotencyKeyLayer::new(bank)
            .with_principal(|head| Some(head.headers.get("x-customer")?.to_str().ok()?.into()))
            .with_lease(LEASE);
        router.route_service("/mcp", once.layer(mcp))
    } else {
        router.route_service("/mcp", mcp)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let listener = listener.tap_io(|socket| {
        let _ = socket.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
}

#[derive(Debug, Clone)]
struct Till {
    bank: Wire,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Payment {
    order: String,
    /// How long it takes after the money has moved.
    takes_ms: u64,
}

#[tool_router]
impl Till {
    #[tool(description = "Pays an order")]
    async fn pay(
        &self,
        Parameters(Payment { order, takes_ms }): Parameters<Payment>,
    ) -> Result<String, ErrorData> {
        let paid = self.bank.pay(&order).await;
        paid.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        sleep(Duration::from_millis(takes_ms)).await;
        Ok(format!("paid {order}"))
    }
}

#[tool_handler]
impl ServerHandler for Till {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}
