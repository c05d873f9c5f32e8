//! What an edge must not do to MCP: run a POST twice, hold events back, cut headers.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use reqwest::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use crate::{
    DEADLINE,
    client::Client,
    edge::{Edge, Program},
    homes::came_to,
    pods::{Help, addresses, three},
    until,
};

const EVERY_RECIPE: [(Program, &str); 7] = [
    (Program::Nginx, "hash"),
    (Program::Nginx, "round-robin"),
    (Program::Nginx, "token"),
    (Program::HaProxy, "hash"),
    (Program::HaProxy, "round-robin"),
    (Program::HaProxy, "stick"),
    (Program::HaProxy, "token"),
];

const READY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Takes each POST whole, counts it, and breaks the connection. Health checks are answered.
async fn breaks(counted: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(take(stream, Arc::clone(&counted)));
        }
    });
    address
}

async fn take(mut stream: TcpStream, counted: Arc<AtomicUsize>) {
    let (mut taken, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut piece).await {
        taken.extend_from_slice(&piece[..read]);
        if taken.starts_with(b"GET /ready") {
            let _ = stream.write_all(READY).await;
            return;
        }
        if taken.ends_with(b"the end\"}") {
            counted.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
}

#[tokio::test]
async fn a_post_that_was_sent_is_not_sent_again() {
    for (program, recipe) in EVERY_RECIPE {
        let counted = Arc::<AtomicUsize>::default();
        let mut pods = [SocketAddr::from(([127, 0, 0, 1], 0)); 3];
        for pod in &mut pods {
            *pod = breaks(Arc::clone(&counted)).await;
        }
        let edge = Edge::start(program, recipe, pods).await;
        for session in [None, Some("s"), Some("s~pod-b")] {
            counted.store(0, Ordering::SeqCst);
            let mut client = Client::new(edge.url());
            client.session = session.map(str::to_owned);
            let post = client.request(Method::POST).body("{\"text\":\"the end\"}");
            let answer = Client::send(post).await;
            assert_eq!(answer.status, 502, "{program:?} {recipe}: {answer:?}");
            let sent = counted.load(Ordering::SeqCst);
            assert_eq!(sent, 1, "{program:?} {recipe} {session:?}");
        }
    }
}

#[tokio::test]
async fn what_was_not_sent_is_tried_elsewhere() {
    for (program, recipe) in EVERY_RECIPE {
        let help = Help {
            token: recipe == "token",
            forwarder: true,
        };
        let pods = three(help).await;
        let [_, one, _] = addresses(&pods);
        // Nobody listens at the others.
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        let edge = Edge::start(program, recipe, [nobody, one, nobody]).await;
        for _ in 0..6 {
            let mut client = Client::new(edge.url());
            assert_eq!(came_to(&client.open().await), "pod-b");
            assert_eq!(client.append("x").await.result_text(), "x");
        }
    }
}

#[tokio::test]
async fn events_are_not_held_back() {
    for (program, recipe) in EVERY_RECIPE {
        let help = Help {
            token: recipe == "token",
            forwarder: true,
        };
        let pods = three(help).await;
        let edge = Edge::start(program, recipe, addresses(&pods)).await;
        let mut client = Client::new(edge.url());
        client.open().await;

        let own = client.request(Method::GET).send();
        let own = timeout(DEADLINE, own).await.expect("headers at once");
        let mut own = own.expect("a stream");
        assert_eq!(own.status(), 200);
        assert_eq!(
            client.call("announce", json!({})).await.result_text(),
            "told"
        );
        hear(&mut own, "list_changed").await;

        // The second step is an hour away.
        let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {
            "name": "count", "arguments": {"steps": 2, "every_ms": 3_600_000},
            "_meta": {"progressToken": "p"}}});
        let call = client.request(Method::POST).json(&call).send();
        let call = timeout(DEADLINE, call).await.expect("headers at once");
        hear(&mut call.expect("a stream"), "notifications/progress").await;
    }
}

pub async fn hear(stream: &mut reqwest::Response, what: &str) {
    let mut heard = String::new();
    while !heard.contains(what) {
        let chunk = timeout(DEADLINE, stream.chunk()).await;
        let chunk = chunk.unwrap_or_else(|_| panic!("no {what}: {heard}"));
        let chunk = chunk.expect("a stream").expect("it goes on");
        heard += std::str::from_utf8(&chunk).expect("text");
    }
}

/// Answers a GET with events, each when the one before has been heard.
async fn converses(heard: Arc<Semaphore>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let heard = Arc::clone(&heard);
            tokio::spawn(async move {
                stream.set_nodelay(true).expect("a socket");
                let mut head = [0; 4096];
                let read = stream.read(&mut head).await.unwrap_or(0);
                if head[..read].starts_with(b"GET /ready") {
                    let _ = stream.write_all(READY).await;
                    return;
                }
                let _ = stream.write_all(STREAM).await;
                while stream.write_all(b"9\r\ndata: x\n\n\r\n").await.is_ok() {
                    heard.acquire().await.expect("never closed").forget();
                }
            });
        }
    });
    address
}

