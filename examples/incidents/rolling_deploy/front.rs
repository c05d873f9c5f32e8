//! The unguarded server: sessions are shared, so that one is valid at every instance, and buffers of events are not.
//!
//! rmcp restores the session from the shared handshakes. The front adds what lets a stream go on as well, it seems:
//! the call that is under way and how far it has come are part of the shared session, small and cheap to write.
//! An event id that this process does not know starts a new stream from there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use http_body_util::BodyExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    Error,
    counter::{self, McpService},
    guarded::Shared,
    naive::{Log, replay, text},
    pod::{Pod, named},
};

/// The shared cursor is written behind: so many events are still on their way to the store at any time.
const BEHIND: u64 = 4;

/// By session: what is under way.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Mutex<HashMap<String, Job>>>);

struct Job {
    request: Value,
    cursor: u64,
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self, session: &str, said: &Value) {
        if let (Some(job), Some(step)) = (
            self.lock().get_mut(session),
            said["params"]["progress"].as_f64(),
        ) {
            job.cursor = job.cursor.max((step as u64).saturating_sub(BEHIND));
        }
    }

    /// The session's call, to be gone on with from its current cursor.
    fn rest(&self, session: &str) -> Option<Value> {
        let jobs = self.lock();
        let job = jobs.get(session)?;
        let mut request = job.request.clone();
        request["params"]["arguments"]["after"] = job.cursor.into();
        Some(request)
    }
}

#[derive(Clone)]
struct Front {
    /// This process's own.
    log: Arc<Log>,
    jobs: Jobs,
    mcp: McpService,
}

pub(super) async fn start(name: &str, shared: &Shared, jobs: &Jobs) -> Result<Pod, Error> {
    let manager = Arc::new(LocalSessionManager::default());
    let front = Front {
        log: Arc::default(),
        jobs: jobs.clone(),
        mcp: counter::service(&manager, shared.handshakes.config(), &shared.runs),
    };
    let label = name.to_owned();
    let open = async move |_| {
        let router = Router::new().route("/mcp", any(serve)).with_state(front);
        Ok(named(router, &label))
    };
    Pod::launch(name.into(), open).await
}

async fn serve(State(front): State<Front>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let session = text(&parts.headers, "mcp-session-id").map(str::to_owned);
    let Ok(body) = body.collect().await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let mut body = body.to_bytes();
    let Some(session) = session else {
        return front.pass(Request::from_parts(parts, body.into())).await;
    };
    if let Some(last_id) = text(&parts.headers, "last-event-id") {
        if let Some(rest) = front.log.after(&session, last_id) {
            return replay(&rest);
        }
        let Some(rest) = front.jobs.rest(&session) else {
            return replay(&[]);
        };
        body = rest.to_string().into();
        parts.method = Method::POST;
        parts.headers.remove("last-event-id");
        parts.headers.remove(header::CONTENT_LENGTH);
        let json = HeaderValue::from_static("application/json");
        parts.headers.insert(header::CONTENT_TYPE, json);
    } else {
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        if request["method"] != "tools/call" {
            return front.pass(Request::from_parts(parts, body.into())).await;
        }
        let job = Job { request, cursor: 0 };
        front.jobs.lock().insert(session.clone(), job);
    }
    let response = front
        .clone()
        .pass(Request::from_parts(parts, body.into()))
        .await;
    let (log, jobs, of) = (front.log, front.jobs, session.clone());
    log.record(session, response, move |said| jobs.advance(&of, said))
}

impl Front {
    async fn pass(self, request: Request) -> Response {
        let Ok(response) = self.mcp.oneshot(request).await;
        response.map(Body::new)
    }
}
