//! One instance of the server, with a thread and a runtime of its own, so that it can crash by itself.

use std::{net::SocketAddr, sync::Arc, thread, time::Duration};

use axum::{
    Router, http::HeaderValue, middleware::map_response, response::Response, serve::ListenerExt,
};
use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer, instance::Instance, store::SharedDirectory,
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, session::local::LocalSessionManager,
};
use tokio::{net::TcpListener, runtime, sync::oneshot, task};
use tower::Layer;

use crate::{Error, edge::SERVED_BY, notebook, permissive, report::Variant};

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
        store: SharedDirectory,
    ) -> Result<Self, Error> {
        let label = Arc::clone(&name);
        Self::launch(name, async move |address| {
            open(&label, variant, store, address).await
        })
        .await
    }

    /// Serves what `open` makes; it is told the address.
    pub(crate) async fn launch<F>(
        name: Arc<str>,
        open: impl FnOnce(SocketAddr) -> F + Send + 'static,
    ) -> Result<Self, Error>
    where
        F: Future<Output = Result<Router, Error>>,
    {
        let (crash, crashed) = oneshot::channel();
        let (started, address) = oneshot::channel::<Result<_, Error>>();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = thread::Builder::new()
            .name(name.to_string())
            .spawn(move || {
                runtime.block_on(async move {
                    let opened = async {
                        let listener = TcpListener::bind("127.0.0.1:0").await?;
                        let address = listener.local_addr()?;
                        Ok::<_, Error>((listener, open(address).await?, address))
                    };
                    let (listener, router) = match opened.await {
                        Ok((listener, router, address)) => {
                            let _ = started.send(Ok(address));
                            (listener, router)
                        }
                        Err(error) => {
                            let _ = started.send(Err(error));
                            return;
                        }
                    };
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
    store: SharedDirectory,
    address: SocketAddr,
) -> Result<Router, Error> {
    Ok(match variant {
        Variant::Unguarded => permissive::router(),
        Variant::Guarded => {
            let instance = Instance::builder(Arc::clone(name))
                .with_address(format!("http://{address}"))
                .with_lease(LEASE)
                .join(store)?;
            instance.ready().await;
            let manager = Arc::new(LocalSessionManager::default());
            let mcp = notebook::service(&manager, StreamableHttpServerConfig::default());
            let guard = AffinityGuardLayer::new(instance).with_owner_hint();
            Router::new().route_service("/mcp", guard.layer(mcp))
        }
    })
}

/// Has each answer say which instance gave it.
pub(crate) fn named(router: Router, name: &str) -> Router {
    let name = HeaderValue::from_str(name).ok();
    router.layer(map_response(move |mut response: Response| {
        if let Some(name) = name.clone() {
            response.headers_mut().insert(SERVED_BY, name);
        }
        std::future::ready(response)
    }))
}
