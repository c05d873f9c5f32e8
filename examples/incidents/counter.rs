//! The MCP server of the incidents about streams: a tool that counts out loud, and says under which agreement it ran.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::wrapper::Parameters,
    model::{ProgressNotificationParam, ServerCapabilities, ServerConfig},
    schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use tokio::time::{Instant, sleep};

use crate::Error;

const EVERY: Duration = Duration::from_millis(10);

pub(crate) type McpService = StreamableHttpService<Counter, LocalSessionManager>;

/// How far each run has come, for an incident to stage what happens when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runs(Arc<Mutex<HashMap<String, u32>>>);

impl Runs {
    fn note(&self, run: &str, step: u32) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.insert(run.to_owned(), step);
    }

    fn of(&self, run: &str) -> u32 {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.get(run).copied().unwrap_or_default()
    }

    /// Waits until a run has come as far as `step`.
    pub(crate) async fn reach(&self, run: &str, step: u32) -> Result<(), Error> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.of(run) < step {
            if Instant::now() > deadline {
                return Err(format!("{run} never came to {step}").into());
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Counter {
    runs: Runs,
}

pub(crate) fn service(
    manager: &Arc<LocalSessionManager>,
    config: StreamableHttpServerConfig,
    runs: &Runs,
) -> McpService {
    let runs = runs.clone();
    let counter = move || Ok(Counter { runs: runs.clone() });
    StreamableHttpService::new(counter, Arc::clone(manager), config)
}

pub(crate) fn capabilities() -> ServerCapabilities {
    ServerCapabilities::builder().enable_tools().build()
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Range {
    run: String,
    /// The last number that was told before.
    after: u32,
    to: u32,
}

#[tool_router]
impl Counter {
    #[tool(description = "Tells one number after the other as progress")]
    async fn count(
        &self,
        Parameters(Range { run, after, to }): Parameters<Range>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let Some(token) = context.meta.get_progress_token() else {
            return Err(ErrorData::invalid_params("needs a progress token", None));
        };
        for step in after + 1..=to {
            let progress = ProgressNotificationParam::new(token.clone(), f64::from(step));
            let _ = context.peer.notify_progress(progress).await;
            self.runs.note(&run, step);
            sleep(EVERY).await;
        }
        // One more than there are numbers: it is over.
        self.runs.note(&run, to + 1);
        Ok(agreement(&context))
    }

    #[tool(description = "Says what the client of this session can do")]
    async fn agreed(&self, context: RequestContext<RoleServer>) -> String {
        agreement(&context)
    }
}

/// What a tool would act by: the capabilities that the client declared in the handshake of this session.
fn agreement(context: &RequestContext<RoleServer>) -> String {
    let client = context.peer.peer_info();
    let declared = client.map(|client| client.capabilities.clone());
    serde_json::to_string(&declared.unwrap_or_default()).unwrap_or_default()
}

#[tool_handler]
impl ServerHandler for Counter {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(capabilities())
    }
}
