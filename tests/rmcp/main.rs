//! The guards on real rmcp servers over real sockets, composed in every way that users compose it.

#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../support/mod.rs"]
mod support;

mod client;
mod composition;
mod drain;
#[cfg(feature = "forward")]
mod forward;
mod notebook;
mod resume;
mod sessions;
mod together;

use std::{net::SocketAddr, time::Duration};

use axum::{Router, serve::ListenerExt};
use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer,
    instance::Instance,
    store::{MemoryConfig, MemoryStore},
};
use tokio::{net::TcpListener, task::JoinHandle};

const LEASE: Duration = Duration::from_secs(2);

fn store() -> MemoryStore {
    MemoryStore::with_config(MemoryConfig::default().with_max_lease(LEASE))
}

async fn join(name: &'static str, store: &MemoryStore) -> Instance {
    let instance = Instance::builder(name)
        .with_lease(LEASE)
        .join(store.clone());
    let instance = instance.expect("joins");
    instance.ready().await;
    instance
}

async fn port() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

/// A server that ends with its handle.
struct Served {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Served {
    async fn router(router: Router) -> Self {
        Self::on(port().await, router)
    }

    fn on(listener: TcpListener, router: Router) -> Self {
        let address = listener.local_addr().expect("an address");
        // rmcp's answers are two small writes; without TCP_NODELAY each waits for an acknowledgement.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        Self { address, task }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An instance behind its own socket, guarded.
struct Pod {
    instance: Instance,
    served: Served,
}

impl Pod {
    async fn start(name: &'static str, store: &MemoryStore) -> Self {
        Self::with(name, store, |layer| layer, notebook::service()).await
    }

    async fn with(
        name: &'static str,
        store: &MemoryStore,
        configure: impl FnOnce(AffinityGuardLayer) -> AffinityGuardLayer,
        service: notebook::Service,
    ) -> Self {
        let instance = join(name, store).await;
        let layer = configure(AffinityGuardLayer::new(instance.clone()));
        let router = Router::new().route_service("/mcp", tower::Layer::layer(&layer, service));
        let served = Served::router(router).await;
        Self { instance, served }
    }

    fn client(&self) -> client::Client {
        client::Client::new(self.served.url("/mcp"))
    }
}
