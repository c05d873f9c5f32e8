//! A load balancer without affinity: each new connection goes to the next instance.
//!
//! It works on connections, as most do: a client stays with an instance as long as its connection holds.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinHandle},
};

use crate::{Error, pod::Pod};

pub(crate) struct Balancer {
    /// Host and port.
    pub(crate) address: String,
    routes: Arc<Mutex<Routes>>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Routes {
    living: Vec<SocketAddr>,
    turn: usize,
    open: Vec<AbortHandle>,
}

fn lock(routes: &Mutex<Routes>) -> MutexGuard<'_, Routes> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Balancer {
    pub(crate) async fn start<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Result<Self, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let routes = Arc::new(Mutex::new(Routes {
            living: pods.into_iter().map(|pod| pod.address).collect(),
            ..Routes::default()
        }));
        let shared = Arc::clone(&routes);
        let server = tokio::spawn(async move {
            while let Ok((down, _)) = listener.accept().await {
                let mut routes = lock(&shared);
                let Some(&pod) = routes.living.get(routes.turn % routes.living.len().max(1)) else {
                    continue;
                };
                routes.turn += 1;
                let connection = tokio::spawn(pass_on(down, pod));
                routes.open.retain(|open| !open.is_finished());
                routes.open.push(connection.abort_handle());
            }
        });
        Ok(Self {
            address,
            routes,
            server,
        })
    }

    /// From now on no new connection goes to the one, and some go to the other. Open ones stay.
    pub(crate) fn replace(&self, outgoing: SocketAddr, incoming: SocketAddr) {
        for address in &mut lock(&self.routes).living {
            if *address == outgoing {
                *address = incoming;
            }
        }
    }

    /// Its idle time-out strikes: every connection is dropped.
    pub(crate) fn drop_connections(&self) {
        for connection in lock(&self.routes).open.drain(..) {
            connection.abort();
        }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.server.abort();
        self.drop_connections();
    }
}

async fn pass_on(mut down: TcpStream, address: SocketAddr) {
    if let Ok(mut up) = TcpStream::connect(address).await {
        let _ = (down.set_nodelay(true), up.set_nodelay(true));
        let _ = copy_bidirectional(&mut down, &mut up).await;
    }
}