/// If each waited for the 200 ms that a kernel may wait for more, they would take longer than the deadline.
const WORDS: usize = 250;

#[tokio::test]
async fn events_go_out_one_by_one_and_at_once() {
    for (program, recipe) in EVERY_RECIPE {
        let heard = Arc::new(Semaphore::new(0));
        let pods = [converses(Arc::clone(&heard)).await; 3];
        let edge = Edge::start(program, recipe, pods).await;
        let stream = Client::new(edge.url()).request(Method::GET).send();
        let mut stream = stream.await.expect("a stream");
        let conversation = async {
            for _ in 0..WORDS {
                let mut event = Vec::new();
                while !event.ends_with(b"\n\n") {
                    event.extend(stream.chunk().await.expect("a stream").expect("more"));
                }
                assert_eq!(event, b"data: x\n\n");
                heard.add_permits(1);
            }
        };
        let in_time = timeout(DEADLINE, conversation).await;
        assert!(in_time.is_ok(), "{program:?} {recipe} holds events back");
    }
}

/// Answers a GET with events as fast as they are taken, and counts their bytes. Health checks are answered.
async fn floods(counted: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let read = stream.read(&mut head).await.unwrap_or(0);
                if head[..read].starts_with(b"GET /ready") {
                    let _ = stream.write_all(READY).await;
                    return;
                }
                let event = format!("data: {}\n\n", "x".repeat(16 << 10));
                let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                let _ = stream.write_all(STREAM).await;
                while stream.write_all(chunk.as_bytes()).await.is_ok() {
                    counted.fetch_add(event.len(), Ordering::SeqCst);
                }
            });
        }
    });
    address
}

/// More than the kernel takes for all the sockets on the way.
const TOO_MUCH: usize = 128 << 20;

#[tokio::test]
async fn a_reader_that_stands_still_is_felt_by_the_server() {
    for (program, recipe) in EVERY_RECIPE {
        let counted = Arc::<AtomicUsize>::default();
        let pods = [floods(Arc::clone(&counted)).await; 3];
        let edge = Edge::start(program, recipe, pods).await;
        let stream = Client::new(edge.url()).request(Method::GET).send();
        let _unread = stream.await.expect("a stream");
        let mut seen = VecDeque::from([0; 25]);
        until("a stop", async || {
            let now = counted.load(Ordering::SeqCst);
            assert!(now < TOO_MUCH, "{program:?} {recipe} takes {now} bytes");
            seen.push_back(now);
            // For half a second nothing.
            (seen.pop_front() == Some(now) && now > 0).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn long_headers_pass() {
    for (program, recipe) in EVERY_RECIPE {
        let help = Help {
            token: recipe == "token",
            forwarder: true,
        };
        let pods = three(help).await;
        let edge = Edge::start(program, recipe, addresses(&pods)).await;
        let mut client = Client::new(edge.url());
        client.open().await;
        let ping = json!({"jsonrpc": "2.0", "id": 5, "method": "ping"});
        let authorized = client
            .request(Method::POST)
            .bearer_auth("t".repeat(12_000))
            .json(&ping);
        assert_eq!(Client::send(authorized).await.status, 200);
        // As long as the guard takes them, with the longest token.
        client.session = Some(format!("{}~{}", "s".repeat(1024), "p".repeat(64)));
        let answer = client.post(ping).await;
        came_to(&answer);
        let reason = if help.token {
            (404, "session_not_found")
        } else {
            (400, "session_malformed")
        };
        assert_eq!((answer.status, answer.reason()), (reason.0, Some(reason.1)));
    }
}

#[tokio::test]
async fn nobody_outside_speaks_as_an_instance() {
    for (program, recipe) in EVERY_RECIPE {
        let help = Help {
            token: recipe == "token",
            forwarder: true,
        };
        let pods = three(help).await;
        let edge = Edge::start(program, recipe, addresses(&pods)).await;
        for _ in 0..6 {
            let mut client = Client::new(edge.url());
            client.open().await;
            let ping = json!({"jsonrpc": "2.0", "id": 5, "method": "ping"});
            let posted = client
                .request(Method::POST)
                .header("mcp-guard-forwarded", "00")
                .json(&ping);
            let answer = Client::send(posted).await;
            assert_eq!(answer.status, 200, "{program:?} {recipe}: {answer:?}");
            assert!(!answer.headers.contains_key("mcp-guard-forwarded"));
        }
    }
}
