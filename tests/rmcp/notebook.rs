//! An MCP server whose tool depends on its session: the lines appended so far.

use std::sync::{Arc, Mutex};

use rmcp::{
    ErrorData, ServerHandler,
    handler::server::wrapper::Parameters,
    model::{ServerCapabilities, ServerConfig},
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};

pub type Service = StreamableHttpService<Notebook, LocalSessionManager>;

#[derive(Debug, Clone, Default)]
pub struct Notebook {
    lines: Arc<Mutex<Vec<String>>>,
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
