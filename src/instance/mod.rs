//! Who this process is among its peers: its epoch, its lease, the sessions it owns, and how it comes and goes.

mod builder;
mod figures;
mod guard;
mod keeper;
mod owned;
mod retire;
mod serving;
mod shared;
mod table;
#[cfg_attr(
    not(feature = "test-util"),
    allow(
        unreachable_pub,
        dead_code,
        reason = "public for the model that explores it"
    )
)]
mod tenure;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

pub use builder::{Heartbeats, InstanceBuilder, JoinError, JoinErrorKind};
pub use figures::{Ages, Figures};
pub(crate) use guard::Guard;
pub(crate) use owned::{OwnedSession, Running};
pub use retire::Retirement;
pub(crate) use retire::{Outlet, Work};
pub(crate) use serving::{Admission, Proof, Serving};
pub(crate) use shared::Shared;
#[cfg(feature = "test-util")]
pub use tenure::Tenure;

use crate::{session::InstanceId, store::SharedDirectory};

/// One process of a server that runs on several, as a member of a
/// [`SessionDirectory`](crate::store::SessionDirectory).
///
/// Holds the lease and the table of the sessions that it owns, and keeps both alive with heartbeats on a thread of
/// their own: a request handler that blocks its runtime must not cost the lease. Clones are handles to the same
/// instance; when the last is dropped the heartbeats stop, and the lease runs out by itself, as in a crash. For a
/// planned end call [`retire`](Self::retire).
///
/// ```
/// use mcp_session_guard::{instance::Instance, store::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let instance = Instance::builder("pod-7").join(store)?;
/// instance.ready().await;
/// assert!(instance.is_ready());
///
/// let retirement = instance.retire().await;
/// assert_eq!(retirement.unfinished_calls(), 0);
/// # Ok(())
/// # }
/// ```
///
/// Customised:
///
/// ```
/// use std::time::Duration;
///
/// use mcp_session_guard::{instance::Instance, store::MemoryStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let instance = Instance::builder("pod-7")
///     .with_address("http://10.1.2.3:8080")
///     .with_lease(Duration::from_secs(9))
///     .with_idle_limit(Duration::from_secs(1800))
///     .on_lost(|session, fence, why| eprintln!("dropping {session:?} at fence {fence}: {why:?}"))
///     .join(MemoryStore::new())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Instance {
    shared: Arc<Shared>,
}

/// Why an instance no longer has a session that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// Another instance took it over.
    TakenOver,
    /// Another instance buried it, or ended it.
    Buried,
    /// The directory no longer knows it.
    Absent,
    /// It was idle for longer than the limit, and this instance ended it.
    Idle,
    /// Its client ended it.
    Deleted,
    /// Not one of its streams was read any more, and this instance ended it.
    TornDown,
    /// This instance retired.
    Retired,
}

impl Instance {
    /// Begins an instance with a name for people. The name proves nothing; see [`InstanceId`].
    pub fn builder(name: impl Into<Arc<str>>) -> InstanceBuilder {
        InstanceBuilder::new(name.into())
    }

    /// Its name and epoch.
    #[must_use]
    pub fn id(&self) -> &InstanceId {
        &self.shared.id
    }

    /// The directory that it joined.
    #[must_use]
    pub fn directory(&self) -> &SharedDirectory {
        &self.shared.directory
    }

    /// Whether it should get new sessions: it holds a lease and is not retiring. For an orchestrator's readiness
    /// probe.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.is_retiring() && self.shared.holds_lease()
    }

    /// Whether [`retire`](Self::retire) was called.
    #[must_use]
    pub fn is_retiring(&self) -> bool {
        self.shared.retiring.load(Ordering::Acquire)
    }

    /// Waits until it holds a lease.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn ready(&self) {
        loop {
            let changed = self.shared.changed.listen();
            if self.shared.holds_lease() {
                return;
            }
            changed.await;
        }
    }

    /// The figures that an operator watches, at this moment. Reads the whole own table.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.shared
            .counters
            .figures(self.shared.now(), &self.shared.table)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("id", &self.shared.id)
            .field("ready", &self.is_ready())
            .field("sessions", &self.shared.table.len())
            .finish()
    }
}
