//! All guards around real rmcp servers: where what one of them does meets what another does.

use std::time::Duration;

use axum::Router;
use http::HeaderMap;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use mcp_session_guard::{instance::Instance, stack::SessionGuardLayer, store::MemoryStore};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::Layer;

use crate::{
    Served,
    client::{Answer, Client},
    join, notebook, store,
};

const PATIENCE: Duration = Duration::from_secs(20);

struct Pod {
    instance: Instance,
    served: Served,
}

impl Pod {
    async fn start(name: &'static str, store: &MemoryStore) -> Self {
        let instance = join(name, store).await;
        let layer = SessionGuardLayer::new(&instance, store.clone())
            .with_principal(|head| Some(head.headers.get("x-user")?.to_str().ok()?.into()));
        // As a user does it.
        let router = Router::new()
            .route_service("/mcp", notebook::service())
            .layer(layer);
        let served = Served::router(router).await;
        Self { instance, served }
    }

    async fn client(&self) -> Client {
        let mut headers = HeaderMap::new();
        headers.insert("x-user", "alice".parse().unwrap());
        let builder = reqwest::Client::builder().default_headers(headers);
        let mut client = Client::with(builder, self.served.url("/mcp"));
        client.open().await;
        client
    }
}

fn message(id: u64, tool: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params":
        {"name": tool, "arguments": arguments, "_meta": {"progressToken": id}}})
}

fn request(client: &Client, key: &str, message: &Value) -> reqwest::RequestBuilder {
    client
        .request(Method::POST)
        .header("mcp-protocol-version", "2025-11-25")
        .header("idempotency-key", key)
        .json(message)
}

async fn keyed(client: &Client, key: &str, id: u64, tool: &str, arguments: &Value) -> Answer {
    Client::send(request(client, key, &message(id, tool, arguments))).await
}

fn is_replay(answer: &Answer) -> bool {
    answer.headers.contains_key("idempotency-replayed")
}

