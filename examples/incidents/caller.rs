//! A client that reads event streams as they come over the wire, and comes back to them with `Last-Event-ID`.
//!
//! It has exactly one connection, so that a balancer of connections decides where its requests go and no pool does.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    Error,
    stream::{Heard, Stream},
};

const VERSION: &str = "2025-11-25";
/// Between two attempts, when a refusal says that another one can help.
const BACKOFF: Duration = Duration::from_millis(20);
/// After which nothing is waited for any more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(12);

pub(crate) struct Caller {
    address: String,
    connection: Connection,
    session: Option<String>,
    /// How often a refusal said that another attempt, or another instance, can help.
    pub(crate) sent_on: usize,
}

struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Connection {
    async fn to(address: &str) -> Result<Self, Error> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender, driver })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Caller {
    /// Opens a session as a client with these capabilities.
    pub(crate) async fn open(address: &str, capabilities: &Value) -> Result<Self, Error> {
        let mut caller = Self {
            connection: Connection::to(address).await?,
            address: address.to_owned(),
            session: None,
            sent_on: 0,
        };
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": VERSION,
            "capabilities": capabilities,
            "clientInfo": {"name": "incidents", "version": "1"},
        }});
        let mut opened = caller.post(&initialize).await?;
        let session = opened.session.take().ok_or("initialize gave no session")?;
        // Read to its end, so that the connection can be used again.
        while let Heard::Message(_) = opened.next().await? {}
        caller.session = Some(session);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let mut accepted = caller.post(&initialized).await?;
        while let Heard::Message(_) = accepted.next().await? {}
        Ok(caller)
    }

    /// Leaves its connection.
    pub(crate) fn hang_up(&self) {
        self.connection.driver.abort();
    }

    /// Leaves its connection. The next request goes by a new one, and may reach another instance.
    pub(crate) async fn reconnect(&mut self) -> Result<(), Error> {
        self.connection = Connection::to(&self.address).await?;
        Ok(())
    }

    pub(crate) async fn call(
        &mut self,
        id: u64,
        tool: &str,
        arguments: &Value,
    ) -> Result<Stream, Error> {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
        self.post(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
            .await
    }

    /// Comes back to a stream.
    pub(crate) async fn resume(&mut self, last_id: &str) -> Result<Stream, Error> {
        self.send(|| {
            let request = Request::builder().method(Method::GET);
            let request = request.header("last-event-id", last_id);
            (request, Bytes::new())
        })
        .await
    }

    async fn post(&mut self, message: &Value) -> Result<Stream, Error> {
        let body = Bytes::from(serde_json::to_vec(message)?);
        self.send(|| {
            let request = Request::builder().method(Method::POST);
            let request = request.header(header::CONTENT_TYPE, "application/json");
            (request, body.clone())
        })
        .await
    }

    /// Sends a request until the answer is another than: ask again, or ask elsewhere.
    async fn send(
        &mut self,
        request: impl Fn() -> (hyper::http::request::Builder, Bytes),
    ) -> Result<Stream, Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (mut request, body) = request();
            request = request
                .uri("/mcp")
                .header(header::HOST, &self.address)
                .header(header::ACCEPT, "application/json, text/event-stream");
            if let Some(session) = &self.session {
                request = request
                    .header("mcp-session-id", session)
                    .header("mcp-protocol-version", VERSION);
            }
            let sender = &mut self.connection.sender;
            timeout(PATIENCE, sender.ready()).await??;
            let answer = sender.send_request(request.body(Full::new(body))?);
            let response = timeout(PATIENCE, answer).await??;
            if response.status().is_success() {
                return Ok(Stream::of(response));
            }
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            let refusal: Value = serde_json::from_slice(&body).unwrap_or_default();
            let action = refusal["error"]["data"]["action"].as_str();
            if !matches!(action, Some("reroute" | "retry")) || Instant::now() > deadline {
                return Err(format!("refused: {status} {refusal}").into());
            }
            self.sent_on += 1;
            sleep(BACKOFF).await;
            self.reconnect().await?;
        }
    }
}
