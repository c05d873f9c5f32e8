//! The process of a server: `load serve SERVER LAYERS THREADS`, started by the one that measures. It says where it listens and
//! ends with its standard input.

use std::io::Read;

use axum::{Router, routing::post, serve::ListenerExt};
use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer, drain_credit::DrainCreditLayer,
    idempotency_key::IdempotencyKeyLayer, instance::Instance, resume_guard::ResumeGuardLayer,
    stack::SessionGuardLayer, store::MemoryStore,
};
use tokio::net::TcpListener;

use super::{
    Error, bare,
    rows::{Layers, Server},
    sdk,
};

/// Its first argument.
pub(crate) const SERVE: &str = "serve";

pub(crate) fn run(mut args: impl Iterator<Item = String>) -> Result<(), Error> {
    let mut next = || args.next().ok_or("usage: load serve SERVER LAYERS THREADS");
    let server = next()?.parse()?;
    let layers = next()?.parse()?;
    let threads = next()?.parse()?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?;
    // On a worker, as every connection.
    runtime.block_on(async { tokio::spawn(serve(server, layers)).await? })
}

async fn serve(server: Server, layers: Layers) -> Result<(), Error> {
    let router = match server {
        Server::Rmcp => Router::new().route_service("/mcp", sdk::service()),
        Server::Bare => Router::new().route("/mcp", post(bare::answer)),
        Server::TowerMcp => return Err("tower-mcp is served by a program of its own".into()),
    };
    let router = guarded(router, layers).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    // rmcp's answers are two small writes; without TCP_NODELAY the second waits for an acknowledgement, 40 ms.
    let listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            eprintln!("an accepted socket keeps its defaults: {error}");
        }
    });
    axum::serve(listener, router).await?;
    Ok(())
}

/// What is added first is innermost.
async fn guarded(router: Router, layers: Layers) -> Result<Router, Error> {
    if layers == Layers::None {
        return Ok(router);
    }
    let store = MemoryStore::new();
    let instance = Instance::builder("load").join(store.clone())?;
    instance.ready().await;
    Ok(match layers {
        Layers::None => router,
        Layers::Affinity => router.layer(AffinityGuardLayer::new(instance)),
        Layers::Drain => router.layer(DrainCreditLayer::new()),
        Layers::Resume => router
            .layer(ResumeGuardLayer::new(instance.clone(), store))
            .layer(AffinityGuardLayer::new(instance)),
        Layers::Idempotency => router.layer(IdempotencyKeyLayer::new(store)),
        Layers::All => router.layer(SessionGuardLayer::new(&instance, store)),
    })
}
