//! The MCP server of the incidents: lines in the memory of a session, and nowhere else.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::wrapper::Parameters,
    model::{
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
        ServerCapabilities, ServerConfig,
    },
    schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};

pub(crate) const LINES: &str = "notebook://lines";

/// rmcp makes one for each session, and without sessions one for each request.
#[derive(Default)]
pub(crate) struct Notebook {
    lines: Mutex<Vec<String>>,
}

pub(crate) type McpService = StreamableHttpService<Notebook, LocalSessionManager>;

pub(crate) fn service(
    manager: &Arc<LocalSessionManager>,
    config: StreamableHttpServerConfig,
) -> McpService {
    StreamableHttpService::new(|| Ok(Notebook::default()), Arc::clone(manager), config)
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Line {
    text: String,
}

#[tool_router]
impl Notebook {
    #[tool(description = "Appends a line to this session's notebook")]
    fn session_append(&self, Parameters(Line { text }): Parameters<Line>) -> String {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(text);
        "appended".into()
    }
}

#[tool_handler]
impl ServerHandler for Notebook {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder();
        ServerConfig::new(capabilities.enable_tools().enable_resources().build())
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
