//! What stands in front of a guarded server, and does wrong what it is told to.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::HeaderValue;
use tokio::sync::watch;
use tower::ServiceExt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    #[default]
    None,
    /// Requests go to an instance that does not own their session.
    Misroutes,
    /// The session header does not arrive as it was sent.
    Garbles,
    /// The session header does not arrive.
    Strips,
}

#[derive(Debug, Clone)]
pub struct Edge {
    fault: Arc<watch::Sender<Fault>>,
    elsewhere: Router,
}

impl Edge {
    pub fn new(elsewhere: Router) -> Self {
        Self {
            fault: Arc::default(),
            elsewhere,
        }
    }

    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

pub async fn pass(State(edge): State<Edge>, mut request: Request, next: Next) -> Response {
    const SESSION: &str = "mcp-session-id";
    let fault = *edge.fault.borrow();
    match fault {
        Fault::None => {}
        Fault::Misroutes => {
            let answer = edge.elsewhere.clone().oneshot(request).await;
            return answer.unwrap_or_else(|never| match never {});
        }
        Fault::Garbles => {
            let garbled = HeaderValue::from_static("no session id");
            request.headers_mut().insert(SESSION, garbled);
        }
        Fault::Strips => {
            request.headers_mut().remove(SESSION);
        }
    }
    next.run(request).await
}
