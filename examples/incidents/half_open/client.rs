//! Clients of HTTP+SSE (MCP 2024-11-05): one that reads its stream, and one that stops.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::{Mutex, mpsc},
    time::timeout,
};

use super::gateway::Gateway;
use crate::Error;

const PATIENCE: Duration = Duration::from_secs(10);

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "incidents", "version": "1"},
    }})
}

fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

pub(super) fn call(id: usize, tool: &str, operation: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": tool,
        "arguments": {"operation": operation},
    }})
}

/// A client that reads.
pub(super) struct Reader {
    gateway: Arc<Gateway>,
    session: String,
    events: Mutex<mpsc::UnboundedReceiver<()>>,
}

impl Reader {
    pub(super) async fn open(url: &str, gateway: Arc<Gateway>) -> Result<Self, Error> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let mut response = http.get(format!("{url}/sse")).send().await?;
        let endpoint = response.chunk().await?.ok_or("no endpoint")?;
        let session = session_of(&String::from_utf8_lossy(&endpoint)).ok_or("no session")?;
        let (heard, events) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut line_feed = false;
            while let Ok(Some(chunk)) = response.chunk().await {
                for byte in &chunk {
                    if *byte == b'\n' && line_feed {
                        let _ = heard.send(());
                    }
                    line_feed = *byte == b'\n';
                }
            }
        });
        let reader = Self {
            gateway,
            session,
            events: Mutex::new(events),
        };
        reader.ask(&initialize()).await?;
        reader.gateway.post(&reader.session, &initialized()).await?;
        Ok(reader)
    }

    /// Calls a tool and waits for the answer.
    pub(super) async fn call(&self, tool: &str, operation: &str) -> Result<(), Error> {
        self.ask(&call(1, tool, operation)).await
    }

    async fn ask(&self, message: &Value) -> Result<(), Error> {
        let mut events = self.events.lock().await;
        let outcome = self.gateway.post(&self.session, message).await?;
        if outcome.accepted != 1 {
            return Err("it was not accepted".into());
        }
        timeout(PATIENCE, events.recv())
            .await?
            .ok_or("the stream ended")?;
        Ok(())
    }
}

/// A client that stops reading once its session is open.
pub(super) struct Frozen {
    session: String,
    _socket: TcpStream,
}

impl Frozen {
    pub(super) async fn open(address: SocketAddr, gateway: &Gateway) -> Result<Self, Error> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(16 * 1024)?;
        let mut socket = socket.connect(address).await?;
        let get =
            format!("GET /sse HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n");
        socket.write_all(get.as_bytes()).await?;
        let text = read_until(&mut socket, "sessionId=").await?;
        let session = session_of(&text).ok_or("no session")?;
        gateway.post(&session, &initialize()).await?;
        read_until(&mut socket, "serverInfo").await?;
        gateway.post(&session, &initialized()).await?;
        Ok(Self {
            session,
            _socket: socket,
        })
    }

    pub(super) fn session(&self) -> &str {
        &self.session
    }
}

async fn read_until(socket: &mut TcpStream, wanted: &str) -> Result<String, Error> {
    let mut text = String::new();
    while !text
        .split_once(wanted)
        .is_some_and(|(_, rest)| rest.contains('\n'))
    {
        let mut bytes = [0; 4096];
        let read = timeout(PATIENCE, socket.read(&mut bytes)).await??;
        if read == 0 {
            return Err("the stream ended".into());
        }
        text += &String::from_utf8_lossy(&bytes[..read]);
    }
    Ok(text)
}

fn session_of(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("sessionId=")?;
    Some(rest.lines().next()?.trim().to_owned())
}
