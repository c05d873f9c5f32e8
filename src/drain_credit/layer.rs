//! The layer and what can be chosen about it.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{HeaderMap, Uri};
use tower_layer::Layer;

use super::{
    account::{Liveness, Refusal, Terms},
    accounts::Accounts,
    carrier::SessionOf,
    figures::{Figures, Stalled, StalledHook},
    service::DrainCredit,
};
use crate::{
    instance::Instance,
    rejection::{Reason, RefusalStyle, Rejection},
    session::SessionId,
};

/// Makes [`DrainCredit`]s. See the [module](self::super) for what it is for.
///
/// Clones, and all services that a layer has made, keep one account of a session together.
///
/// ```
/// use std::time::Duration;
///
/// use mcp_session_guard::drain_credit::DrainCreditLayer;
///
/// let layer = DrainCreditLayer::new()
///     .with_credit(32, 256 * 1024)
///     .with_drain_window(Duration::from_secs(3))
///     .with_liveness(Duration::from_secs(30), 1000)
///     .on_stalled(|stalled| eprintln!("{:?} does not read", stalled.session));
/// assert_eq!(layer.figures().refused, 0);
/// ```
#[derive(Clone)]
#[must_use]
pub struct DrainCreditLayer {
    settings: Settings,
    shared: Arc<OnceLock<Arc<Shared>>>,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) terms: Terms,
    pub(super) max_id_len: usize,
    pub(super) body_limit: usize,
    pub(super) body_deadline: Duration,
    pub(super) event_limit: usize,
    pub(super) style: RefusalStyle,
    pub(super) error_frames: bool,
    pub(super) session_of: Option<Arc<SessionOf>>,
    pub(super) instance: Option<Instance>,
    hook: Option<Arc<StalledHook>>,
}

/// What the services of one layer share.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) accounts: Arc<Accounts>,
}

impl DrainCreditLayer {
    /// A layer with the default terms: 64 messages and 1 MiB of credit, a high-water mark at four times that, a drain
    /// window of 5 seconds, a liveness time-out of 60 seconds and 1000 bytes a second as the slowest client.
    pub fn new() -> Self {
        let settings = Settings {
            terms: Terms {
                messages: 64,
                bytes: 1 << 20,
                high_water: 4,
                drain_window: Duration::from_secs(5),
                liveness: Liveness {
                    timeout: Duration::from_secs(60),
                    slowest: 1000,
                    wire: 4 << 20,
                },
                proven: false,
            },
            max_id_len: SessionId::DEFAULT_MAX_LEN,
            body_limit: 4 << 20,
            body_deadline: Duration::from_secs(10),
            event_limit: 4 << 20,
            style: RefusalStyle::default(),
            error_frames: false,
            session_of: None,
            instance: None,
            hook: None,
        };
        Self {
            settings,
            shared: Arc::default(),
        }
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        // What was made before keeps its own.
        self.shared = Arc::default();
        self
    }

    /// How much a session may have outstanding: messages, and bytes that are deliverable and not taken. At least one of
    /// each. Default 64 and 1 MiB.
    ///
    /// Below it every request is admitted, whatever the load and however slow the client. One event larger than the
    /// bytes does not use them up by itself.
    pub fn with_credit(self, messages: u32, bytes: u64) -> Self {
        self.set(|settings| {
            settings.terms.messages = messages.max(1);
            settings.terms.bytes = bytes.max(1);
        })
    }

    /// The high-water mark, as a multiple of the credit. Default 4.
    ///
    /// Between the two a session is served for as long as it drains; at the mark it is refused and its inner streams
    /// are no longer pulled.
    pub fn with_high_water(self, times: u32) -> Self {
        self.set(|settings| settings.terms.high_water = times.max(1))
    }

    /// How long a stream with something undrained may stand still before its session counts as half-open. Default 5
    /// seconds.
    pub fn with_drain_window(self, window: Duration) -> Self {
        self.set(|settings| settings.terms.drain_window = window)
    }

    /// How long a stream with something undrained may stand still before it is torn down: `timeout`, and as long as a
    /// client that reads `slowest` bytes a second needs for what was handed to the wire before. Default 60 seconds and
    /// 1000 bytes a second.
    ///
    /// The second part is what keeps slow clients alive: a steady reader of 20 kB/s was seen to go 64 seconds without
    /// any sign, while the kernel's buffers emptied.
    pub fn with_liveness(self, timeout: Duration, slowest: u64) -> Self {
        self.set(|settings| {
            settings.terms.liveness.timeout = timeout;
            settings.terms.liveness.slowest = slowest.max(1);
        })
    }

    /// How many bytes the HTTP server, the kernels and the proxies between here and a client can hold. Default 4 MiB,
    /// which is what was seen to vanish on a loopback connection. The liveness rule allows for no more than this.
    pub fn with_wire_buffer(self, bytes: u64) -> Self {
        self.set(|settings| settings.terms.liveness.wire = bytes)
    }

    /// Counts what a client has taken as outstanding until it has proven that it arrived. Default: off.
    ///
    /// A buffering proxy reads whatever it is sent, so that nothing looks undrained. With this, an MCP `ping` is sent
    /// down a stream that has something to prove, and the client's answer to it, which is taken out of its POST, proves
    /// everything before it. A client that does not answer is half-open, and torn down in the end. For clients that
    /// answer pings, as MCP has them do since 2024-11-05.
    pub fn with_proof_of_arrival(self) -> Self {
        self.set(|settings| settings.terms.proven = true)
    }

