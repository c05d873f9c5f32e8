//! A guarded server in this process, behind a proxy that cuts connections.

use axum::{Router, middleware::from_fn_with_state, serve::ListenerExt};
use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer, instance::Instance, resume_guard::ResumeGuardLayer,
    store::MemoryStore,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tower::Layer;

use crate::{
    client::Client,
    driver::Driver,
    log::Log,
    server::Worker,
    support::cutter::Cutter,
    wire::{Wire, note},
};

pub struct Rig {
    pub worker: Worker,
    pub log: Log,
    pub wire: Wire,
    pub cutter: Cutter,
    server: JoinHandle<()>,
}

impl Rig {
    pub async fn start() -> Self {
        let store = MemoryStore::new();
        let instance = Instance::builder("a").join(store.clone());
        let instance = instance.expect("joins");
        instance.ready().await;
        let (worker, log, wire) = (Worker::default(), Log::new(store), Wire::default());
        let resume = ResumeGuardLayer::new(instance.clone(), log.clone());
        let guarded = AffinityGuardLayer::new(instance).layer(resume.layer(worker.service()));
        let router = Router::new()
            .route_service("/mcp", guarded)
            .layer(from_fn_with_state(wire.clone(), note));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        // rmcp's answers are two small writes; without TCP_NODELAY each waits for an acknowledgement.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        Self {
            worker,
            log,
            wire,
            cutter: Cutter::before(address).await,
            server: tokio::spawn(async move {
                axum::serve(listener, router).await.expect("serves");
            }),
        }
    }

    /// A client with a session here, through the proxy.
    pub async fn open(&self, client: Client) -> Driver {
        let url = format!("http://{}/mcp", self.cutter.address);
        Driver::start(client, &url).await
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.server.abort();
    }
}
