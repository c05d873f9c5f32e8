//! A raw client: what goes over the wire is what the test says.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

pub struct Client {
    http: reqwest::Client,
    pub url: String,
    pub session: Option<String>,
    /// rmcp confuses requests that are in flight under one id.
    next_id: Arc<AtomicU64>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn reason(&self) -> Option<&str> {
        self.headers
            .get("mcp-guard-reason")
            .map(|reason| reason.to_str().unwrap())
    }

    /// The JSON-RPC message in a JSON or SSE answer.
    pub fn message(&self) -> Value {
        let events = self
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("data:"));
        std::iter::once(self.text.as_str())
            .chain(events)
            .find_map(|text| serde_json::from_str(text).ok())
            .unwrap_or_else(|| panic!("no message: {self:?}"))
    }

    pub fn result_text(&self) -> String {
        let message = self.message();
        let text = &message["result"]["content"][0]["text"];
        text.as_str()
            .unwrap_or_else(|| panic!("{message}"))
            .to_owned()
    }
}

impl Client {
    pub fn new(url: String) -> Self {
        Self::with(reqwest::Client::builder(), url)
    }

    pub fn with(builder: reqwest::ClientBuilder, url: String) -> Self {
        let http = builder
            .timeout(Duration::from_secs(30))
            .build()
            .expect("a client");
        Self {
            http,
            url,
            session: None,
            next_id: Arc::new(AtomicU64::new(1)),
        }
    }

    /// The same session at another address.
    pub fn at(&self, url: String) -> Self {
        Self {
            http: self.http.clone(),
            url,
            session: self.session.clone(),
            next_id: self.next_id.clone(),
        }
    }

    pub fn request(&self, method: Method) -> RequestBuilder {
        let request = self
            .http
            .request(method, &self.url)
            .header("accept", "application/json, text/event-stream");
        match &self.session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        }
    }

    pub async fn send(request: RequestBuilder) -> Answer {
        let response = request.send().await.expect("an answer");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.expect("a whole answer");
        Answer {
            status,
            headers,
            text,
        }
    }

    pub async fn post(&self, message: Value) -> Answer {
        Self::send(self.request(Method::POST).json(&message)).await
    }

    pub async fn open(&mut self) -> Answer {
        let answer = self.initialize().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        self.initialized().await;
        answer
    }

    /// Asks for a session, and takes it if there is one.
    pub async fn initialize(&mut self) -> Answer {
        let answer = self
            .post(
                json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"}}}),
            )
            .await;
        let session = answer.headers.get("mcp-session-id");
        self.session = session.map(|id| id.to_str().unwrap().to_owned());
        answer
    }

    pub async fn initialized(&self) {
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(initialized).await.status, 202);
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Answer {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.post(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}}))
            .await
    }

    pub async fn append(&self, text: &str) -> Answer {
        self.call("append", json!({ "text": text })).await
    }
}
