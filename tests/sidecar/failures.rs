//! Servers that fail, and what their clients are told.

use std::{net::SocketAddr, time::Duration};

use mcp_session_guard::store::MemoryStore;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
};

use crate::{
    client::{Answer, Client},
    options::Options,
    peers::{Kind, Peer},
    rig::{Sidecar, Stream},
};

/// Takes each request to its last byte, and then does this with the connection.
async fn fails(then: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut taken = Vec::new();
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut piece).await {
                taken.extend_from_slice(&piece[..read]);
                if taken.ends_with(b"}") || taken.ends_with(b"}]") || taken.starts_with(b"GET") {
                    break;
                }
            }
            then(stream);
        }
    });
    address
}

fn upstream(address: SocketAddr) -> String {
    format!("http://{address}/mcp")
}

fn call(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "t"}})
}

/// Status, reason and whether it may be tried again, with the id checked.
fn failure(answer: &Answer, id: &Value) -> (u16, String, bool) {
    let message: Value = serde_json::from_str(&answer.text).expect("JSON");
    assert_eq!(message["id"], *id, "{answer:?}");
    assert!(message["error"]["code"].as_u64().is_some(), "{answer:?}");
    let data = &message["error"]["data"];
    let retryable = data["retryable"].as_bool().expect("a word on that");
    assert_eq!(answer.headers.contains_key("retry-after"), retryable);
    let reason = data["reason"].as_str().expect("a reason").to_owned();
    (answer.status, reason, retryable)
}

fn expected(status: u16, reason: &str, retryable: bool) -> (u16, String, bool) {
    (status, reason.to_owned(), retryable)
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let sidecar = Sidecar::before(&upstream(nobody)).await;
    let client = sidecar.client();
    let unreachable = expected(502, "upstream_unreachable", true);
    for id in [
        json!(7),
        json!("seven"),
        json!(0),
        json!(9_007_199_254_740_993_u64),
    ] {
        let refused = client.post(call(&id)).await;
        assert_eq!(failure(&refused, &id), unreachable);
    }
    let notified = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let refused = client.post(notified).await;
    assert_eq!(failure(&refused, &Value::Null), unreachable);
    let refused = Client::send(client.request(Method::GET)).await;
    assert_eq!(failure(&refused, &Value::Null), unreachable);
    let refused = client
        .post(json!([call(&json!(1)), call(&json!("2"))]))
        .await;
    let errors: Vec<Value> = serde_json::from_str(&refused.text).expect("a batch");
    let ids: Vec<_> = errors.iter().map(|error| &error["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!("2")]);
    // Said in pieces, none of which was read.
    let pieces = call(&json!("piecemeal")).to_string();
    let pieces: Vec<_> = pieces
        .bytes()
        .map(|byte| Ok::<_, std::io::Error>(vec![byte]))
        .collect();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let refused = Client::send(client.request(Method::POST).body(body)).await;
    assert_eq!(failure(&refused, &json!("piecemeal")), unreachable);
}

#[tokio::test]
async fn a_server_that_breaks_off() {
    let sidecar = Sidecar::before(&upstream(fails(drop).await)).await;
    let client = sidecar.client();
    let refused = client.post(call(&json!("seven"))).await;
    let broken = expected(502, "upstream_broken", false);
    assert_eq!(failure(&refused, &json!("seven")), broken);
    let refused = Client::send(client.request(Method::GET)).await;
    let broken = expected(502, "upstream_broken", true);
    assert_eq!(failure(&refused, &Value::Null), broken);
}

#[tokio::test]
async fn a_server_that_is_silent() {
    let silent = fails(std::mem::forget).await;
    let soon = |options: &mut Options| options.answer_within = Duration::from_millis(200);
    let sidecar = Sidecar::with(&upstream(silent), MemoryStore::new(), soon).await;
    let refused = sidecar.client().post(call(&json!(7))).await;
    let silent = expected(504, "upstream_silent", false);
    assert_eq!(failure(&refused, &json!(7)), silent);
}

#[tokio::test]
async fn a_server_that_dies_in_the_middle_of_an_answer() {
    let mut peer = Peer::start(Kind::TypeScript).await;
    let sidecar = Sidecar::before(&peer.url()).await;
    let mut client = sidecar.client();
    client.open().await;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "trigger-long-running-operation", "arguments": {"duration": 3600, "steps": 36000},
        "_meta": {"progressToken": 1}}});
    let call = client.request(Method::POST).json(&call);
    let mut call = Stream::of(call.header("mcp-protocol-version", "2025-11-25")).await;
    call.next().await.expect("a step");
    peer.kill().await;
    let last = call.rest().await.pop().expect("an end that says something");
    assert_eq!(last.message["id"], 7);
    assert!(last.message["error"]["code"].as_u64().is_some(), "{last:?}");
    // And from then on.
    let refused = client.append("x").await;
    let reason = &refused.message()["error"]["data"]["reason"];
    assert_eq!(
        (refused.status, reason),
        (502, &json!("upstream_unreachable"))
    );
}
