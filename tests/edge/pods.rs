//! Three guarded rmcp servers, each with a thread and a runtime of its own, so that it can crash by itself.

use std::{net::SocketAddr, thread, time::Duration};

use axum::{
    Router,
    http::{HeaderValue, StatusCode},
    middleware::map_response,
    response::Response,
    routing::get,
    serve::ListenerExt,
};
use mcp_session_guard::{
    affinity_guard::{AffinityGuardLayer, HttpForwarder},
    instance::Instance,
    resume_guard::ResumeGuardLayer,
    store::{MemoryConfig, MemoryStore},
};
use tokio::{net::TcpListener, runtime, sync::oneshot};
use tower::Layer;

use crate::notebook;

/// Short, so that nobody has to wait long for the sessions of a crashed instance to be given up.
pub const LEASE: Duration = Duration::from_secs(2);

/// Which instance the edge sent a request to, whoever answered it in the end.
pub const CAME_TO: &str = "x-came-to";

pub const NAMES: [&str; 3] = ["pod-a", "pod-b", "pod-c"];

/// What the edge is helped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Help {
    pub token: bool,
    pub forwarder: bool,
}

pub struct Pod {
    pub name: &'static str,
    pub address: SocketAddr,
    pub instance: Instance,
    crash: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Pod {
    async fn start(name: &'static str, store: &MemoryStore, help: Help) -> Self {
        let store = store.clone();
        let (crash, crashed) = oneshot::channel();
        let (started, pod) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let serve = async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let instance = Instance::builder(name)
                .with_address(format!("http://{address}"))
                .with_lease(LEASE)
                .join(store.clone())
                .expect("joins");
            instance.ready().await;
            let router = router(name, &instance, store, help);
            let told = started.send((address, instance));
            assert!(told.is_ok(), "somebody waits for it");
            // rmcp's answers are two small writes; without TCP_NODELAY each waits for an acknowledgement.
            let listener = listener.tap_io(|stream| {
                let _ = stream.set_nodelay(true);
            });
            tokio::select! {
                served = axum::serve(listener, router) => served.expect("serves"),
                _ = crashed => {}
            }
        };
        // With the runtime everything ends at once: every connection, every session.
        let thread = thread::spawn(move || runtime.block_on(serve));
        let (address, instance) = pod.await.expect("it starts");
        Self {
            name,
            address,
            instance,
            crash,
            thread,
        }
    }

    /// Ends it without a word to anybody: its lease has to run out by itself.
    pub async fn crash(self) {
        drop(self.instance);
        drop(self.crash);
        let ended = tokio::task::spawn_blocking(|| self.thread.join()).await;
        ended.expect("it is waited for").expect("no panic");
    }
}

fn router(name: &'static str, instance: &Instance, store: MemoryStore, help: Help) -> Router {
    let mut affinity = AffinityGuardLayer::new(instance.clone());
    if help.token {
        affinity = affinity.with_route_token(name.parse().expect("a token"));
    }
    if help.forwarder {
        affinity = affinity.with_forwarder(HttpForwarder::new());
    }
    let resume = ResumeGuardLayer::new(instance.clone(), store);
    let guarded = affinity.layer(resume.layer(notebook::service()));
    let probed = instance.clone();
    let ready = move || std::future::ready(readiness(&probed));
    Router::new()
        .route_service("/mcp", guarded)
        .route("/ready", get(ready))
        .layer(map_response(move |mut response: Response| {
            let name = HeaderValue::from_static(name);
            let headers = response.headers_mut();
            headers.insert(CAME_TO, name);
            // What rmcp asks of nginx with it, not every server does, and the recipe has to do by itself.
            headers.remove("x-accel-buffering");
            std::future::ready(response)
        }))
}

/// As the recipes expect it.
fn readiness(instance: &Instance) -> StatusCode {
    match (instance.is_ready(), instance.is_retiring()) {
        (true, _) => StatusCode::OK,
        (false, true) => StatusCode::NOT_FOUND,
        (false, false) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Three of them on one directory.
pub async fn three(help: Help) -> [Pod; 3] {
    let config = MemoryConfig::default().with_max_lease(LEASE);
    let store = MemoryStore::with_config(config);
    let [a, b, c] = NAMES;
    [
        Pod::start(a, &store, help).await,
        Pod::start(b, &store, help).await,
        Pod::start(c, &store, help).await,
    ]
}

pub fn addresses(pods: &[Pod; 3]) -> [SocketAddr; 3] {
    pods.each_ref().map(|pod| pod.address)
}
