//! The rmcp client, driven like the others: commands in, one JSON object a line; what its caller sees out.

#![allow(
    deprecated,
    reason = "MCP's log messages are deprecated in the era without sessions, and these are sessions"
)]

use rmcp::{
    ClientHandler, RoleClient, ServiceExt as _,
    model::{CallToolRequestParams, LoggingMessageNotificationParam, ProgressNotificationParam},
    service::{NotificationContext, Peer, ServiceError},
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use std::time::Instant;
use tokio::{
    io::{
        AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split,
    },
    sync::mpsc,
};

#[derive(Debug, Clone)]
struct Caller(mpsc::UnboundedSender<Value>);

impl Caller {
    fn say(&self, line: Value) {
        // Nobody listens when the test has ended.
        let _ = self.0.send(line);
    }

    async fn call(self, peer: Peer<RoleClient>, command: Value) {
        let began = Instant::now();
        let arguments = command["arguments"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let tool = command["tool"].as_str().expect("a tool").to_owned();
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        let outcome = peer.call_tool(call).await;
        let mut line = match outcome {
            Ok(result) => {
                let text = result.content.first().and_then(|content| content.as_text());
                json!({"say": "result", "text": text.map(|text| &text.text),
                    "is_error": result.is_error.unwrap_or(false)})
            }
            Err(ServiceError::McpError(error)) => json!({"say": "error", "kind": "McpError",
                "code": error.code.0, "message": error.message, "data": error.data}),
            Err(error) => {
                json!({"say": "error", "kind": "ServiceError", "message": error.to_string()})
            }
        };
        line["key"] = command["key"].clone();
        line["ms"] = json!(began.elapsed().as_millis());
        self.say(line);
    }
}

impl ClientHandler for Caller {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.say(json!({"say": "progress", "step": params.progress}));
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.say(json!({"say": "heard", "text": params.data}));
    }
}

/// Starts a client in this process.
pub fn start(url: String) -> (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>) {
    let (ours, theirs) = duplex(64 * 1024);
    let (commands, mut out) = split(theirs);
    let (caller, mut lines) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            let _ = out.write_all(format!("{line}\n").as_bytes()).await;
        }
    });
    tokio::spawn(drive(url, Caller(caller), commands));
    split(ours)
}

async fn drive(url: String, caller: Caller, commands: ReadHalf<DuplexStream>) {
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = match caller.clone().serve(transport).await {
        Ok(client) => client,
        Err(error) => {
            let message = error.to_string();
            return caller.say(json!({"say": "error", "key": "open", "message": message}));
        }
    };
    caller.say(json!({"say": "ready"}));
    let mut commands = BufReader::new(commands).lines();
    while let Ok(Some(line)) = commands.next_line().await {
        let command: Value = serde_json::from_str(&line).expect("JSON");
        if command["do"] == "close" {
            break;
        }
        tokio::spawn(caller.clone().call(client.peer().clone(), command));
    }
    client.cancel().await.expect("ends");
    caller.say(json!({"say": "closed"}));
}
