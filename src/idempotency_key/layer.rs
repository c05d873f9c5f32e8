//! The layer and what can be chosen about it.

use std::{borrow::Cow, collections::HashSet, fmt, sync::Arc, time::Duration};

use http::StatusCode;
use tower_layer::Layer;

use super::{claims::Claims, service::IdempotencyKey};
use crate::{
    instance::{Instance, Work},
    mcp::ToolEffects,
    rejection::{Reason, RefusalStyle, Rejection},
    session::{Head, PrincipalOf, SessionId},
    store::{RequestLedger, SharedLedger},
};

/// Makes [`IdempotencyKey`]s. See the [module](self::super) for what it is for.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use mcp_session_guard::{
///     idempotency_key::IdempotencyKeyLayer,
///     mcp::{Effect, ToolEffects},
///     store::MemoryStore,
/// };
///
/// let effects = ToolEffects::new().declare("search", Effect::ReadOnly);
/// let layer = IdempotencyKeyLayer::new(MemoryStore::new())
///     .with_principal(|head| Some(head.headers.get("x-user")?.to_str().ok()?.into()))
///     .with_effects(Arc::new(effects))
///     .free_of_session("convert_units")
///     .waiting(Duration::from_secs(20));
/// ```
#[derive(Clone)]
#[must_use]
pub struct IdempotencyKeyLayer {
    config: Arc<Config>,
}

/// Shared by every clone of a service.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) ledger: SharedLedger,
    pub(super) claims: Arc<Claims>,
    pub(super) instance: Option<Instance>,
    pub(super) namespace: Arc<str>,
    pub(super) principal: Option<Arc<PrincipalOf>>,
    pub(super) required: bool,
    pub(super) derived: bool,
    pub(super) detaches_modern: bool,
    pub(super) session_free: HashSet<String>,
    pub(super) effects: Arc<ToolEffects>,
    pub(super) learns: bool,
    pub(super) did_not_run: HashSet<StatusCode>,
    pub(super) wait: Option<Duration>,
    pub(super) max_waiting: usize,
    pub(super) lease: Duration,
    pub(super) store_deadline: Duration,
    pub(super) body_limit: usize,
    pub(super) body_deadline: Duration,
    pub(super) outcome_limit: usize,
    pub(super) event_limit: usize,
    pub(super) max_id_len: usize,
    pub(super) style: RefusalStyle,
}

/// Statuses of an inner service that refuses before it runs anything.
const DID_NOT_RUN: [u16; 12] = [400, 401, 403, 404, 405, 406, 411, 413, 415, 421, 429, 503];

impl IdempotencyKeyLayer {
    /// Records keyed calls in `ledger`, which all instances share.
    pub fn new(ledger: impl RequestLedger) -> Self {
        let statuses = DID_NOT_RUN.into_iter();
        Self {
            config: Arc::new(Config {
                ledger: SharedLedger::new(ledger),
                claims: Arc::new(Claims::new()),
                instance: None,
                namespace: "".into(),
                principal: None,
                required: false,
                derived: false,
                detaches_modern: false,
                session_free: HashSet::new(),
                effects: Arc::default(),
                learns: false,
                did_not_run: statuses
                    .filter_map(|status| StatusCode::from_u16(status).ok())
                    .collect(),
                wait: None,
                max_waiting: 1024,
                lease: Duration::from_secs(30),
                store_deadline: Duration::from_millis(250),
                body_limit: 4 << 20,
                body_deadline: Duration::from_secs(10),
                outcome_limit: 1 << 20,
                event_limit: 4 << 20,
                max_id_len: SessionId::DEFAULT_MAX_LEN,
                style: RefusalStyle::default(),
            }),
        }
    }

    fn set(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Binds each key to the subject that sent it: a user or a tenant, stable over token refreshes. Default: to the
    /// session.
    ///
    /// With a principal a key outlives its session: a client that lost one opens another, retries, and is told what
    /// came of its call. Without one a retry from a new session is a new call, for nobody could tell whose key it is;
    /// and a call without a session (MCP 2026-07-28) cannot have a key at all, and is refused if it has. Where all
    /// clients are one, say so: `with_principal(|_| Some("everyone".into()))`.
    pub fn with_principal(
        self,
        principal: impl for<'a> Fn(Head<'a>) -> Option<Cow<'a, str>> + Send + Sync + 'static,
    ) -> Self {
        self.set(|config| config.principal = Some(Arc::new(principal)))
    }

    /// Tells the keys of this server from those of another one that uses the same ledger. Default: none.
    pub fn with_namespace(self, namespace: impl Into<Arc<str>>) -> Self {
        self.set(|config| config.namespace = namespace.into())
    }

    /// Has [`Instance::retire`] wait for calls whose client has left, and for outcomes that are not recorded yet.
    pub fn with_instance(self, instance: Instance) -> Self {
        self.set(|config| config.instance = Some(instance))
    }

