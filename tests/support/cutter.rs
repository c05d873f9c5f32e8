//! A proxy between a client and a server that cuts connections, or holds new ones back, when it is told to.

use std::net::SocketAddr;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// How a connection ends for both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// With a FIN, in the middle of what was being sent.
    Close,
    /// With a RST, as from a balancer that has lost its table.
    Reset,
}

#[derive(Debug)]
pub struct Cutter {
    pub address: SocketAddr,
    cut: watch::Sender<Option<Cut>>,
    /// Whether new connections have to wait.
    hold: watch::Sender<bool>,
}

impl Cutter {
    pub async fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (cut, cuts) = watch::channel(None);
        let (hold, holds) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((down, _)) = listener.accept().await {
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                tokio::spawn(pass(down, upstream, cuts, holds.clone()));
            }
        });
        Self { address, cut, hold }
    }

    /// Cuts all connections there are, those that are held back too.
    pub fn cut(&self, how: Cut) {
        self.cut.send_replace(Some(how));
    }

    /// New connections are accepted, and nothing goes over them until they are let through.
    pub fn hold(&self) {
        self.hold.send_replace(true);
    }

    pub fn let_through(&self) {
        self.hold.send_replace(false);
    }
}

async fn pass(
    mut down: TcpStream,
    upstream: SocketAddr,
    mut cuts: watch::Receiver<Option<Cut>>,
    mut holds: watch::Receiver<bool>,
) {
    let mut up = None;
    let copying = async {
        // The cutter is gone: so is the test.
        let Ok(_) = holds.wait_for(|hold| !hold).await else {
            return;
        };
        let up = up.insert(TcpStream::connect(upstream).await.expect("connects"));
        let _ = (down.set_nodelay(true), up.set_nodelay(true));
        let _ = copy_bidirectional(&mut down, up).await;
    };
    tokio::select! {
        () = copying => return,
        _ = cuts.changed() => {}
    }
    if *cuts.borrow() == Some(Cut::Reset) {
        for stream in [Some(down), up].into_iter().flatten() {
            let _ = stream.set_zero_linger();
        }
    }
}
