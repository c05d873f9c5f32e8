//! What a client is told when the server behind does not answer.

use std::fmt;

use axum::{
    body::Bytes,
    http::{HeaderValue, Method, Response, StatusCode, header},
};
use mcp_session_guard::mcp::{Envelope, MessageKind};
use serde_json::{Value, json};

/// How the server behind failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection could be made: the request did not run.
    Unreachable,
    /// The connection broke after the request was sent, or in the middle of it.
    Broken,
    /// No answer began in time.
    Silent,
}

impl Failure {
    const fn status(self) -> StatusCode {
        match self {
            Self::Unreachable | Self::Broken => StatusCode::BAD_GATEWAY,
            Self::Silent => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::Unreachable => "upstream_unreachable",
            Self::Broken => "upstream_broken",
            Self::Silent => "upstream_silent",
        }
    }

    const fn code(self) -> u32 {
        match self {
            Self::Unreachable => 50201,
            Self::Broken => 50202,
            Self::Silent => 50401,
        }
    }

    /// The answer to a request of this method and body: like the guards' refusals, a JSON-RPC error with the request's id.
    pub(crate) fn answer(self, method: &Method, body: &[u8]) -> Response<Bytes> {
        // Opening a stream runs nothing.
        let again = self == Self::Unreachable || method == Method::GET;
        let error = |id: Value| {
            json!({"jsonrpc": "2.0", "id": id, "error": {
                "code": self.code(),
                "message": self.to_string(),
                "data": {
                    "reason": self.reason(),
                    "retryable": again,
                    "action": if again { "retry" } else { "give_up" },
                    "detail": if again { "the request did not run" } else { "the request may have run" },
                },
            }})
        };
        let envelope = Envelope::parse(body).ok();
        let batch = envelope.as_ref().is_some_and(Envelope::is_batch);
        let messages = envelope.iter().flat_map(Envelope::messages);
        let mut errors: Vec<_> = messages
            .filter_map(|message| match message.kind() {
                MessageKind::Request { id, .. } => serde_json::from_str(id.as_json()).ok(),
                _ => None,
            })
            .map(error)
            .collect();
        let body = match (batch, errors.pop()) {
            (_, None) => error(Value::Null),
            (false, Some(one)) => one,
            (true, Some(last)) => {
                errors.push(last);
                Value::Array(errors)
            }
        };
        let mut response = Response::new(body.to_string().into());
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let no_store = HeaderValue::from_static("no-store");
        headers.insert(header::CACHE_CONTROL, no_store);
        if again {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "The MCP server cannot be reached",
            Self::Broken => "The connection to the MCP server broke",
            Self::Silent => "The MCP server did not answer in time",
        })
    }
}