    /// Refuses calls without a key. Default: they pass.
    pub fn required(self) -> Self {
        self.set(|config| config.required = true)
    }

    /// Gives a call of a session that has no key one of session and JSON-RPC id. Default: it has none.
    ///
    /// Dangerous: MCP forbids clients to use an id twice in a session, and real ones do. A second call under an id that
    /// was used is then refused when it asks something else, and answered with the first one's outcome when it asks the
    /// same again, though it was meant to run.
    pub fn derive_from_request_id(self) -> Self {
        self.set(|config| config.derived = true)
    }

    /// Lets calls of MCP 2026-07-28 run on when their client disconnects. Default: they are cancelled, as that revision
    /// says, and their outcome is unknown.
    pub fn detach_modern(self) -> Self {
        self.set(|config| config.detaches_modern = true)
    }

    /// Declares that a tool leaves nothing behind in its session, so that its outcome may be given again in another.
    /// Default: a retry from another session is told that it ran there, with the outcome in the refusal.
    pub fn free_of_session(self, tool: impl Into<String>) -> Self {
        self.set(|config| {
            config.session_free.insert(tool.into());
        })
    }

    /// What running a tool twice does. A tool that is read-only or idempotent runs again after an outcome that is not
    /// known; by default every tool is neither.
    pub fn with_effects(self, effects: Arc<ToolEffects>) -> Self {
        self.set(|config| config.effects = effects)
    }

    /// Learns the effects of tools from the inner service's own answers to `tools/list`. Default: it does not.
    pub fn learn_effects(self) -> Self {
        self.set(|config| config.learns = true)
    }

    /// Which statuses of the inner service say that a request did not run, so that its key is free again. Default 400,
    /// 401, 403, 404, 405, 406, 411, 413, 415, 421, 429 and 503.
    ///
    /// A status that is given after an effect must not be among them.
    pub fn with_did_not_run(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.set(|config| config.did_not_run = statuses.into_iter().collect())
    }

    /// Has a retry wait for the call that still runs, for at most so long, and answers it with the outcome. Default: it
    /// is refused at once.
    ///
    /// At most [`with_max_waiting`](Self::with_max_waiting) requests wait at a time; more are refused.
    pub fn waiting(self, at_most: Duration) -> Self {
        self.set(|config| config.wait = Some(at_most))
    }

    /// How many requests may wait at a time. Default 1024.
    pub fn with_max_waiting(self, requests: usize) -> Self {
        self.set(|config| config.max_waiting = requests)
    }

    /// How long a claim holds when its instance dies: until then a retry is told that the call is in progress, and then
    /// that its outcome is unknown. Renewed at a third of it. Default 30 seconds.
    pub fn with_lease(self, lease: Duration) -> Self {
        self.set(|config| config.lease = lease)
    }

    /// How long the ledger may take for one call. Default 250 ms.
    pub fn with_store_deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.store_deadline = deadline)
    }

    /// How many bytes of a POST are read. Default 4 MiB; a longer one is answered 413.
    pub fn with_body_limit(self, bytes: usize) -> Self {
        self.set(|config| config.body_limit = bytes)
    }

    /// How long the body of a POST may take to arrive. Default 10 seconds.
    pub fn with_body_deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.body_deadline = deadline)
    }

    /// How large an outcome is kept. Default 1 MiB. The client of a larger one gets it all the same, once; a retry is told
    /// that it ran.
    pub fn with_outcome_limit(self, bytes: usize) -> Self {
        self.set(|config| config.outcome_limit = bytes)
    }

    /// The largest event in an answer that is a stream. Default 4 MiB. After a larger one the stream goes on, and its
    /// outcome is not known.
    pub fn with_event_limit(self, bytes: usize) -> Self {
        self.set(|config| config.event_limit = bytes)
    }

    /// The longest session id that is taken, in bytes. Default 1024.
    pub fn with_max_session_id_len(self, bytes: usize) -> Self {
        self.set(|config| config.max_id_len = bytes)
    }

    /// How calls are refused. Default [`RefusalStyle::Status`].
    pub fn with_refusal_style(self, style: RefusalStyle) -> Self {
        self.set(|config| config.style = style)
    }
}

impl Config {
    pub(super) fn reject(&self, reason: Reason, detail: &'static str) -> Rejection {
        Rejection::new(reason, detail).with_style(self.style)
    }

    /// Something for a retiring instance to wait for.
    pub(super) fn work(&self) -> Option<Work> {
        let instance = self.instance.as_ref()?;
        Some(Work::new(instance.shared()))
    }
}

impl<S> Layer<S> for IdempotencyKeyLayer {
    type Service = IdempotencyKey<S>;

    fn layer(&self, inner: S) -> IdempotencyKey<S> {
        IdempotencyKey::new(inner, Arc::clone(&self.config))
    }
}

impl fmt::Debug for IdempotencyKeyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKey")
            .field("required", &self.required)
            .field("lease", &self.lease)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
