//! The drain layer on real connections: clients that never read, that read slowly, and that stop writing.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Either, Full};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use mcp_session_guard::drain_credit::{DrainCreditLayer, Figures};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    time::{sleep, timeout},
};
use tower::{Layer, Service};

const SESSION: &str = "session-1";
const PONG: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
const PATIENCE: Duration = Duration::from_secs(30);

/// Events without end, as fast as they are asked for.
struct Endless {
    event: Bytes,
    /// How often it was polled, and how many of its kind there are.
    polls: Arc<AtomicUsize>,
    alive: Arc<AtomicUsize>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(self.event.clone()))))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Inner {
    size: usize,
    calls: Arc<AtomicUsize>,
    deletes: Arc<AtomicUsize>,
    polls: Arc<AtomicUsize>,
    alive: Arc<AtomicUsize>,
}

impl Inner {
    fn of(size: usize) -> Self {
        Self {
            size,
            calls: Arc::default(),
            deletes: Arc::default(),
            polls: Arc::default(),
            alive: Arc::default(),
        }
    }
}

impl<B: Send + 'static> Service<Request<B>> for Inner {
    type Response = Response<Either<Full<Bytes>, Endless>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (kind, body) = if request.method() == Method::GET {
            self.alive.fetch_add(1, Ordering::Relaxed);
            let text = "x".repeat(self.size);
            let event =
                format!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":\"{text}\"}}\n\n");
            let endless = Endless {
                event: event.into(),
                polls: Arc::clone(&self.polls),
                alive: Arc::clone(&self.alive),
            };
            ("text/event-stream", Either::Right(endless))
        } else {
            let counter = match request.method() {
                &Method::DELETE => &self.deletes,
                _ => &self.calls,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            ("application/json", Either::Left(Full::from(PONG)))
        };
        let mut response = Response::new(body);
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert("content-type", kind);
        std::future::ready(Ok(response))
    }
}

/// Serves HTTP/1 and HTTP/2 with the layer's socket options.
async fn serve(layer: &DrainCreditLayer, inner: &Inner, send_buffer: usize) -> SocketAddr {
    let service = layer.layer(inner.clone());
    let options = layer.socket_options().with_send_buffer(send_buffer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            options.apply(&socket).unwrap();
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let mut server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                server.http1().half_close(true).max_buf_size(8192);
                let _ = server.serve_connection(TokioIo::new(socket), service).await;
            });
        }
    });
    address
}

async fn connect(address: SocketAddr, receive_buffer: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(receive_buffer).unwrap();
    socket.connect(address).await.unwrap()
}

/// A GET whose answer is read by whoever has the socket.
async fn listen(address: SocketAddr, receive_buffer: u32) -> TcpStream {
    let mut socket = connect(address, receive_buffer).await;
    let get = format!(
        "GET /mcp HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\nmcp-session-id: {SESSION}\r\n\r\n"
    );
    socket.write_all(get.as_bytes()).await.unwrap();
    socket
}

