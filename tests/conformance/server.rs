//! The rmcp server that the conformance tests ask for.

#![allow(
    deprecated,
    reason = "what MCP 2026-07-28 deprecates is what the earlier revisions are tested on"
)]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, http::request::Parts, serve::ListenerExt};
use mcp_session_guard::{instance::Instance, stack::SessionGuardLayer, store::MemoryStore};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams,
        CompleteResult, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
        ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
        PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
        ReadResourceResult, Request, ServerConfig, ServerRequest, SetLevelRequestParams,
        SubscribeRequestParams, UnsubscribeRequestParams,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle, time::sleep};
use tower::Layer;

use crate::content::{self, read};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guards {
    None,
    All,
}

/// A server that ends with its handle.
pub struct Served {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Served {
    pub async fn start(guards: Guards) -> Self {
        let manager = Arc::new(LocalSessionManager::default());
        let sessions = Arc::clone(&manager);
        let fixture = move || {
            let sessions = Arc::clone(&sessions);
            Ok(Fixture { sessions })
        };
        let config = StreamableHttpServerConfig::default();
        let mcp = StreamableHttpService::new(fixture, manager, config);
        let router = match guards {
            Guards::None => Router::new().route_service("/mcp", mcp),
            Guards::All => {
                let store = MemoryStore::new();
                let instance = Instance::builder("a").join(store.clone()).expect("joins");
                instance.ready().await;
                let guarded = SessionGuardLayer::new(&instance, store).layer(mcp);
                Router::new().route_service("/mcp", guarded)
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        // rmcp's answers are two small writes; without TCP_NODELAY each waits for an acknowledgement.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        Self { address, task }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Fixture {
    sessions: Arc<LocalSessionManager>,
}

type Context = RequestContext<RoleServer>;

impl Fixture {
    /// Has the server end the stream of the call that is running, as SEP-1699 lets it, before it has answered.
    async fn close_early(&self, context: &Context) {
        let parts = context.extensions.get::<Parts>().expect("by HTTP");
        let id = parts.headers["mcp-session-id"].to_str().expect("text");
        let sessions = self.sessions.sessions.read().await;
        let session = sessions.get(id).expect("its session").clone();
        drop(sessions);
        // Its number is rmcp's own affair; no other call is running.
        for stream in 0..16 {
            let wait = Duration::from_millis(100);
            let _ = session.close_sse_stream(stream, Some(wait)).await;
        }
    }

    async fn tool(&self, call: &CallToolRequestParams, context: &Context) -> Option<Value> {
        let argument = |name: &str| {
            let arguments = call.arguments.as_ref();
            arguments.and_then(|all| all.get(name)).cloned()
        };
        let asked = match &*call.name {
            "test_tool_with_logging" => {
                for text in ["started", "processing", "completed"] {
                    let message = json!({"level": "info", "data": text});
                    let _ = context.peer.notify_logging_message(read(&message)).await;
                    sleep(Duration::from_millis(50)).await;
                }
                return Some(content::text("logged"));
            }
            "test_tool_with_progress" => {
                for progress in [0, 50, 100] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let told = json!({"progressToken": token, "progress": progress,
                            "total": 100});
                        let _ = context.peer.notify_progress(read(&told)).await;
                    }
                    sleep(Duration::from_millis(50)).await;
                }
                return Some(content::text("done"));
            }
            "test_reconnection" => {
                self.close_early(context).await;
                sleep(Duration::from_millis(100)).await;
                return Some(content::text("reconnected"));
            }
            "test_sampling" => {
                let message = json!({"role": "user",
                    "content": {"type": "text", "text": argument("prompt")}});
                let asked = json!({"messages": [message], "maxTokens": 100});
                let answer = context.peer.create_message(read(&asked)).await;
                return Some(content::text(&format!("LLM response: {answer:?}")));
            }
            "test_elicitation" => content::contact(&argument("message")?),
            "test_elicitation_sep1034_defaults" => content::defaults(),
            "test_elicitation_sep1330_enums" => content::enums(),
            name => return content::tool(name),
        };
        let asked = ServerRequest::ElicitRequest(Request::new(read(&asked)));
        let answer = context.peer.send_request(asked).await;
        Some(content::text(&format!("User response: {answer:?}")))
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(read(&json!({"tools": {}, "logging": {}, "prompts": {},
            "resources": {"subscribe": true}, "completions": {}})))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(read(&content::tools()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let result = self.tool(&call, &context).await;
        let result = result.ok_or_else(|| ErrorData::invalid_params("no such tool", None))?;
        Ok(CallToolResponse::Complete(read::<CallToolResult>(&result)))
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(read(&content::prompts()))
    }

    async fn get_prompt(
        &self,
        asked: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = asked.arguments.unwrap_or_default();
        let prompt = content::prompt(&asked.name, &json!(arguments));
        let prompt = prompt.ok_or_else(|| ErrorData::invalid_params("no such prompt", None))?;
        Ok(GetPromptResponse::Complete(read::<GetPromptResult>(
            &prompt,
        )))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(read(&content::resources()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(read(&content::templates()))
    }

    async fn read_resource(
        &self,
        asked: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = content::resource(&asked.uri);
        let contents = contents.ok_or_else(|| ErrorData::invalid_params("no such one", None))?;
        let result: ReadResourceResult = read(&contents);
        Ok(ReadResourceResponse::Complete(result))
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(read(
            &json!({"completion": {"values": ["test"], "total": 1, "hasMore": false}}),
        ))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }
}
