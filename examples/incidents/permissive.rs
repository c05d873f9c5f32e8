//! The fallback of the unguarded variant: a session that is not known *here* is taken for no session at all.
//!
//! Each half is right by its own contract. rmcp would answer 404, and its stateless mode is made for clients that
//! send no session header; the fault is in choosing between them by what this instance happens to have in memory.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
    routing::any,
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig,
    session::{SessionManager, local::LocalSessionManager},
};
use tower::ServiceExt;

use crate::notebook::{self, McpService};

#[derive(Clone)]
struct Permissive {
    manager: Arc<LocalSessionManager>,
    stateful: McpService,
    stateless: McpService,
}

pub(crate) fn router() -> Router {
    let manager = Arc::new(LocalSessionManager::default());
    let config = StreamableHttpServerConfig::default();
    let stateless = config.clone().with_legacy_session_mode(false);
    let permissive = Permissive {
        stateful: notebook::service(&manager, config),
        stateless: notebook::service(&manager, stateless),
        manager,
    };
    Router::new()
        .route("/mcp", any(serve))
        .with_state(permissive)
}

async fn serve(State(permissive): State<Permissive>, mut request: Request) -> Response {
    let header = request.headers().get("mcp-session-id");
    let known = match header.and_then(|id| id.to_str().ok()) {
        Some(id) => matches!(permissive.manager.has_session(&id.into()).await, Ok(true)),
        None => true,
    };
    let service = if known {
        permissive.stateful
    } else {
        request.headers_mut().remove("mcp-session-id");
        permissive.stateless
    };
    let Ok(response) = service.oneshot(request).await;
    response.map(Body::new)
}
