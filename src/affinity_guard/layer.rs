//! The layer and what can be chosen about it.

use std::{borrow::Cow, collections::HashSet, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    body::BoxError,
    forward::{Forward, Forwarder},
    route_token::RouteToken,
    service::AffinityGuard,
    steps::Stripes,
};
use crate::{
    instance::Instance,
    mcp::{Envelope, MessageKind},
    rejection::{Reason, RefusalStyle, Rejection},
    session::{Head, Offer, Principal, PrincipalOf, Residency, SessionId, SessionTerms},
};

/// Makes [`AffinityGuard`]s. See the [module](self::super) for what it is for.
///
/// ```
/// use std::time::Duration;
///
/// use mcp_session_guard::{
///     affinity_guard::{AffinityGuardLayer, SelfContained},
///     instance::Instance,
///     rejection::RefusalStyle,
///     store::MemoryStore,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let instance = Instance::builder("pod-7").join(MemoryStore::new())?;
/// let layer = AffinityGuardLayer::new(instance)
///     .with_store_deadline(Duration::from_millis(100))
///     .with_refusal_style(RefusalStyle::InBand)
///     .with_principal(|head| Some(head.headers.get("x-user")?.to_str().ok()?.into()))
///     .stateless_for(SelfContained::new().method("ping").tool("convert_units"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct AffinityGuardLayer {
    config: Arc<Config>,
}

/// Shared by every clone of a guard.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) instance: Instance,
    pub(super) residency: Residency,
    pub(super) max_id_len: usize,
    pub(super) store_deadline: Duration,
    pub(super) body_limit: usize,
    pub(super) answer_deadline: Duration,
    pub(super) resume_deadline: Duration,
    pub(super) strict: bool,
    pub(super) absent_goes_stateless: bool,
    pub(super) owner_hint: bool,
    /// How refusals are told, if it was chosen.
    pub(super) style: Option<RefusalStyle>,
    pub(super) self_contained: SelfContained,
    pub(super) principal: Option<Arc<PrincipalOf>>,
    pub(super) stripes: Stripes,
    pub(super) forwarder: Option<Forwarder>,
    pub(super) forward_deadline: Duration,
    pub(super) route_token: Option<RouteToken>,
}

impl AffinityGuardLayer {
    /// A guard for the sessions of this instance, each pinned to it.
    pub fn new(instance: Instance) -> Self {
        Self {
            config: Arc::new(Config {
                instance,
                residency: Residency::Pinned,
                max_id_len: SessionId::DEFAULT_MAX_LEN,
                store_deadline: Duration::from_millis(250),
                body_limit: 4 << 20,
                answer_deadline: Duration::from_secs(10),
                resume_deadline: Duration::from_secs(5),
                strict: false,
                absent_goes_stateless: false,
                owner_hint: false,
                style: None,
                self_contained: SelfContained::default(),
                principal: None,
                stripes: Stripes::new(),
                forwarder: None,
                forward_deadline: Duration::from_secs(60),
                route_token: None,
            }),
        }
    }

