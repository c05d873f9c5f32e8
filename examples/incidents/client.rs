//! An MCP client of a few lines that hides nothing of what the server answers.

use std::time::Instant;

use reqwest::Url;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{Error, edge::SERVED_BY};

/// Requests that may be under way at once: keeps the number of sockets far below what any system allows.
const AT_ONCE: usize = 32;

pub(crate) struct Client {
    http: reqwest::Client,
    url: Url,
    gate: Semaphore,
}

/// What came back for one POST.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) served_by: String,
    pub(crate) session: Option<String>,
    /// Why the guard refused it.
    pub(crate) reason: Option<String>,
    /// The JSON-RPC response; null for a notification.
    pub(crate) message: Value,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

impl Client {
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        Ok(Self {
            http: reqwest::Client::builder().no_proxy().build()?,
            url: url.parse()?,
            gate: Semaphore::new(AT_ONCE),
        })
    }

    /// Opens a session; the answer carries its id.
    pub(crate) async fn initialize(&self) -> Result<Answer, Error> {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "incidents", "version": "1"},
        });
        let answer = self.request(None, "initialize", &params).await?;
        let Some(session) = &answer.session else {
            return Err(format!("no session: {} {}", answer.status, answer.message).into());
        };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let accepted = self.post(Some(session), &initialized).await?;
        if accepted.status != 202 {
            return Err(format!("not initialized: {}", accepted.status).into());
        }
        Ok(answer)
    }

    pub(crate) async fn request(
        &self,
        session: Option<&str>,
        method: &str,
        params: &Value,
    ) -> Result<Answer, Error> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.post(session, &request).await
    }

    async fn post(&self, session: Option<&str>, message: &Value) -> Result<Answer, Error> {
        let _permit = self.gate.acquire().await?;
        let mut request = self
            .http
            .post(self.url.clone())
            .header("accept", "application/json, text/event-stream")
            .json(message);
        if let Some(session) = session {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", "2025-11-25");
        }
        let sent = Instant::now();
        let response = request.send().await?;
        let status = response.status().as_u16();
        let header = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let served_by = header(SERVED_BY).unwrap_or_default();
        let session = header("mcp-session-id");
        let reason = header("mcp-guard-reason");
        let streamed = header("content-type").is_some_and(|kind| kind.contains("event-stream"));
        let body = response.text().await?;
        let message = if streamed {
            last_message(&body)
        } else {
            serde_json::from_str(&body).unwrap_or_default()
        };
        Ok(Answer {
            status,
            served_by,
            session,
            reason,
            message,
            sent,
            received: Instant::now(),
        })
    }
}

/// The last JSON of an event stream; an event without data comes first, to give the client a cursor.
fn last_message(stream: &str) -> Value {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data:"));
    data.filter_map(|data| serde_json::from_str(data.trim()).ok())
        .next_back()
        .unwrap_or_default()
}
