//! The guarded server of the incidents about streams: both layers around rmcp, with sessions that can go on elsewhere.

use std::{net::SocketAddr, sync::Arc};

use axum::Router;
use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer,
    instance::Instance,
    rejection::RefusalStyle,
    resume_guard::{LogReach, ResumeGuardLayer},
    session::Offer,
    store::{EventStore, SharedDirectory},
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use tower::ServiceBuilder;

use crate::{
    Error,
    counter::{self, Runs},
    handshakes::Handshakes,
    pod::{LEASE, Pod, named},
};

/// What the instances share.
pub(crate) struct Shared {
    pub(crate) directory: SharedDirectory,
    pub(crate) handshakes: Arc<Handshakes>,
    pub(crate) runs: Runs,
}

pub(crate) async fn start(
    name: &str,
    shared: &Shared,
    reach: LogReach,
    events: impl EventStore,
) -> Result<(Pod, Instance), Error> {
    let instance = Instance::builder(name)
        .with_lease(LEASE)
        .join(shared.directory.clone())?;
    instance.ready().await;
    // An instance that takes a session over has to offer what was negotiated, and may not have had a client yet.
    let offer = Offer::new(&serde_json::to_value(counter::capabilities())?)?;
    let guards = ServiceBuilder::new()
        .layer(
            AffinityGuardLayer::new(instance.clone())
                .externalized()
                .with_offer(offer)
                // The callers here go on to the next instance when they are told to, resumes too.
                .with_refusal_style(RefusalStyle::Status),
        )
        .layer(ResumeGuardLayer::new(instance.clone(), events).with_log_reach(reach));
    let manager = Arc::new(LocalSessionManager::default());
    let mcp = counter::service(&manager, shared.handshakes.config(), &shared.runs);
    let label = name.to_owned();
    let open = async move |_: SocketAddr| {
        let router = Router::new().route_service("/mcp", guards.service(mcp));
        Ok(named(router, &label))
    };
    Ok((Pod::launch(name.into(), open).await?, instance))
}
