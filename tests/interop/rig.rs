//! A guarded server in this process, behind a proxy that cuts connections, an edge that errs, and beside a second instance
//! to which it errs.

use std::net::SocketAddr;

use axum::{Router, middleware::from_fn_with_state, serve::ListenerExt};
use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer,
    instance::Instance,
    rejection::RefusalStyle,
    resume_guard::ResumeGuardLayer,
    store::{MemoryStore, SessionDirectory},
};
use tokio::{net::TcpListener, task::JoinHandle};
use tower::Layer;

use crate::{
    client::Client,
    driver::Driver,
    edge::{self, Edge},
    log::Log,
    server::Worker,
    support::{cutter::Cutter, directory::Faulty},
    wire::{self, Wire},
};

/// How many bytes of a request the guards read.
pub const BODY_LIMIT: usize = 64 * 1024;

pub struct Rig {
    pub worker: Worker,
    pub log: Log,
    pub wire: Wire,
    pub cutter: Cutter,
    pub edge: Edge,
    pub instance: Instance,
    /// What the other instance asks.
    pub directory: Faulty,
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Rig {
    pub async fn start() -> Self {
        Self::with(None).await
    }

    /// With this style of refusals; without one, with the layers' own.
    pub async fn with(style: Option<RefusalStyle>) -> Self {
        let store = MemoryStore::new();
        let (worker, log, wire) = (Worker::default(), Log::new(store.clone()), Wire::default());
        let directory = Faulty::new(store.clone());
        let instance = join("a", store).await;
        let other = join("b", directory.clone()).await;
        let edge = Edge::new(guarded(other, &log, &worker, style));
        let router = guarded(instance.clone(), &log, &worker, style)
            .layer(from_fn_with_state(edge.clone(), edge::pass))
            .layer(from_fn_with_state(wire.clone(), wire::note));
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
            edge,
            instance,
            directory,
            address,
            server: tokio::spawn(async move {
                axum::serve(listener, router).await.expect("serves");
            }),
        }
    }

    /// Where clients find the server: behind the proxy.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.cutter.address)
    }

    /// A client with a session here.
    pub async fn open(&self, client: Client) -> Driver {
        Driver::open(client, &self.url()).await
    }

    /// Somebody else ends the client's session.
    pub async fn end_session(&self) {
        let url = format!("http://{}/mcp", self.address);
        let delete = reqwest::Client::new().delete(url);
        let delete = delete.header("mcp-session-id", self.wire.session());
        let answer = delete.send().await.expect("an answer");
        assert!(answer.status().is_success(), "{answer:?}");
    }
}

async fn join(name: &str, directory: impl SessionDirectory) -> Instance {
    let instance = Instance::builder(name).join(directory).expect("joins");
    instance.ready().await;
    instance
}

fn guarded(instance: Instance, log: &Log, worker: &Worker, style: Option<RefusalStyle>) -> Router {
    let mut affinity = AffinityGuardLayer::new(instance.clone())
        .with_body_limit(BODY_LIMIT)
        .strict();
    let mut resume = ResumeGuardLayer::new(instance, log.clone()).with_body_limit(BODY_LIMIT);
    if let Some(style) = style {
        affinity = affinity.with_refusal_style(style);
        resume = resume.with_refusal_style(style);
    }
    let service = affinity.layer(resume.layer(worker.service()));
    Router::new().route_service("/mcp", service)
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.server.abort();
    }
}