    fn set(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// The state of every session lives in a shared store that the inner service rehydrates from, so another
    /// instance may take a session over when its owner is gone. Default: [`Residency::Pinned`].
    ///
    /// A take-over is refused with `session_resume_rejected` when what this instance offers is not what the
    /// session negotiated. What it offers is learned from the inner service's answers to `initialize`; until one
    /// has passed, and unless it is declared with [`with_offer`](Self::with_offer), take-overs are answered 503.
    pub fn externalized(self) -> Self {
        self.set(|config| config.residency = Residency::Externalized)
    }

    /// Declares what the inner service offers: the hash of the `capabilities` in its answers to `initialize`.
    pub fn with_offer(self, offer: Offer) -> Self {
        self.config.instance.shared().set_offer(offer);
        self
    }

    /// The longest session id that is taken, in bytes. Default 1024. Some gateways make long ones.
    pub fn with_max_session_id_len(self, bytes: usize) -> Self {
        self.set(|config| config.max_id_len = bytes)
    }

    /// How long the directory may take in all for one request before it is answered 503. Default 250 ms.
    pub fn with_store_deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.store_deadline = deadline)
    }

    /// How many bytes of a body are read, where one has to be: of a request that is not at its owner, and of the
    /// answer to `initialize`. Default 4 MiB.
    pub fn with_body_limit(self, bytes: usize) -> Self {
        self.set(|config| config.body_limit = bytes)
    }

    /// How long the answer to `initialize` may take from its headers to its result, and the body of a request
    /// that must be read to arrive. Default 10 seconds.
    pub fn with_answer_deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.answer_deadline = deadline)
    }

    /// How long a client that comes back to a stream is held while its session cannot be confirmed. Default 5 seconds:
    /// real clients give a stream up after two refusals.
    pub fn with_resume_deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.resume_deadline = deadline)
    }

    /// Refuses requests without a session that are not `initialize`. Default: they pass.
    pub fn strict(self) -> Self {
        self.set(|config| config.strict = true)
    }

    /// What may be served without its session by an instance that does not own it. Default: nothing.
    pub fn stateless_for(self, self_contained: SelfContained) -> Self {
        self.set(|config| config.self_contained = self_contained)
    }

    /// Serves a POST whose session is *proven* absent without a session, instead of answering 404. Default: 404.
    ///
    /// Dangerous: the client believes it still has its session, and its next request depends on a context that
    /// no longer exists. Only for services in which no request depends on an earlier one. A session that was
    /// ended is answered 404 all the same.
    pub fn absent_goes_stateless(self) -> Self {
        self.set(|config| config.absent_goes_stateless = true)
    }

    /// Binds each session to the subject that opened it: a user or a tenant, stable over token refreshes. Any
    /// other subject is told that the session does not exist. Default: no binding.
    ///
    /// Called for each request that is not OPTIONS or HEAD. Borrow the subject from the request where that is possible; it then costs no
    /// allocation.
    pub fn with_principal(
        self,
        principal: impl for<'a> Fn(Head<'a>) -> Option<Cow<'a, str>> + Send + Sync + 'static,
    ) -> Self {
        self.set(|config| config.principal = Some(Arc::new(principal)))
    }

    /// How refusals are told. Default: a POST by status, and a resume of a stream that owes an answer in band, since
    /// every plain status leaves real clients waiting for that answer.
    pub fn with_refusal_style(self, style: RefusalStyle) -> Self {
        self.set(|config| config.style = Some(style))
    }

    /// Hands requests whose session another live instance owns to that instance. Default: they are refused with
    /// `session_reassigned`.
    ///
    /// Requests go only to addresses that the directory names, which is what an instance says of itself with
    /// [`InstanceBuilder::with_address`](crate::instance::InstanceBuilder::with_address), and are handed on once: if the
    /// session has moved on meanwhile, the client is told so. All instances must be able to reach each other there.
    ///
    /// A request that could not be sent is answered 503 `session_unconfirmed`. One that was sent and not answered by the
    /// owner, or answered by somebody else at its old address, is answered 503 `outcome_unknown`: it may have run.
    ///
    /// With feature `forward` there is `HttpForwarder`.
    pub fn with_forwarder<F, B>(self, forwarder: F) -> Self
    where
        F: Service<Forward, Response = Response<B>> + Clone + Send + Sync + 'static,
        F::Error: Into<BoxError>,
        F::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.set(|config| config.forwarder = Some(Forwarder::new(forwarder)))
    }

    /// How long the owner of a session may take until its answer to a forwarded request begins. Default one minute. It
    /// must be longer than the slowest tool that answers with JSON.
    pub fn with_forward_deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.forward_deadline = deadline)
    }

    /// Puts this instance's token on the session ids that clients see, so that an edge can route on it. Default: clients
    /// see the inner service's ids.
    ///
    /// Whatever token a request's id carries is taken off before anything else looks at it, so all instances must have
    /// one. Ids without a token, from before, are taken as they are; inner services whose own ids end in `~` and a
    /// word cannot be switched over while sessions are open. Costs three allocations a request.
    pub fn with_route_token(self, token: RouteToken) -> Self {
        self.set(|config| config.route_token = Some(token))
    }

    /// Names the owner in the header `mcp-guard-owner` of a `session_reassigned`, for an edge that can route on
    /// it. Default: not said, since it tells a client about the inside of a deployment.
    pub fn with_owner_hint(self) -> Self {
        self.set(|config| config.owner_hint = true)
    }
}

impl Config {
    /// Whether a session was opened by another principal than `subject`.
    pub(super) fn is_bound_to_another(&self, terms: &SessionTerms, subject: Option<&str>) -> bool {
        self.principal.is_some() && terms.principal.as_ref().map(Principal::subject) != subject
    }

    pub(super) fn reject(&self, reason: Reason, detail: &'static str) -> Rejection {
        Rejection::new(reason, detail).with_style(self.style.unwrap_or_default())
    }
}

impl<S> Layer<S> for AffinityGuardLayer {
    type Service = AffinityGuard<S>;

    fn layer(&self, inner: S) -> AffinityGuard<S> {
        AffinityGuard::new(inner, Arc::clone(&self.config))
    }
}

impl fmt::Debug for AffinityGuardLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AffinityGuard")
            .field("instance", &self.instance)
            .field("residency", &self.residency)
            .field("store_deadline", &self.store_deadline)
            .finish_non_exhaustive()
    }
}

/// Methods and tools whose answer depends on nothing but the request itself, declared by the user.
///
/// Read-only is not enough: a list or a resource can depend on what happened earlier in the session. A batch is
/// self-contained when every message in it is.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct SelfContained {
    methods: HashSet<String>,
    tools: HashSet<String>,
}

impl SelfContained {
    /// Nothing is.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests of this method are.
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.methods.insert(method.into());
        self
    }

    /// A `tools/call` of this tool is.
    pub fn tool(mut self, tool: impl Into<String>) -> Self {
        self.tools.insert(tool.into());
        self
    }

    pub(super) fn covers(&self, envelope: &Envelope<'_>) -> bool {
        envelope.messages().iter().all(|message| {
            let MessageKind::Request { method, .. } = message.kind() else {
                return false;
            };
            let tool = || {
                message
                    .name()
                    .is_some_and(|name| self.tools.contains(&*name))
            };
            self.methods.contains(&**method) || (method == "tools/call" && tool())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_self_contained_only_as_a_whole() {
        let declared = SelfContained::new().method("ping").tool("convert");
        let covers = |body: &str| declared.covers(&Envelope::parse(body.as_bytes()).unwrap());
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let convert =
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"convert"}}"#;
        let append = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"append"}}"#;
        let prompt =
            r#"{"jsonrpc":"2.0","id":4,"method":"prompts/get","params":{"name":"convert"}}"#;
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
        assert!(covers(ping) && covers(convert));
        assert!(covers(&format!("[{ping},{convert}]")));
        assert!(!covers(append) && !covers(prompt) && !covers(cancel));
        assert!(!covers(&format!("[{ping},{append}]")));
    }
}
