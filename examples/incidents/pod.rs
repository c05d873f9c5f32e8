//! One instance of the server, with a thread and a runtime of its own, so that it can crash by itself.

use std::{net::SocketAddr, sync::Arc, thread, time::Duration};

use axum::{Router, serve::ListenerExt};
use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer, instance::Instance, store::MemoryStore,
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, session::local::LocalSessionManager,
};
use tokio::{net::TcpListener, runtime, sync::oneshot, task};
use tower::Layer;

use crate::{Error, notebook, permissive, report::Variant};

/// Short, so that nobody has to wait long for the sessions of a crashed instance to be given up.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

pub(crate) struct Pod {
    pub(crate) name: Arc<str>,
    pub(crate) address: SocketAddr,
    crash: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Pod {
    pub(crate) async fn start(
        name: Arc<str>,
        variant: Variant,
        store: MemoryStore,
    ) -> Result<Self, Error> {
        let (crash, crashed) = oneshot::channel();
        let (started, address) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let label = Arc::clone(&name);
        let thread = thread::Builder::new()
            .name(name.to_string())
            .spawn(move || {
                runtime.block_on(async move {
                    let (listener, router) = match open(&label, variant, store).await {
                        Ok(opened) => opened,
                        Err(error) => {
                            let _ = started.send(Err(error));
                            return;
                        }
                    };
                    let _ = started.send(listener.local_addr().map_err(Error::from));
                    // rmcp answers in two small writes, and Nagle's algorithm would hold the second back for 40 ms.
                    let listener = listener.tap_io(|socket| {
                        let _ = socket.set_nodelay(true);
                    });
                    tokio::select! {
                        _ = axum::serve(listener, router) => {}
                        _ = crashed => {}
                    }
                });
                // Here the runtime is dropped, and with it every connection, every session and the instance. Nothing
                // tells the directory.
            })?;
        let address = address.await??;
        Ok(Self {
            name,
            address,
            crash,
            thread,
        })
    }

    /// Ends it without a word to its clients or to the directory: its lease has to run out by itself.
    pub(crate) async fn crash(self) -> Result<(), Error> {
        let _ = self.crash.send(());
        let joined = task::spawn_blocking(|| self.thread.join()).await?;
        joined.map_err(|_| format!("the thread of {} panicked", self.name).into())
    }
}

async fn open(
    name: &Arc<str>,
    variant: Variant,
    store: MemoryStore,
) -> Result<(TcpListener, Router), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let router = match variant {
        Variant::Unguarded => permissive::router(),
        Variant::Guarded => {
            let instance = Instance::builder(Arc::clone(name))
                .with_address(format!("http://{}", listener.local_addr()?))
                .with_lease(LEASE)
                .join(store)?;
            instance.ready().await;
            let manager = Arc::new(LocalSessionManager::default());
            let mcp = notebook::service(&manager, StreamableHttpServerConfig::default());
            let guard = AffinityGuardLayer::new(instance).with_owner_hint();
            Router::new().route_service("/mcp", guard.layer(mcp))
        }
    };
    Ok((listener, router))
}
