//! What the way to a client swallows before anything looks undrained, for a client that never reads: bytes taken from a
//! body until nobody asks it for more.

use std::{
    convert::Infallible,
    error::Error,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use mcp_session_guard::drain_credit::{DrainCreditLayer, SocketOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::sleep,
};

type Failure = Box<dyn Error + Send + Sync>;

/// Nothing has moved for so long.
const STILL: Duration = Duration::from_millis(500);

/// Events of 128 bytes without end; counts what was taken of them.
struct Endless(Bytes, Arc<AtomicU64>);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.1.fetch_add(self.0.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(self.0.clone()))))
    }
}

/// How a server is set up.
#[derive(Clone, Copy, Default)]
struct Setup {
    options: Option<SocketOptions>,
    buffer: Option<usize>,
}

async fn serve(setup: Setup) -> Result<(SocketAddr, Arc<AtomicU64>), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let taken = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&taken);
    let service = tower::service_fn(move |_: Request<hyper::body::Incoming>| {
        let event = Bytes::from(format!("data: {}\n\n", "x".repeat(120)));
        let body = Endless(event, Arc::clone(&counter));
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            if let Some(options) = setup.options {
                options.apply(&socket).expect("options are set");
            }
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let mut server = auto::Builder::new(TokioExecutor::new());
                if let Some(bytes) = setup.buffer {
                    server.http1().max_buf_size(bytes);
                }
                let _ = server.serve_connection(TokioIo::new(socket), service).await;
            });
        }
    });
    Ok((address, taken))
}

/// What was taken once nothing moves any more, or `None` when it goes on and on.
async fn stall(taken: &AtomicU64) -> Option<u64> {
    let mut last = 0;
    for _ in 0..20 {
        sleep(STILL).await;
        let now = taken.load(Ordering::Relaxed);
        if now == last {
            return Some(now);
        }
        last = now;
    }
    None
}

/// A client that asks and never reads.
async fn http1(address: SocketAddr) -> Result<TcpStream, Failure> {
    let mut socket = TcpStream::connect(address).await?;
    let get = format!("GET / HTTP/1.1\r\nhost: {address}\r\n\r\n");
    socket.write_all(get.as_bytes()).await?;
    Ok(socket)
}

async fn over_http1(setup: Setup) -> Result<Option<u64>, Failure> {
    let (address, taken) = serve(setup).await?;
    let _unread = http1(address).await?;
    Ok(stall(&taken).await)
}

async fn over_http2(window: u32) -> Result<Option<u64>, Failure> {
    let (address, taken) = serve(Setup::default()).await?;
    let socket = TokioIo::new(TcpStream::connect(address).await?);
    let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    client.initial_stream_window_size(window);
    let (mut sender, connection) = client.handshake(socket).await?;
    tokio::spawn(connection);
    let get = Request::get(format!("http://{address}/")).body(Full::<Bytes>::default())?;
    let _unread = sender.send_request(get).await?;
    Ok(stall(&taken).await)
}

/// A proxy that reads ahead without end, before a client that never reads.
async fn behind_a_proxy(setup: Setup) -> Result<Option<u64>, Failure> {
    let (address, taken) = serve(setup).await?;
    let mut upstream = http1(address).await?;
    let (buffered, _never_read) = mpsc::unbounded_channel::<Bytes>();
    let reading = tokio::spawn(async move {
        let mut chunk = vec![0; 64 * 1024];
        while let Ok(1..) = upstream.read(&mut chunk).await {
            // Forgotten here, where a proxy would keep it.
            let _ = buffered.send(Bytes::new());
        }
    });
    let stalled = stall(&taken).await;
    reading.abort();
    Ok(stalled)
}

fn row(what: &str, swallowed: Option<u64>) {
    match swallowed {
        Some(bytes) => println!("{what:60} {:>10} KiB", bytes / 1024),
        None => println!("{what:60} {:>14}", "without end"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let bounded = Setup {
        options: Some(DrainCreditLayer::new().socket_options()),
        buffer: Some(8192),
    };
    let options = Setup {
        buffer: None,
        ..bounded
    };
    row("HTTP/1, defaults", over_http1(Setup::default()).await?);
    row("HTTP/1, socket options", over_http1(options).await?);
    let what = "HTTP/1, socket options, 8 KiB buffer of the HTTP server";
    row(what, over_http1(bounded).await?);
    row("HTTP/2, window of 64 KiB", over_http2(64 * 1024).await?);
    row("HTTP/2, window of 16 KiB", over_http2(16 * 1024).await?);
    let what = "HTTP/1, socket options, a proxy that reads ahead";
    row(what, behind_a_proxy(bounded).await?);
    Ok(())
}