async fn ping(address: SocketAddr) -> StatusCode {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ping = http
        .post(format!("http://{address}/mcp"))
        .header("mcp-session-id", SESSION)
        .header("content-type", "application/json")
        .body(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let answer = timeout(PATIENCE, ping.send())
        .await
        .expect("it is answered");
    let status = answer.unwrap().status().as_u16();
    StatusCode::from_u16(status).unwrap()
}

/// Waits until the layer's figures are as they should be.
async fn until(layer: &DrainCreditLayer, what: &str, wanted: impl Fn(&Figures) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !wanted(&layer.figures()) {
        assert!(Instant::now() < deadline, "{what}: {:?}", layer.figures());
        sleep(Duration::from_millis(10)).await;
    }
}

fn layer() -> DrainCreditLayer {
    DrainCreditLayer::new()
        .with_credit(16, 1 << 20)
        .with_high_water(2)
        .with_drain_window(Duration::from_millis(100))
        .with_liveness(Duration::from_secs(1), 1 << 20)
        .with_wire_buffer(256 * 1024)
}

#[tokio::test]
async fn a_client_that_never_reads_over_http1() {
    let (layer, inner) = (layer(), Inner::of(500));
    let address = serve(&layer, &inner, 16 * 1024).await;
    let _socket = listen(address, 4096).await;
    until(&layer, "the queue is full", |figures| {
        figures.undrained_messages == 32
    })
    .await;
    assert_eq!(inner.alive.load(Ordering::Relaxed), 1);
    let polls = inner.polls.load(Ordering::Relaxed);
    assert_eq!(ping(address).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(inner.calls.load(Ordering::Relaxed), 0);
    assert_eq!(
        inner.polls.load(Ordering::Relaxed),
        polls,
        "it is no longer pulled"
    );
    until(&layer, "torn down", |figures| {
        figures.streams_torn_down == 1
    })
    .await;
    let figures = layer.figures();
    assert_eq!((figures.peak_messages, figures.sessions_ended), (32, 1));
    until(&layer, "given back", |figures| {
        figures.undrained_messages == 0
    })
    .await;
    let deadline = Instant::now() + PATIENCE;
    while inner.alive.load(Ordering::Relaxed) > 0 || inner.deletes.load(Ordering::Relaxed) == 0 {
        assert!(
            Instant::now() < deadline,
            "the inner stream is dropped and the session ended"
        );
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(ping(address).await, StatusCode::OK);
}

#[tokio::test]
async fn a_client_that_never_reads_over_http2() {
    let (layer, inner) = (layer(), Inner::of(500));
    let address = serve(&layer, &inner, 16 * 1024).await;
    let socket = connect(address, 64 * 1024).await;
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1024)
        .handshake(TokioIo::new(socket))
        .await
        .unwrap();
    tokio::spawn(connection);
    let get = Request::get(format!("http://{address}/mcp"))
        .header("mcp-session-id", SESSION)
        .body(Full::<Bytes>::default())
        .unwrap();
    let unread = sender.send_request(get).await.unwrap();
    until(&layer, "the queue is full", |figures| {
        figures.undrained_messages == 32
    })
    .await;
    let post = |id: u32| {
        Request::post(format!("http://{address}/mcp"))
            .header("mcp-session-id", SESSION)
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#
            )))
            .unwrap()
    };
    let refused = sender.send_request(post(7)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let refused = refused.into_body().collect().await.unwrap().to_bytes();
    let refused: serde_json::Value = serde_json::from_slice(&refused).unwrap();
    assert_eq!(refused["id"], 7);
    until(&layer, "torn down", |figures| {
        figures.streams_torn_down == 1
    })
    .await;
    // The connection carries others as well.
    assert_eq!(layer.figures().sessions_ended, 0);
    let answered = sender.send_request(post(8)).await.unwrap();
    assert_eq!(answered.status(), StatusCode::OK);
    drop(unread);
    assert_eq!(inner.deletes.load(Ordering::Relaxed), 0);
}

/// dhyansraj/mcp-mesh#1567: with a time-out of half a second each of these goes longer without a sign of life.
#[tokio::test]
async fn slow_clients_are_slowed_and_not_cut() {
    let read = async |rate: usize, seconds: u64, buffers: usize| {
        let layer = layer()
            .with_liveness(Duration::from_millis(500), 800)
            .with_drain_window(Duration::from_millis(100));
        let inner = Inner::of(500);
        let address = serve(&layer, &inner, buffers).await;
        let mut socket = listen(address, buffers as u32).await;
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let mut bytes = vec![0; rate / 10];
        for _ in 0..seconds * 10 {
            ticks.tick().await;
            let read = timeout(PATIENCE, socket.read_exact(&mut bytes)).await;
            read.expect("it goes on").expect("it is not cut");
        }
        let figures = layer.figures();
        assert_eq!(figures.streams_torn_down, 0, "{rate} B/s: {figures:?}");
        assert!(figures.peak_messages <= 32);
    };
    tokio::join!(read(1_000, 12, 2048), read(20_000, 12, 65_536));
}

/// hyperium/hyper#4086
#[tokio::test]
async fn a_client_that_has_said_all_it_had_to_say_gets_its_answer() {
    let (layer, inner) = (layer(), Inner::of(10));
    let address = serve(&layer, &inner, 16 * 1024).await;
    let mut socket = connect(address, 16 * 1024).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let post = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nmcp-session-id: {SESSION}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ping}",
        ping.len()
    );
    socket.write_all(post.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut answer = String::new();
    let read = timeout(PATIENCE, socket.read_to_string(&mut answer)).await;
    read.expect("it ends").unwrap();
    assert!(answer.ends_with(PONG), "{answer}");
    until(&layer, "given back", |figures| figures.sessions == 0).await;
}
