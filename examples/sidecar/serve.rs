//! The stack: guards around the server behind, and the probe beside them.

use std::future::Future;

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
    serve::ListenerExt,
};
use mcp_session_guard::{
    affinity_guard::HttpForwarder,
    instance::Instance,
    stack::SessionGuardLayer,
    store::{EventStore, RequestLedger, SessionDirectory},
};
use tokio::net::TcpListener;
use tower::Layer;

use crate::{options::Options, upstream::Upstream};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Serves until `ends`, then retires.
pub(crate) async fn serve<S>(
    listener: TcpListener,
    options: &Options,
    store: S,
    ends: impl Future<Output = ()> + Send + 'static,
) -> Result<(), BoxError>
where
    S: SessionDirectory + EventStore + RequestLedger + Clone,
{
    let mut joining = Instance::builder(&*options.name).with_idle_limit(options.idle);
    if let Some(address) = &options.address {
        joining = joining.with_address(&**address);
    }
    let instance = joining.join(store.clone())?;
    let mut guards = SessionGuardLayer::new(&instance, store);
    if options.address.is_some() {
        guards = guards.affinity(|layer| layer.with_forwarder(HttpForwarder::new()));
    }
    if let Some(token) = &options.token {
        let token = token.parse()?;
        guards = guards.affinity(|layer| layer.with_route_token(token));
    }
    let upstream = Upstream::new(options.upstream.clone(), options.answer_within);
    let guarded = guards.layer(upstream);

    let probed = instance.clone();
    let router = Router::new()
        .route_service(options.upstream.path(), guarded)
        .route("/ready", get(async move || readiness(&probed)));
    // Answers of two small writes: Nagle's algorithm would hold the second back for 40 ms.
    let listener = listener.tap_io(|socket| {
        let _ = socket.set_nodelay(true);
    });
    let grace = options.grace;
    let (retired, cut) = tokio::sync::oneshot::channel();
    let served = axum::serve(listener, router).with_graceful_shutdown(async move {
        ends.await;
        let retirement = instance.retire_within(grace).await;
        println!("retired, {} calls cut", retirement.unfinished_calls());
        let _ = retired.send(());
    });
    tokio::select! {
        served = served => Ok(served?),
        // The server waits for its connections, and a stream that the guards did not end would keep it for ever.
        () = async {
            if cut.await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        } => Ok(()),
    }
}

/// A retiring instance keeps the sessions that it has, so that it is not the same as one that is down.
fn readiness(instance: &Instance) -> Response {
    match (instance.is_ready(), instance.is_retiring()) {
        (true, _) => StatusCode::OK.into_response(),
        (false, true) => (StatusCode::NOT_FOUND, [("x-envoy-degraded", "true")]).into_response(),
        (false, false) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
