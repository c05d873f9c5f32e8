//! An MCP server whose tool depends on its session: the lines appended so far.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::wrapper::Parameters,
    model::{ProgressNotificationParam, ServerCapabilities, ServerConfig},
    service::RequestContext,
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};

pub type Service = StreamableHttpService<Notebook, LocalSessionManager>;

#[derive(Debug, Clone, Default)]
pub struct Notebook {
    lines: Arc<Mutex<Vec<String>>>,
    counted: Arc<AtomicUsize>,
}

#[derive(Debug, serde::Deserialize, rmcp::schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub struct Steps {
    steps: u32,
    #[serde(default)]
    every_ms: u64,
}

#[derive(Debug, serde::Deserialize, rmcp::schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub struct Line {
    text: String,
}

#[tool_router]
impl Notebook {
    /// Appends a line and tells all lines of this session.
    #[tool]
    async fn append(&self, Parameters(line): Parameters<Line>) -> Result<String, ErrorData> {
        let mut lines = self.lines.lock().expect("no panic while locked");
        lines.push(line.text);
        Ok(lines.join("|"))
    }

    /// Tells of its progress step by step, and how often it has been called in this session.
    #[tool]
    async fn count(
        &self,
        Parameters(Steps { steps, every_ms }): Parameters<Steps>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let calls = self.counted.fetch_add(1, Ordering::SeqCst) + 1;
        let token = context.meta.get_progress_token();
        for step in 1..=steps {
            if let Some(token) = token.clone() {
                let progress = ProgressNotificationParam::new(token, f64::from(step));
                let _ = context.peer.notify_progress(progress).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(every_ms)).await;
        }
        Ok(format!("call {calls}"))
    }

    /// Says something on the session's own stream.
    #[tool]
    async fn announce(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let told = context.peer.notify_tool_list_changed().await;
        told.map(|()| "told".to_owned())
            .map_err(|e| ErrorData::internal_error(e.to_string(), None))
    }

    /// Takes its time.
    #[tool]
    async fn wait(&self) -> Result<String, ErrorData> {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        Ok("waited".to_owned())
    }
}

#[tool_handler]
impl ServerHandler for Notebook {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

pub fn service() -> Service {
    configured(StreamableHttpServerConfig::default())
}

pub fn configured(config: StreamableHttpServerConfig) -> Service {
    StreamableHttpService::new(
        || Ok(Notebook::default()),
        Arc::new(LocalSessionManager::default()),
        config,
    )
}
