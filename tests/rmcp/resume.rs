//! Streams of real rmcp servers that lose their client, and real rmcp clients that lose their connection.

use std::time::Duration;

use axum::Router;
use bytes::BytesMut;
use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer, resume_guard::ResumeGuardLayer, store::MemoryStore,
};
use reqwest::Method;
use rmcp::{
    ServiceExt as _, model::CallToolRequestParams, transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tower::Layer;

use crate::{
    Served,
    client::Client,
    join, notebook, store,
    support::cutter::{Cut, Cutter},
};

struct Pod {
    served: Served,
}

impl Pod {
    async fn start(name: &'static str, store: &MemoryStore) -> Self {
        let instance = join(name, store).await;
        let guard = AffinityGuardLayer::new(instance.clone())
            .layer(ResumeGuardLayer::new(instance, store.clone()).layer(notebook::service()));
        let served = Served::router(Router::new().route_service("/mcp", guard)).await;
        Self { served }
    }

    fn url(&self) -> String {
        self.served.url("/mcp")
    }

    async fn client(&self) -> Client {
        let mut client = Client::new(self.url());
        client.open().await;
        client
    }
}

/// An event stream as it comes over the wire.
struct Stream {
    response: reqwest::Response,
    text: BytesMut,
    last_id: String,
}

impl Stream {
    async fn of(request: reqwest::RequestBuilder) -> Self {
        let request = request.header("mcp-protocol-version", "2025-11-25");
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        Self {
            response,
            text: BytesMut::new(),
            last_id: String::new(),
        }
    }

    async fn call(client: &Client, id: u64, tool: &str, arguments: Value) -> Self {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params":
            {"name": tool, "arguments": arguments, "_meta": {"progressToken": id}}});
        Self::of(client.request(Method::POST).json(&message)).await
    }

    async fn resume(client: &Client, cursor: &str) -> Self {
        Self::of(client.request(Method::GET).header("last-event-id", cursor)).await
    }

    /// The next message; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let block = self.text.split_to(end + 2);
                let block = std::str::from_utf8(&block).expect("text");
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
                if let Some(id) = field("id: ") {
                    id.clone_into(&mut self.last_id);
                }
                match field("data: ") {
                    Some(data) if !data.is_empty() => {
                        return Some(serde_json::from_str(data).expect("JSON"));
                    }
                    _ => continue,
                }
            }
            let next = tokio::time::timeout(Duration::from_secs(20), self.response.chunk());
            let chunk = next.await.expect("something comes").expect("no break")?;
            self.text.extend_from_slice(&chunk);
        }
    }

    async fn rest(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }
}

fn step(message: &Value) -> u64 {
    message["params"]["progress"].as_f64().expect("progress") as u64
}

#[tokio::test]
async fn a_tool_that_finishes_while_its_client_is_away_is_heard_on_resume() {
    let pod = Pod::start("a", &store()).await;
    let client = pod.client().await;
    let mut stream = Stream::call(&client, 1, "count", json!({"steps": 3, "every_ms": 50})).await;
    assert_eq!(step(&stream.next().await.unwrap()), 1);
    let cursor = stream.last_id.clone();
    drop(stream);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut again = Stream::resume(&client, &cursor).await;
    let rest = again.rest().await;
    assert_eq!(rest.len(), 3);
    assert_eq!((step(&rest[0]), step(&rest[1])), (2, 3));
    assert_eq!(rest[2]["result"]["content"][0]["text"], "call 1");
    // And the end of it is an explicit answer, where rmcp alone gives an empty 200.
    let end = client
        .request(Method::GET)
        .header("last-event-id", &again.last_id);
    let answer = Client::send(end).await;
    assert_eq!(
        (answer.status, answer.reason()),
        (405, Some("stream_cursor_unrecoverable"))
    );
}

#[tokio::test]
async fn far_more_events_than_rmcp_keeps_are_replayed_exactly() {
    let pod = Pod::start("a", &store()).await;
    let client = pod.client().await;
    let mut stream = Stream::call(&client, 1, "count", json!({"steps": 200})).await;
    for expected in 1..=5 {
        assert_eq!(step(&stream.next().await.unwrap()), expected);
    }
    let cursor = stream.last_id.clone();
    drop(stream);
    let mut again = Stream::resume(&client, &cursor).await;
    let rest = again.rest().await;
    let steps: Vec<_> = rest[..195].iter().map(step).collect();
    assert_eq!(steps, (6..=200).collect::<Vec<_>>());
    assert_eq!(rest[195]["result"]["content"][0]["text"], "call 1");
    assert_eq!(rest.len(), 196);
}

#[tokio::test]
async fn another_instances_cursor_gives_nothing_of_another_request() {
    let store = store();
    let (one, other) = (Pod::start("a", &store).await, Pod::start("b", &store).await);
    let (client, stranger) = (one.client().await, other.client().await);
    let mut stream = Stream::call(&client, 1, "count", json!({"steps": 30})).await;
    stream.next().await;
    let cursor = stream.last_id.clone();
    let mut busy = Stream::call(&stranger, 1, "count", json!({"steps": 30})).await;
    assert_eq!(busy.rest().await.len(), 31);
    // The client lands on the other instance.
    let lost = client.at(other.url()).request(Method::GET);
    let answer = Client::send(lost.header("last-event-id", &cursor)).await;
    // Told in the stream: it waits for an answer there.
    assert_eq!(
        (answer.status, answer.reason()),
        (200, Some("session_reassigned"))
    );
    assert_eq!(
        answer.message()["error"]["data"]["reason"],
        "session_reassigned"
    );
    // The other instance's own session presents a foreign cursor.
    let mut refused = Stream::resume(&stranger, &cursor).await;
    let rest = refused.rest().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(
        rest[0]["error"]["data"]["reason"],
        "stream_cursor_unrecoverable"
    );
    for garbage in ["0", "1/0", "x"] {
        let request = stranger
            .request(Method::GET)
            .header("last-event-id", garbage);
        let answer = Client::send(request).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (409, Some("stream_cursor_unrecoverable"))
        );
    }
}

#[tokio::test]
async fn a_second_standalone_get_hears_what_the_server_says() {
    let pod = Pod::start("a", &store()).await;
    let client = pod.client().await;
    let mut first = Stream::of(client.request(Method::GET)).await;
    let mut second = Stream::of(client.request(Method::GET)).await;
    assert_eq!(
        client.call("announce", json!({})).await.result_text(),
        "told"
    );
    let heard = second.next().await.expect("something is said");
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    assert_eq!(first.next().await, None);
}

#[tokio::test]
async fn an_rmcp_client_that_loses_its_connection_in_a_call_gets_the_answer_once() {
    let pod = Pod::start("a", &store()).await;
    let cutter = Cutter::before(pod.served.address).await;
    let url = format!("http://{}/mcp", cutter.address);
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = ().serve(transport).await.expect("initializes");
    for expected in ["call 1", "call 2"] {
        let arguments = json!({"steps": 20, "every_ms": 50}).as_object().cloned();
        let call = client.call_tool(
            CallToolRequestParams::new("count").with_arguments(arguments.unwrap_or_default()),
        );
        let cutting = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            cutter.cut(Cut::Close).await;
        };
        let both = async { tokio::join!(call, cutting) };
        let (answer, ()) = tokio::time::timeout(Duration::from_secs(30), both)
            .await
            .expect("no client waits for ever");
        let answer = answer.expect("an answer");
        let text = serde_json::to_value(&answer.content).expect("JSON")[0]["text"].clone();
        // Ran once, answered once.
        assert_eq!(text, expected);
    }
    client.cancel().await.expect("ends");
}
