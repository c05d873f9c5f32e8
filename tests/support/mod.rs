//! What the tests of several layers share: a stage with paused time, a directory that fails to order, an inner service
//! that remembers what it was asked, and a proxy that cuts connections.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub mod cutter;
pub mod directory;
pub mod inner;
pub mod ledger;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use mcp_session_guard::{
    clock::TokioClock,
    instance::{Heartbeats, Instance, InstanceBuilder},
    store::{MemoryConfig, MemoryStore, SessionDirectory},
};
use serde_json::Value;

pub const LEASE: Duration = Duration::from_secs(10);

/// Several instances on one directory, all on tokio's paused clock.
pub struct Stage {
    pub clock: TokioClock,
    pub store: MemoryStore,
}

impl Stage {
    pub fn set() -> Self {
        let clock = TokioClock::new();
        let config = MemoryConfig::default().with_max_lease(LEASE);
        let store = MemoryStore::with_clock(config, clock.clone());
        Self { clock, store }
    }

    pub fn builder(&self, name: &str) -> InstanceBuilder {
        Instance::builder(name)
            .with_lease(LEASE)
            .with_clock(self.clock.clone())
            .with_heartbeats(Heartbeats::OnRuntime)
    }

    pub async fn instance(&self, name: &str) -> Instance {
        self.join(self.builder(name), self.store.clone()).await
    }

    pub async fn join(
        &self,
        builder: InstanceBuilder,
        directory: impl SessionDirectory,
    ) -> Instance {
        let instance = builder.join(directory).expect("joins");
        instance.ready().await;
        instance
    }
}

pub type Sent = Full<Bytes>;

pub const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}"#;
pub const CALL: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"append","arguments":{}}}"#;

pub fn post(session: Option<&str>, body: impl Into<Bytes>) -> Request<Sent> {
    request(Method::POST, session, body)
}

pub fn get(session: &str) -> Request<Sent> {
    request(Method::GET, Some(session), "")
}

pub fn delete(session: &str) -> Request<Sent> {
    request(Method::DELETE, Some(session), "")
}

pub fn request(method: Method, session: Option<&str>, body: impl Into<Bytes>) -> Request<Sent> {
    let mut request = Request::builder()
        .method(method)
        .uri("/mcp")
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    request.body(Full::new(body.into())).expect("a request")
}

/// A response as the client reads it.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl Answer {
    pub async fn read<B>(response: Response<B>) -> Self
    where
        B: Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let (parts, body) = response.into_parts();
        let text = body.collect().await.expect("a whole body").to_bytes();
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8(text.to_vec()).expect("text"),
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn session(&self) -> &str {
        self.header("mcp-session-id").expect("a session id")
    }

    /// The status and the reason, with the reason said alike in header and body.
    pub fn refusal(&self) -> (u16, &str) {
        let reason = self
            .header("mcp-guard-reason")
            .unwrap_or_else(|| panic!("{self:?}"));
        assert_eq!(self.json()["error"]["data"]["reason"], reason);
        assert!(self.json()["error"]["code"].as_u64().unwrap() > 0);
        (self.status, reason)
    }
}
