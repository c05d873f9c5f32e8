//! A proxy between a client and a server that cuts connections, or holds new ones back, when it is told to.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

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
    /// The connections there are, by number.
    open: Arc<watch::Sender<BTreeSet<u64>>>,
}

/// A connection, for as long as it is there.
struct Connection {
    number: u64,
    open: Arc<watch::Sender<BTreeSet<u64>>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.send_modify(|open| {
            open.remove(&self.number);
        });
    }
}

impl Cutter {
    pub async fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (cut, cuts) = watch::channel(None);
        let (hold, holds) = watch::channel(false);
        let open = Arc::<watch::Sender<BTreeSet<u64>>>::default();
        let connections = Arc::clone(&open);
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((down, _)) = listener.accept().await else {
                    return;
                };
                connections.send_modify(|open| {
                    open.insert(number);
                });
                let connection = Connection {
                    number,
                    open: Arc::clone(&connections),
                };
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                let holds = holds.clone();
                tokio::spawn(async move {
                    pass(down, upstream, cuts, holds).await;
                    drop(connection);
                });
            }
        });
        Self {
            address,
            cut,
            hold,
            open,
        }
    }

    /// Cuts all connections there are, those that are held back too. They are gone when this returns.
    pub async fn cut(&self, how: Cut) {
        let mut open = self.open.subscribe();
        let there = open.borrow().clone();
        self.cut.send_replace(Some(how));
        let gone = open.wait_for(|open| open.is_disjoint(&there)).await;
        gone.expect("the sender is borrowed");
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
