//! All guards of one instance around one service, in the order in which they belong.
//!
//! ```
//! use axum::Router;
//! use mcp_session_guard::{instance::Instance, stack::SessionGuardLayer, store::MemoryStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mcp = tower::service_fn(|_: axum::extract::Request| async {
//! #     Ok::<_, std::convert::Infallible>(axum::response::Response::<axum::body::Body>::default())
//! # });
//! let store = MemoryStore::new();
//! let instance = Instance::builder("pod-7").join(store.clone())?;
//! let guarded: Router = Router::new()
//!     .route_service("/mcp", mcp)
//!     .layer(SessionGuardLayer::new(&instance, store));
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;

use tower_layer::Layer;

use crate::{
    affinity_guard::{AffinityGuard, AffinityGuardLayer},
    drain_credit::{DrainCredit, DrainCreditLayer},
    idempotency_key::{IdempotencyKey, IdempotencyKeyLayer},
    instance::Instance,
    resume_guard::{ResumeGuard, ResumeGuardLayer},
    session::Head,
    store::{EventStore, RequestLedger},
};

/// A service with all guards around it, outermost first.
pub type SessionGuard<S> = AffinityGuard<DrainCredit<ResumeGuard<IdempotencyKey<S>>>>;

/// Makes [`SessionGuard`]s: every layer of the crate, with one store and one instance.
///
/// ```
/// use std::time::Duration;
///
/// use mcp_session_guard::{instance::Instance, stack::SessionGuardLayer, store::MemoryStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let instance = Instance::builder("pod-7").join(store.clone())?;
/// let layer = SessionGuardLayer::new(&instance, store)
///     .with_principal(|head| Some(head.headers.get("x-user")?.to_str().ok()?.into()))
///     .affinity(|layer| layer.with_owner_hint())
///     .drain(|layer| layer.with_credit(128, 1 << 20))
///     .resume(|layer| layer.with_resume_window(Duration::from_secs(60)))
///     .idempotency(|layer| layer.waiting(Duration::from_secs(20)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct SessionGuardLayer {
    affinity: AffinityGuardLayer,
    drain: DrainCreditLayer,
    resume: ResumeGuardLayer,
    idempotency: IdempotencyKeyLayer,
}

impl SessionGuardLayer {
    /// Every layer as it is by default, on one store.
    pub fn new(instance: &Instance, store: impl EventStore + RequestLedger + Clone) -> Self {
        Self {
            affinity: AffinityGuardLayer::new(instance.clone()),
            drain: DrainCreditLayer::new().with_instance(instance.clone()),
            resume: ResumeGuardLayer::new(instance.clone(), store.clone()),
            idempotency: IdempotencyKeyLayer::new(store).with_instance(instance.clone()),
        }
    }

    /// Binds sessions and keys to the subject of a request: a user or a tenant, stable over token refreshes.
    pub fn with_principal(
        self,
        principal: impl for<'a> Fn(Head<'a>) -> Option<Cow<'a, str>> + Clone + Send + Sync + 'static,
    ) -> Self {
        let of = principal.clone();
        self.affinity(|layer| layer.with_principal(principal))
            .idempotency(|layer| layer.with_principal(of))
    }

    /// Changes the affinity guard.
    pub fn affinity(
        mut self,
        change: impl FnOnce(AffinityGuardLayer) -> AffinityGuardLayer,
    ) -> Self {
        self.affinity = change(self.affinity);
        self
    }

    /// Changes how work is admitted.
    pub fn drain(mut self, change: impl FnOnce(DrainCreditLayer) -> DrainCreditLayer) -> Self {
        self.drain = change(self.drain);
        self
    }

    /// What accepted sockets are to be set to, so that a stall is seen; see
    /// [`DrainCreditLayer::socket_options`](crate::drain_credit::DrainCreditLayer::socket_options).
    #[cfg(all(feature = "sockets", unix))]
    #[cfg_attr(docsrs, doc(cfg(feature = "sockets")))]
    pub fn socket_options(&self) -> crate::drain_credit::SocketOptions {
        self.drain.socket_options()
    }

    /// Changes the resume guard.
    pub fn resume(mut self, change: impl FnOnce(ResumeGuardLayer) -> ResumeGuardLayer) -> Self {
        self.resume = change(self.resume);
        self
    }

    /// Changes what is done with idempotency keys.
    pub fn idempotency(
        mut self,
        change: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer,
    ) -> Self {
        self.idempotency = change(self.idempotency);
        self
    }
}

impl<S> Layer<S> for SessionGuardLayer {
    type Service = SessionGuard<S>;

    fn layer(&self, inner: S) -> SessionGuard<S> {
        let inner = self.idempotency.layer(inner);
        let inner = self.resume.layer(inner);
        let inner = self.drain.layer(inner);
        self.affinity.layer(inner)
    }
}
