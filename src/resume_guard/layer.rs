//! The layer and what can be chosen about it.

use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;

use super::service::ResumeGuard;
use crate::{
    instance::Instance,
    outbox::{Bounds, Outbox, Settings},
    rejection::{Reason, RefusalStyle, Rejection},
    session::SessionId,
    store::{EventStore, Page, SharedEvents},
};

/// Makes [`ResumeGuard`]s. See the [module](self::super) for what it is for.
///
/// ```
/// use std::time::Duration;
///
/// use mcp_session_guard::{
///     instance::Instance,
///     resume_guard::{LogReach, ResumeGuardLayer},
///     store::MemoryStore,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let instance = Instance::builder("pod-7").join(store.clone())?;
/// let layer = ResumeGuardLayer::new(instance, store)
///     .with_log_reach(LogReach::Local)
///     .with_resume_window(Duration::from_secs(120));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ResumeGuardLayer {
    config: Arc<Config>,
}

/// Which instances read the same [`EventStore`].
///
/// Together with the [`Residency`](crate::session::Residency) of a session it says what can be resumed where:
///
/// | session state | log | what is resumed |
/// | --- | --- | --- |
/// | [`Pinned`](crate::session::Residency::Pinned) | either | the owner's own streams, at the owner; whoever else is asked does not have the session |
/// | [`Externalized`](crate::session::Residency::Externalized) | `Local` | the owner's own streams; after a take-over the streams of the owner before are refused, since their events are not here. The session validates and the stream does not: the combination that goes wrong silently without a guard |
/// | [`Externalized`](crate::session::Residency::Externalized) | `Shared` | every stream, wherever the session is |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum LogReach {
    /// This instance alone: what another one said cannot be replayed here, whatever the store holds.
    #[default]
    Local,
    /// All instances of the directory.
    Shared,
}

/// Shared by every clone of a guard.
#[derive(Clone)]
pub(super) struct Config {
    instance: Instance,
    pub(super) outbox: Outbox,
    pub(super) reach: LogReach,
    pub(super) max_id_len: usize,
    pub(super) body_limit: usize,
    pub(super) body_deadline: Duration,
    pub(super) resume_deadline: Duration,
    /// How refusals are told, if it was chosen.
    pub(super) style: Option<RefusalStyle>,
}

impl ResumeGuardLayer {
    /// Records the streams of this instance's sessions in `events`, and resumes them from there.
    ///
    /// Ownership is proven by `instance`, so the sessions must be registered with it: by an
    /// [`AffinityGuardLayer`](crate::affinity_guard::AffinityGuardLayer) of the same instance around this layer.
    /// Streams of a session that it does not have pass as they are and cannot be resumed.
    pub fn new(instance: Instance, events: impl EventStore) -> Self {
        let settings = Settings {
            bounds: Bounds {
                window: 64 * 1024,
                lag: 1 << 20,
            },
            event_limit: 4 << 20,
            store_deadline: Duration::from_millis(250),
            resume_window: Duration::from_secs(300),
            retry_millis: 1000,
            page: Page {
                events: 256,
                bytes: 256 * 1024,
            },
            max_streams: 256,
        };
        Self {
            config: Arc::new(Config {
                outbox: Outbox::new(
                    Arc::clone(instance.shared()),
                    SharedEvents::new(events),
                    settings,
                ),
                instance,
                reach: LogReach::default(),
                max_id_len: SessionId::DEFAULT_MAX_LEN,
                body_limit: 4 << 20,
                body_deadline: Duration::from_secs(10),
                resume_deadline: Duration::from_secs(5),
                style: None,
            }),
        }
    }

    fn set(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Which instances read the same log. Default [`LogReach::Local`].
    pub fn with_log_reach(self, reach: LogReach) -> Self {
        self.set(|config| config.reach = reach)
    }

    /// How long a stream is recorded for a client that has left. Default 5 minutes.
    ///
    /// Until then the inner service's stream is read on and its call runs on, since a disconnect is no cancellation
    /// (MCP 2025-03-26 to 2025-11-25). After it the stream is ended, with an error for whatever it still owed.
    pub fn with_resume_window(self, window: Duration) -> Self {
        self.set(|config| config.outbox.settings.resume_window = window)
    }

    /// How many bytes are held in memory for a client that reads slowly; what it is further behind is read from the
    /// log. Default 64 KiB a stream.
    pub fn with_window(self, bytes: usize) -> Self {
        self.set(|config| config.outbox.settings.bounds.window = bytes)
    }

    /// How many bytes a client may be behind before its inner stream is no longer read. Default 1 MiB a stream.
    pub fn with_max_lag(self, bytes: usize) -> Self {
        self.set(|config| config.outbox.settings.bounds.lag = bytes)
    }

    /// The largest event that the inner service may send; a stream with a larger one fails. Default 4 MiB.
    pub fn with_event_limit(self, bytes: usize) -> Self {
        self.set(|config| config.outbox.settings.event_limit = bytes)
    }

    /// How many streams of one session are recorded at once. What is beyond passes as it is. Default 256.
    pub fn with_max_streams(self, streams: usize) -> Self {
        self.set(|config| config.outbox.settings.max_streams = streams)
    }

    /// How long the store may take for one call. Default 250 ms. An event that could not be recorded by then is sent
    /// all the same, and stays a gap for whoever resumes from before it.
    pub fn with_store_deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.outbox.settings.store_deadline = deadline)
    }

    /// How long a resuming client is held while nothing can be confirmed. Default 5 seconds: real clients give a
    /// stream up after two refusals.
    pub fn with_resume_deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.resume_deadline = deadline)
    }

    /// When clients are told to come back while the instance retires. Default one second.
    pub fn with_retry(self, wait: Duration) -> Self {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.set(|config| config.outbox.settings.retry_millis = millis)
    }

    /// How many bytes of a POST are read. Default 4 MiB; a longer one is answered 413.
    pub fn with_body_limit(self, bytes: usize) -> Self {
        self.set(|config| config.body_limit = bytes)
    }

    /// How long the body of a POST may take to arrive. Default 10 seconds.
    pub fn with_body_deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.body_deadline = deadline)
    }

    /// The longest session id that is taken, in bytes. Default 1024.
    pub fn with_max_session_id_len(self, bytes: usize) -> Self {
        self.set(|config| config.max_id_len = bytes)
    }

    /// How refusals are told. Default: a POST by status, and a resume of a stream that owes an answer in band, since
    /// every plain status leaves real clients waiting for that answer.
    pub fn with_refusal_style(self, style: RefusalStyle) -> Self {
        self.set(|config| config.style = Some(style))
    }
}

impl Config {
    pub(super) fn reject(
        &self,
        reason: Reason,
        detail: impl Into<std::borrow::Cow<'static, str>>,
    ) -> Rejection {
        Rejection::new(reason, detail).with_style(self.style.unwrap_or_default())
    }

    /// Whether a resume that owes an answer is refused within a stream.
    pub(super) fn refuses_in_band(&self) -> bool {
        self.style != Some(RefusalStyle::Status)
    }
}

impl<S> Layer<S> for ResumeGuardLayer {
    type Service = ResumeGuard<S>;

    fn layer(&self, inner: S) -> ResumeGuard<S> {
        ResumeGuard::new(inner, Arc::clone(&self.config))
    }
}

impl fmt::Debug for ResumeGuardLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeGuard")
            .field("instance", &self.instance)
            .field("reach", &self.reach)
            .finish_non_exhaustive()
    }
}
