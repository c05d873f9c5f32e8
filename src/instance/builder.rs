//! How an instance is configured and joins a directory.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
    time::Duration,
};

use event_listener::Event;
use tokio::sync::Notify;

use super::{
    Instance, Lost,
    figures::Counters,
    keeper::Keeper,
    shared::{LostHook, Shared, Times},
    table::OwnTable,
    tenure::Tenure,
};
use crate::{
    clock::{Clock, SystemClock},
    session::{Epoch, Fence, InstanceId, SessionId},
    store::{SessionDirectory, SharedDirectory},
};

/// Configures an [`Instance`]; made by [`Instance::builder`].
#[must_use = "an instance joins when `join` is called"]
pub struct InstanceBuilder {
    name: Arc<str>,
    address: Option<Arc<str>>,
    lease: Duration,
    heartbeat: Option<Duration>,
    margin: Option<Duration>,
    idle_limit: Option<Duration>,
    clock: Arc<dyn Clock>,
    heartbeats: Heartbeats,
    hook: Option<Box<LostHook>>,
}

/// Where the heartbeats run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Heartbeats {
    /// On a thread of their own with a runtime of its own, so that nothing the request handlers do delays them.
    #[default]
    OnThread,
    /// On the runtime that calls [`join`](InstanceBuilder::join): for tests under `tokio::time::pause`.
    OnRuntime,
}

impl InstanceBuilder {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            address: None,
            lease: Duration::from_secs(15),
            heartbeat: None,
            margin: None,
            idle_limit: Some(Duration::from_secs(24 * 3600)),
            clock: Arc::new(SystemClock),
            heartbeats: Heartbeats::default(),
            hook: None,
        }
    }

    /// Where peers can reach this instance; told to whoever looks one of its sessions up.
    pub fn with_address(mut self, address: impl Into<Arc<str>>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// How long the directory believes in this instance after its last heartbeat. Default 15 seconds.
    ///
    /// It is also how long the sessions of a crashed instance are answered 409 before they are given up.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often the lease is extended. Default a fifth of the lease.
    pub fn with_heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = Some(every);
        self
    }

    /// How much earlier than the directory this instance counts its lease as over, for clocks that do not run
    /// equally fast. Default a tenth of the lease.
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// How long a session may be idle before this instance ends it; `None` for ever. Default 24 hours.
    ///
    /// Open streams and running calls are activity. Set it to what the inner service itself uses: a session that
    /// the inner service has dropped is still owned here until this limit.
    pub fn with_idle_limit(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.idle_limit = limit.into();
        self
    }

    /// The clock that the lease is counted on. Default [`SystemClock`].
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Where the heartbeats run. Default [`Heartbeats::OnThread`].
    pub fn with_heartbeats(mut self, heartbeats: Heartbeats) -> Self {
        self.heartbeats = heartbeats;
        self
    }

    /// A hook for each session that this instance loses, with the fence it was last served under. It tells the
    /// inner service to drop its copy, and runs on the heartbeat thread or on a request's task: it must not block.
    pub fn on_lost(
        mut self,
        hook: impl Fn(&SessionId, Fence, Lost) + Send + Sync + 'static,
    ) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Joins a directory: draws an epoch and starts the heartbeats, the first of which claims the lease.
    ///
    /// Returns at once; until the lease is held requests that need it are answered 503. A directory that is down
    /// is tried again until it is up. See [`Instance::ready`].
    ///
    /// # Errors
    ///
    /// [`JoinError`] when the times contradict each other, or no epoch or thread is to be had.
    ///
    /// # Panics
    ///
    /// With [`Heartbeats::OnRuntime`], when called outside a tokio runtime.
    pub fn join(self, directory: impl SessionDirectory) -> Result<Instance, JoinError> {
        let heartbeat = self.heartbeat.unwrap_or(self.lease / 5);
        let margin = self.margin.unwrap_or(self.lease / 10);
        if heartbeat.is_zero() || heartbeat.saturating_add(margin) >= self.lease {
            return Err(JoinError::new(JoinErrorKind::Times, None));
        }
        let epoch =
            Epoch::mint().map_err(|e| JoinError::new(JoinErrorKind::Epoch, Some(e.into())))?;
        let tenure = Tenure::new(self.lease, margin);
        let shared = Arc::new(Shared {
            id: InstanceId::new(self.name, epoch),
            address: self.address,
            clock: self.clock,
            directory: SharedDirectory::new(directory),
            table: OwnTable::new(),
            times: Times::new(self.lease, heartbeat, self.idle_limit),
            generation: AtomicU64::new(tenure.generation()),
            deadline: AtomicU64::new(0),
            retiring: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            outlets: AtomicUsize::new(0),
            works: AtomicU64::new(0),
            left: Mutex::new(false),
            offer: Mutex::new(None),
            tombstones: Mutex::new(VecDeque::new()),
            hook: self.hook,
            counters: Counters::default(),
            poke: Arc::new(Notify::new()),
            changed: Event::new(),
        });
        let keeper = Keeper::new(&shared, tenure);
        match self.heartbeats {
            Heartbeats::OnThread => keeper
                .spawn_thread(shared.id.name())
                .map_err(|e| JoinError::new(JoinErrorKind::Thread, Some(e.into())))?,
            Heartbeats::OnRuntime => {
                tokio::spawn(keeper.run());
            }
        }
        Ok(Instance { shared })
    }
}

impl fmt::Debug for InstanceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceBuilder")
            .field("name", &self.name)
            .field("lease", &self.lease)
            .field("idle_limit", &self.idle_limit)
            .finish_non_exhaustive()
    }
}

/// Why an instance could not join.
#[derive(Debug)]
pub struct JoinError {
    kind: JoinErrorKind,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kinds of [`JoinError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinErrorKind {
    /// Heartbeat and margin together do not fit into the lease.
    Times,
    /// The operating system gave no randomness for an epoch.
    Epoch,
    /// The heartbeat thread could not be started.
    Thread,
}

impl JoinError {
    fn new(kind: JoinErrorKind, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind, source }
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> JoinErrorKind {
        self.kind
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            JoinErrorKind::Times => "heartbeat and margin must be shorter than the lease",
            JoinErrorKind::Epoch => "no random epoch could be drawn",
            JoinErrorKind::Thread => "the heartbeat thread could not be started",
        })
    }
}

impl std::error::Error for JoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn std::error::Error + 'static))
    }
}
