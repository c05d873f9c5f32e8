//! The unguarded server: stateless and permissive. Whatever session a request names, something is made of it.
//!
//! rmcp alone would answer 404 to an unknown session. It is the front that looks for events in the shared log without
//! asking for the session, and that gives a call without a session one of its own, as stateless servers do.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::Method,
    response::Response,
    routing::any,
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig,
    session::{SessionManager, local::LocalSessionManager},
};
use tower::ServiceExt;

use crate::{
    Error,
    counter::{self, McpService, Runs},
    naive::{Log, replay, text},
    pod::{Pod, named},
};

#[derive(Clone)]
struct Front {
    log: Arc<Log>,
    manager: Arc<LocalSessionManager>,
    stateful: McpService,
    stateless: McpService,
}

pub(super) async fn start(name: &str, log: &Arc<Log>, runs: &Runs) -> Result<Pod, Error> {
    let manager = Arc::new(LocalSessionManager::default());
    let config = StreamableHttpServerConfig::default();
    let stateless = config.clone().with_legacy_session_mode(false);
    let front = Front {
        log: Arc::clone(log),
        stateful: counter::service(&manager, config, runs),
        stateless: counter::service(&manager, stateless, runs),
        manager,
    };
    let label = name.to_owned();
    let open = async move |_| {
        let router = Router::new().route("/mcp", any(serve)).with_state(front);
        Ok(named(router, &label))
    };
    Pod::launch(name.into(), open).await
}

async fn serve(State(front): State<Front>, mut request: Request) -> Response {
    let session = text(request.headers(), "mcp-session-id").map(str::to_owned);
    let Some(session) = session else {
        let Ok(response) = front.stateful.oneshot(request).await;
        return response.map(Body::new);
    };
    let last_id = text(request.headers(), "last-event-id");
    if let (&Method::GET, Some(last_id)) = (request.method(), last_id) {
        let rest = front.log.after(&session, last_id);
        return replay(&rest.unwrap_or_default());
    }
    if !matches!(
        front.manager.has_session(&session.as_str().into()).await,
        Ok(true)
    ) {
        request.headers_mut().remove("mcp-session-id");
        let Ok(response) = front.stateless.oneshot(request).await;
        return response.map(Body::new);
    }
    let Ok(response) = front.stateful.oneshot(request).await;
    let response = response.map(Body::new);
    let kind = text(response.headers(), "content-type");
    if kind.is_some_and(|kind| kind.contains("event-stream")) {
        return front.log.record(session, response, |_| {});
    }
    response
}
