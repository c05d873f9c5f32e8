//! The affinity guard alone: an inner service that remembers, the embedded directory, and paused time.

#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../support/mod.rs"]
mod support;

mod field_reports;
mod forward;
mod lapse;
mod manners;
mod opening;
mod take_over;
mod verdicts;

use http::Request;
use mcp_session_guard::{
    affinity_guard::{AffinityGuard, AffinityGuardLayer},
    instance::Instance,
};
use support::{Answer, INITIALIZE, Sent, Stage, directory::Faulty, inner::Inner, post};
use tower::{Layer, ServiceExt};

/// One guarded instance, its inner service, and its way to the directory.
struct Node {
    instance: Instance,
    inner: Inner,
    directory: Faulty,
    guard: AffinityGuard<Inner>,
}

impl Node {
    async fn start(stage: &Stage, name: &'static str) -> Self {
        Self::with(stage, name, |layer| layer).await
    }

    async fn with(
        stage: &Stage,
        name: &'static str,
        configure: impl FnOnce(AffinityGuardLayer) -> AffinityGuardLayer,
    ) -> Self {
        Self::built(stage, stage.builder(name), name, configure).await
    }

    async fn built(
        stage: &Stage,
        builder: mcp_session_guard::instance::InstanceBuilder,
        name: &'static str,
        configure: impl FnOnce(AffinityGuardLayer) -> AffinityGuardLayer,
    ) -> Self {
        let directory = Faulty::new(stage.store.clone());
        let instance = stage.join(builder, directory.clone()).await;
        let inner = Inner::new(name);
        let layer = configure(AffinityGuardLayer::new(instance.clone()));
        let guard = layer.layer(inner.clone());
        Self {
            instance,
            inner,
            directory,
            guard,
        }
    }

    async fn send(&self, request: Request<Sent>) -> Answer {
        let response = self.guard.clone().oneshot(request).await.expect("no error");
        Answer::read(response).await
    }

    /// Opens a session and forgets that anything was asked.
    async fn open(&self) -> String {
        let answer = self.send(post(None, INITIALIZE)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        self.inner.take();
        answer.session().to_owned()
    }

    /// As when the process is killed: no more heartbeats, no goodbye.
    fn crash(self) -> Inner {
        self.inner
    }
}