    /// Finds the session of requests without a session header: of HTTP+SSE (MCP 2024-11-05), where it stands in the
    /// query and all answers come on one GET stream. Default: they pass.
    ///
    /// Called with the target of a POST and, for the stream, with the `endpoint` that it announces.
    ///
    /// ```
    /// use mcp_session_guard::drain_credit::DrainCreditLayer;
    ///
    /// let layer = DrainCreditLayer::new().with_session_extractor(|uri, _headers| {
    ///     let mut pairs = uri.query()?.split('&');
    ///     pairs.find_map(|pair| pair.strip_prefix("sessionId=")).map(Into::into)
    /// });
    /// ```
    pub fn with_session_extractor(
        self,
        session_of: impl for<'a> Fn(&'a Uri, &'a HeaderMap) -> Option<Cow<'a, str>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.set(|settings| settings.session_of = Some(Arc::new(session_of)))
    }

    /// Ends broken sessions in the directory too, with the fence of the instance. Default: only at the inner service.
    pub fn with_instance(self, instance: Instance) -> Self {
        self.set(|settings| settings.instance = Some(instance))
    }

    /// How refusals are told. Default [`RefusalStyle::Status`].
    pub fn with_refusal_style(self, style: RefusalStyle) -> Self {
        self.set(|settings| settings.style = style)
    }

    /// Tells a refusal of a session that still drains as a JSON-RPC error on its stream: on the one that carries its
    /// answers (MCP 2024-11-05, after everything that was said before), else as the stream that answers the request.
    /// Default: as every other refusal. A half-open session is refused by status in any case.
    pub fn with_error_frames(self) -> Self {
        self.set(|settings| settings.error_frames = true)
    }

    /// Called when streams are torn down. It should be quick; a panic in it is caught.
    pub fn on_stalled(self, hook: impl Fn(&Stalled) + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.hook = Some(Arc::new(hook)))
    }

    /// How many bytes of a POST are read, where it has to be read: of a session close to its credit. Default 4 MiB. A
    /// longer one counts as one request, and is answered 413 where that would be refused.
    pub fn with_body_limit(self, bytes: usize) -> Self {
        self.set(|settings| settings.body_limit = bytes)
    }

    /// How long the body of such a POST may take to arrive. Default 10 seconds.
    pub fn with_body_deadline(self, deadline: Duration) -> Self {
        self.set(|settings| settings.body_deadline = deadline)
    }

    /// The largest event that is read in a stream of the inner service. Default 4 MiB. A stream with a larger one is
    /// passed on, and each frame of it counts as a message.
    pub fn with_event_limit(self, bytes: usize) -> Self {
        self.set(|settings| settings.event_limit = bytes)
    }

    /// The longest session id that is taken, in bytes. Default 1024. A request with a longer one passes.
    pub fn with_max_session_id_len(self, bytes: usize) -> Self {
        self.set(|settings| settings.max_id_len = bytes)
    }

    /// What is outstanding at this moment. Looks into each account.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.shared().accounts.figures()
    }

    /// The most messages and bytes that a session may have undrained before its inner streams are no longer pulled.
    #[must_use]
    pub fn high_water_mark(&self) -> (u32, u64) {
        let Terms {
            messages,
            bytes,
            high_water,
            ..
        } = self.settings.terms;
        (
            messages.saturating_mul(high_water),
            bytes.saturating_mul(high_water.into()),
        )
    }

    /// How long a stream may stand still that has had so many bytes handed to the wire just before.
    #[must_use]
    pub fn liveness_allowance(&self, handed: u64) -> Duration {
        let liveness = &self.settings.terms.liveness;
        liveness.allowance(handed.min(liveness.wire))
    }

    #[cfg(test)]
    pub(super) fn shared_for_test(&self) -> Arc<Shared> {
        Arc::clone(self.shared())
    }

    fn shared(&self) -> &Arc<Shared> {
        self.shared.get_or_init(|| {
            let settings = self.settings.clone();
            Arc::new(Shared {
                accounts: Arc::new(Accounts::new(settings.terms, settings.hook.clone())),
                settings,
            })
        })
    }
}

impl Default for DrainCreditLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl Settings {
    pub(super) fn reject(&self, refusal: Refusal) -> Rejection {
        let detail = match refusal {
            Refusal::HalfOpen => {
                "the session has used up its credit, and what it was sent is not read"
            }
            Refusal::HighWater => "too many requests of the session are outstanding",
        };
        Rejection::new(Reason::StreamHalfOpen, detail)
            .with_style(self.style)
            .with_retry_after(self.terms.drain_window)
    }
}

impl<S> Layer<S> for DrainCreditLayer {
    type Service = DrainCredit<S>;

    fn layer(&self, inner: S) -> DrainCredit<S> {
        DrainCredit::new(inner, Arc::clone(self.shared()))
    }
}

impl fmt::Debug for DrainCreditLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainCreditLayer")
            .field("terms", &self.settings.terms)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainCredit")
            .field("terms", &self.settings.terms)
            .finish_non_exhaustive()
    }
}
