//! A way to the server that breaks to order.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

pub struct Proxy {
    port: u16,
    faults: Arc<Faults>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Faults {
    /// Every so many pieces of reply the connection breaks in the middle of one; never when zero.
    every: AtomicUsize,
    pieces: AtomicUsize,
    cuts: AtomicUsize,
    /// Connections up to this one swallow what comes.
    swallowing: AtomicUsize,
    opened: AtomicUsize,
    stop: AtomicBool,
}

impl Proxy {
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let faults = Arc::new(Faults::default());
        let shared = Arc::clone(&faults);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let faults = Arc::clone(&shared);
                let number = faults.opened.fetch_add(1, Ordering::SeqCst) + 1;
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await {
                    tokio::spawn(carry(client, server, faults, number));
                }
            }
        });
        Self { port, faults, task }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn cut_every(&self, pieces: usize) {
        self.faults.every.store(pieces, Ordering::SeqCst);
    }

    pub fn cuts(&self) -> usize {
        self.faults.cuts.load(Ordering::SeqCst)
    }

    /// From now on nothing comes over the connections that there are.
    pub fn swallow(&self) {
        let opened = self.faults.opened.load(Ordering::SeqCst);
        self.faults.swallowing.store(opened, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.faults.stop.store(true, Ordering::SeqCst);
        self.task.abort();
    }
}

async fn carry(client: TcpStream, server: TcpStream, faults: Arc<Faults>, number: usize) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let swallows = || number <= faults.swallowing.load(Ordering::SeqCst);
    let asks = async {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut piece).await {
            if !swallows() && to_server.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
    };
    let replies = async {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut piece).await {
            if swallows() {
                continue;
            }
            let every = faults.every.load(Ordering::SeqCst);
            let cut =
                every > 0 && faults.pieces.fetch_add(1, Ordering::SeqCst) % every == every - 1;
            let length = if cut { length / 2 } else { length };
            if to_client.write_all(&piece[..length]).await.is_err() || cut {
                faults.cuts.fetch_add(usize::from(cut), Ordering::SeqCst);
                break;
            }
        }
    };
    // Whichever ends takes the other with it.
    tokio::select! {
        () = asks => {}
        () = replies => {}
    }
}
