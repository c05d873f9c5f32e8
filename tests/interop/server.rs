//! A real rmcp server whose tool goes on when the test says so, and which speaks to its client when it is told to.

#![allow(
    deprecated,
    reason = "MCP's log messages are deprecated in the era without sessions, and these are sessions"
)]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use rmcp::{
    Peer, RoleServer, ServerHandler,
    handler::server::wrapper::Parameters,
    model::{
        LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
        ServerCapabilities, ServerConfig,
    },
    service::{NotificationContext, RequestContext},
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use tokio::sync::watch;

use crate::until;

#[derive(Debug, Clone, Default)]
pub struct Worker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// How many steps of the work may be done.
    allowed: watch::Sender<u32>,
    runs: AtomicUsize,
    /// The client, once it has said that it is there.
    peer: watch::Sender<Option<Peer<RoleServer>>>,
}

#[derive(Debug, serde::Deserialize, rmcp::schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub struct Steps {
    steps: u32,
}

#[derive(Debug, serde::Deserialize, rmcp::schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub struct Text {
    text: String,
}

impl Worker {
    pub fn service(&self) -> StreamableHttpService<Self, LocalSessionManager> {
        let worker = self.clone();
        StreamableHttpService::new(
            move || Ok(worker.clone()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        )
    }

    /// Lets the work go on past this step.
    pub fn allow(&self, step: u32) {
        self.0.allowed.send_replace(step);
    }

    /// How often the work was begun.
    pub fn runs(&self) -> usize {
        self.0.runs.load(Ordering::SeqCst)
    }

    /// Says something that answers nobody: it goes out on the session's own stream.
    pub async fn say(&self, text: &str) {
        let peer = until(&self.0.peer, "a client", Option::is_some).await;
        let peer = peer.expect("a client");
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, text.into());
        let said = peer.notify_logging_message(message).await;
        said.expect("a session");
    }
}

#[tool_router]
impl Worker {
    /// Tells of each step, and goes on when it is allowed to. Says which run it was.
    #[tool]
    async fn work(
        &self,
        Parameters(Steps { steps }): Parameters<Steps>,
        context: RequestContext<RoleServer>,
    ) -> String {
        let run = self.0.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let mut allowed = self.0.allowed.subscribe();
        for step in 1..=steps {
            if let Some(token) = context.meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, f64::from(step));
                let _ = context.peer.notify_progress(progress).await;
            }
            let _ = allowed.wait_for(|allowed| *allowed >= step).await;
        }
        format!("run {run}")
    }

    /// Says what it was told.
    #[tool]
    async fn echo(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text
    }
}

#[tool_handler]
impl ServerHandler for Worker {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_logging();
        ServerConfig::new(capabilities.build())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.0.peer.send_replace(Some(context.peer));
    }
}