/// Asks until the call has ended, one way or another.
async fn when_it_has_ended(client: &Client, key: &str, tool: &str, arguments: &Value) -> Answer {
    let asking = async {
        for id in 100.. {
            let answer = keyed(client, key, id, tool, arguments).await;
            if answer.reason() != Some("idempotency_key_in_progress") {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        unreachable!("ids do not run out")
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("ends")
}

#[tokio::test]
async fn a_keyed_call_runs_once_through_all_guards() {
    let pod = Pod::start("a", &store()).await;
    let client = pod.client().await;
    let line = json!({"text": "a"});
    let first = keyed(&client, "k", 1, "append", &line).await;
    assert_eq!(first.result_text(), "a");
    assert!(!is_replay(&first));
    // An event of the resume guard's, with its id.
    assert!(first.text.contains("id: g1."), "{first:?}");
    for id in 2..4 {
        let again = keyed(&client, "k", id, "append", &line).await;
        assert!(is_replay(&again));
        assert_eq!(
            (again.result_text(), &again.message()["id"]),
            ("a".into(), &json!(id))
        );
        assert!(
            !again.text.contains("g1."),
            "no event id of the first answer"
        );
    }
    assert_eq!(client.append("b").await.result_text(), "a|b");
}

/// Idempotency and Resume.
#[tokio::test]
async fn a_resumed_stream_and_a_replayed_outcome_agree() {
    let pod = Pod::start("a", &store()).await;
    let client = pod.client().await;
    let count = json!({"steps": 20, "every_ms": 20});
    let mut response = request(&client, "k", &message(1, "count", &count))
        .send()
        .await
        .expect("an answer");
    let mut heard = String::new();
    while !heard.contains("notifications/progress") {
        let chunk = response.chunk().await.expect("no break").expect("more");
        heard.push_str(std::str::from_utf8(&chunk).expect("text"));
    }
    drop(response);
    let last_id = heard
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("id: "));
    let last_id = last_id.expect("an id").to_owned();
    let refused = keyed(&client, "k", 2, "count", &count).await;
    assert_eq!(refused.reason(), Some("idempotency_key_in_progress"));
    let resume = client.request(Method::GET).header("last-event-id", last_id);
    let resumed = Client::send(resume).await;
    assert_eq!(resumed.status, 200);
    let answer = resumed
        .text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("data: "));
    let answer: Value = serde_json::from_str(answer.expect("an answer")).expect("JSON");
    let replayed = when_it_has_ended(&client, "k", "count", &count).await;
    assert!(is_replay(&replayed));
    assert_eq!(replayed.message()["result"], answer["result"]);
    assert_eq!(replayed.result_text(), "call 1");
}

/// Idempotency and Affinity.
#[tokio::test]
async fn a_request_that_is_refused_before_it_takes_no_claim() {
    let store = store();
    let (one, other) = (Pod::start("a", &store).await, Pod::start("b", &store).await);
    let client = one.client().await;
    let line = json!({"text": "a"});
    let elsewhere = client.at(other.served.url("/mcp"));
    let refused = keyed(&elsewhere, "k", 1, "append", &line).await;
    assert_eq!(refused.reason(), Some("session_reassigned"));
    let mut gone = client.at(client.url.clone());
    gone.session = Some("opened-by-nobody".to_owned());
    let refused = keyed(&gone, "k", 2, "append", &line).await;
    assert_eq!(refused.reason(), Some("session_not_found"));
    assert_eq!(store.keys(), 0);
    let first = keyed(&client, "k", 3, "append", &line).await;
    assert!(!is_replay(&first));
    assert_eq!(first.result_text(), "a");
}

/// Idempotency and Affinity: the key outlives its session, and its instance.
#[tokio::test]
async fn a_client_whose_session_is_gone_learns_what_came_of_its_call() {
    let store = store();
    let (one, other) = (Pod::start("a", &store).await, Pod::start("b", &store).await);
    let client = one.client().await;
    let line = json!({"text": "a"});
    keyed(&client, "k", 1, "append", &line).await;
    let retirement = one.instance.retire_within(Duration::from_secs(5)).await;
    assert_eq!(retirement.unfinished_calls(), 0);
    let lost = client.at(other.served.url("/mcp"));
    let refused = keyed(&lost, "k", 2, "append", &line).await;
    assert_eq!(
        (refused.status, refused.reason()),
        (404, Some("session_not_found"))
    );
    let anew = other.client().await;
    let told = keyed(&anew, "k", 3, "append", &line).await;
    assert_eq!(
        (told.status, told.reason()),
        (409, Some("idempotency_ran_in_other_session"))
    );
    let outcome = &told.message()["error"]["data"]["outcome"];
    assert_eq!(outcome["result"]["content"][0]["text"], "a");
    // And nothing has run here.
    assert_eq!(anew.append("b").await.result_text(), "b");
}

/// Idempotency, Resume and Affinity.
#[tokio::test]
async fn a_session_that_ends_while_a_keyed_call_runs_leaves_no_second_run() {
    let pod = Pod::start("a", &store()).await;
    let client = pod.client().await;
    let count = json!({"steps": 20, "every_ms": 20});
    let mut response = request(&client, "k", &message(1, "count", &count))
        .send()
        .await
        .expect("an answer");
    let mut heard = String::new();
    while !heard.contains("notifications/progress") {
        let chunk = response.chunk().await.expect("no break").expect("more");
        heard.push_str(std::str::from_utf8(&chunk).expect("text"));
    }
    let ended = Client::send(client.request(Method::DELETE)).await;
    assert!(ended.status < 300, "{ended:?}");
    let anew = pod.client().await;
    let told = when_it_has_ended(&anew, "k", "count", &count).await;
    let reasons = [
        "idempotency_outcome_unknown",
        "idempotency_ran_in_other_session",
    ];
    assert!(
        told.reason()
            .is_some_and(|reason| reasons.contains(&reason)),
        "{told:?}"
    );
    // The tool counts its runs in a session, and this one's first is still to come.
    let first = anew.call("count", json!({"steps": 1})).await;
    assert_eq!(first.result_text(), "call 1");
}

#[tokio::test]
async fn a_retiring_instance_lets_a_keyed_call_finish_whose_client_has_left() {
    let store = store();
    let pod = Pod::start("a", &store).await;
    let client = pod.client().await;
    let count = json!({"steps": 20, "every_ms": 20});
    let response = request(&client, "k", &message(1, "count", &count))
        .send()
        .await;
    drop(response.expect("an answer"));
    let retirement = pod.instance.retire_within(PATIENCE).await;
    assert_eq!(retirement.unfinished_calls(), 0);
    let other = Pod::start("b", &store).await;
    let anew = other.client().await;
    let told = keyed(&anew, "k", 2, "count", &count).await;
    assert_eq!(told.reason(), Some("idempotency_ran_in_other_session"));
}

/// A body that ends before its time, as a client that dies leaves it.
#[tokio::test]
async fn a_body_that_is_cut_off_on_the_wire_dispatches_nothing() {
    let store = store();
    let pod = Pod::start("a", &store).await;
    let client = pod.client().await;
    let body = message(1, "append", &json!({"text": "cut"})).to_string();
    let session = client.session.clone().expect("a session");
    let length = format!("content-length: {}", body.len() + 1);
    let chunk = format!("{:x}\r\n{body}\r\n", body.len());
    for (framing, sent) in [(&*length, &*body), ("transfer-encoding: chunked", &*chunk)] {
        let mut socket = TcpStream::connect(pod.served.address)
            .await
            .expect("connects");
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n\
             content-type: application/json\r\nx-user: alice\r\nidempotency-key: cut\r\n\
             mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n{framing}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.expect("sent");
        socket.write_all(sent.as_bytes()).await.expect("sent");
        socket.shutdown().await.expect("half closed");
        // Whatever is answered, it is answered or closed.
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer));
        let _ = read.await.expect("no hang");
    }
    assert_eq!(store.keys(), 0);
    assert_eq!(client.append("whole").await.result_text(), "whole");
}

/// The same on HTTP/2, where a stream is reset.
#[tokio::test]
async fn a_stream_that_is_reset_dispatches_nothing() {
    let store = store();
    let instance = join("a", &store).await;
    let guarded = SessionGuardLayer::new(&instance, store.clone()).layer(notebook::service());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let server = tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.expect("a connection");
            let service = TowerToHyperService::new(guarded.clone());
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new()).http2_only();
                let _ = builder
                    .serve_connection(TokioIo::new(socket), service)
                    .await;
            });
        }
    });
    let builder = reqwest::Client::builder().http2_prior_knowledge();
    let mut client = Client::with(builder, url);
    client.open().await;
    let body = message(1, "append", &json!({"text": "cut"})).to_string();
    let pieces = [Ok(body), Err(std::io::Error::other("the client is gone"))];
    let request = client
        .request(Method::POST)
        .header("content-type", "application/json")
        .header("idempotency-key", "cut")
        .body(reqwest::Body::wrap_stream(futures_util::stream::iter(
            pieces,
        )));
    assert!(request.send().await.is_err());
    assert_eq!(client.append("whole").await.result_text(), "whole");
    assert_eq!(store.keys(), 0);
    server.abort();
}
