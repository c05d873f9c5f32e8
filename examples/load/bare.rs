//! A handler that reads a call and answers it, and does nothing else that an MCP server does: what is left is HTTP and JSON.
//! Layers weigh most around it.

use axum::{
    body::Bytes,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use mcp_session_guard::mcp::header::SESSION_ID;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow, default)]
    params: Params<'a>,
}

#[derive(Deserialize, Default)]
struct Params<'a> {
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: &'a RawValue,
}

pub(crate) async fn answer(body: Bytes) -> Response {
    let Ok(message) = serde_json::from_slice::<Message<'_>>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    match (message.method, message.id, message.params.arguments) {
        ("tools/call", Some(id), Some(Arguments { text })) => {
            let content = format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#);
            result(id, &content).into_response()
        }
        ("initialize", Some(id), _) => {
            let offers = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bare","version":"1"}}"#;
            let session = format!("{:032x}", fastrand::u128(..));
            ([(SESSION_ID, session)], result(id, offers)).into_response()
        }
        (_, None, _) => StatusCode::ACCEPTED.into_response(),
        _ => StatusCode::BAD_REQUEST.into_response(),
    }
}

fn result(id: &RawValue, result: &str) -> impl IntoResponse {
    let json = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    ([(CONTENT_TYPE, "application/json")], json)
}
