//! The stores on Redis and Valkey.

mod blob;
mod call;
#[cfg(feature = "redis-cluster")]
mod cluster;
mod config;
mod directory;
mod events;
mod fault;
mod keys;
mod ledger;
mod link;
mod peers;
mod record;
mod script;
#[cfg(feature = "redis-sentinel")]
mod sentinel;
mod wire;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

pub use config::RedisConfig;

use self::{
    call::{Call, Deadlines, Reply},
    fault::Fault,
    keys::Keys,
    link::Links,
    peers::Peers,
    wire::Source,
};
use super::StoreError;

/// What instances share, on one Redis or Valkey server, on a primary with replicas, or on a cluster.
///
/// Clones share their connections. Each runtime that calls has one of its own, made when it is needed, and all calls
/// of that runtime go over it: one call does not wait for the reply to another, and streams, however many, do not need
/// more connections. The heartbeats of an [`Instance`](crate::instance::Instance), which have a runtime of their own,
/// therefore have a connection of their own that no request handler can hold up.
///
/// ```no_run
/// use mcp_session_guard::{
///     instance::Instance,
///     store::{RedisConfig, RedisStore},
/// };
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect(RedisConfig::new("redis://127.0.0.1:6379")).await?;
/// let instance = Instance::builder("pod-7").join(store.clone())?;
/// # Ok(()) }
/// ```
///
/// Redis 7 or later, or any Valkey. Several addresses are a primary and its replicas, of which the one that is the primary
/// is used; the features `redis-sentinel` and `redis-cluster` have others find it. For `rediss://` name the `redis`
/// crate in your own manifest, with the TLS feature of your choice.
///
/// # What it costs
///
/// Each verb is one script, and so one moment and one round trip. A session that a live instance owns is found by one
/// read of its record, once its owner's lease has been heard of; see [`lookup`](super::SessionDirectory::lookup) for what
/// is a proof and what is not. A look-up of what does not exist may take a second round trip. The heartbeat of an
/// instance is one call however many sessions it has, touches go a thousand at a time, a batch of events is one call, and
/// a keyed request is two: neither can be taken off the way of the answer, for the first says whether the request may run
/// and a retry has to find the second.
///
/// # When the server may have lost its memory
///
/// The directory and the ledger each keep a marker with the `run_id` of the server process that wrote it, and every script
/// that could say that something is absent, orphaned or new compares it with that of the process it runs in. Restarted,
/// with or without what it had on disk, and in the place of a replica that was promoted, it is another process. Then it
/// is [`Recovering`](super::StoreErrorKind::Recovering), the directory for
/// [`max_lease`](RedisConfig::max_lease) and the ledger for [`retry_horizon`](RedisConfig::retry_horizon). A server that
/// nothing was ever written to is one that may have lost its memory too, so the first instances of a new deployment see
/// this once.
///
/// # Whose clock it is
///
/// Leases are counted on the server's clock, which is a wall clock, and a wall clock jumps. So time passes for the
/// directory only as far as somebody looks: between two calls at most a quarter of the shortest lease, and never
/// backwards. A clock that is set an hour forward or a server that was suspended costs nobody the lease, and where no
/// instance beats any more nothing lapses until one does. Nothing of the directory or the ledger expires by itself; what
/// is over is swept by later calls.
///
/// # What replication can lose
///
/// Redis replicates after it has answered. A primary that dies takes with it what its replicas had not heard, and nobody
/// but the recovery knows:
///
/// - A registration, a claim or a take-over: the owner claims again, and its word counts. If it dies as well before the
///   recovery is over, the session is gone, and for a take-over the owner before may get it back under its own claim.
/// - A tombstone: repeated by whoever buried the session. If that instance is dead or cut off during the whole recovery,
///   the owner's claim brings the session back, and a 404 that was told is contradicted.
/// - Events: those that nobody heard are a gap, and a client that heard them is ahead of the log. Both are refused.
/// - A seal: a producer that was cut off may append once more. Its lease is over, so the guard does not serve it.
/// - A claim of a keyed request: written again by its next renewal, and while it is not the key is `Recovering`, not new.
///   An outcome is not written again: the key is unknown, or after the horizon new.
///
/// A primary that is cut off from its replicas and not from its clients goes on answering, until it is demoted. Set
/// `min-replicas-to-write 1` and a short `min-replicas-max-lag` on the server and it stops: it then refuses whatever
/// writes, and every script that proves anything writes.
///
/// [`with_replicas`](RedisConfig::with_replicas) has each write of the directory, seals and words of the ledger counted
/// only when so many replicas have it (`WAIT`), at the cost of another round trip, of a connection of their own for these
/// calls, since the server reads nothing more from one on which it waits, and of refusals while there are not enough
/// replicas. A write that was refused so is there all the same, and is recognised when it is tried again. It narrows the
/// window and does not close it, as a failover may choose a replica that has not heard.
///
/// # When it is full
///
/// Bound it by `maxmemory` with the policy `noeviction`. What would grow it, new sessions, streams, events and keys, is
/// [`Full`](super::StoreErrorKind::Full) then. Heartbeats, claims, tombstones, seals and outcomes are still taken. Of a
/// session's events the oldest go first, as in [`MemoryStore`](super::MemoryStore), though pieces of up to 64 events at a
/// time.
///
/// # On a cluster
///
/// The directory is one hash tag and so on one node: what its verbs compare at one moment has to be in one place. The logs
/// are spread by session, and the ledger over sixteen parts that recover by themselves. When the slot of the directory
/// moves, another process has it, and it recovers as it does from a restart.
///
/// # Panics
///
/// Every call, outside a tokio runtime with time and I/O enabled.
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

struct Shared {
    config: RedisConfig,
    keys: Keys,
    links: Links,
    peers: Mutex<Peers>,
    /// Random, and another one for each call.
    nonce: AtomicU64,
    /// How far the clock of the logs is ahead of the server's, in milliseconds.
    skew: AtomicU64,
}

impl RedisStore {
    /// Connects to the server and looks whether it may be used: it has to be a primary, and its `maxmemory-policy` has to
    /// be `noeviction`. Under any other it may forget who owns a session and nobody would know. Looked at again on each
    /// connection that is made later.
    ///
    /// # Errors
    ///
    /// [`StoreError`], whose source says what is wrong and what to set.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has happened.
    pub async fn connect(config: RedisConfig) -> Result<Self, StoreError> {
        let store = Self::new(config)?;
        store.shared.links.here(false).live().await?;
        Ok(store)
    }

    /// As [`connect`](Self::connect), but connects with the first call. For a server that need not be up yet.
    ///
    /// # Errors
    ///
    /// When an address cannot be read.
    pub fn new(config: RedisConfig) -> Result<Self, StoreError> {
        let links = Links::new(Source::new(&config)?);
        let nonce = getrandom::u64().map_err(|error| {
            StoreError::from(super::StoreErrorKind::Unavailable).with_source(error)
        })?;
        Ok(Self {
            shared: Arc::new(Shared {
                keys: Keys::new(&config.prefix),
                config,
                links,
                peers: Mutex::default(),
                nonce: AtomicU64::new(nonce),
                skew: AtomicU64::new(0),
            }),
        })
    }

    fn config(&self) -> &RedisConfig {
        &self.shared.config
    }

    fn keys(&self) -> &Keys {
        &self.shared.keys
    }

    /// What tells two incarnations apart that began in the same millisecond.
    fn nonce(&self) -> u64 {
        // An odd step that visits every number.
        (self.shared.nonce).fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
    }

    /// Has the clock that the age of events is counted on run on. For tests.
    #[cfg(feature = "test-util")]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    pub fn advance(&self, by: std::time::Duration) {
        self.shared
            .skew
            .fetch_add(record::millis(by), Ordering::Relaxed);
    }

    fn skew(&self) -> u64 {
        self.shared.skew.load(Ordering::Relaxed)
    }

    /// Asks for what must not be lost once it was said.
    async fn ask_for_good(&self, call: Call) -> Result<Reply, StoreError> {
        self.ask(call.on_replicas(self.config().replicas)).await
    }

    async fn ask(&self, call: Call) -> Result<Reply, StoreError> {
        let deadlines = Deadlines {
            response: self.config().response_deadline,
            overall: self.config().deadline,
        };
        let asked = call.send(&self.shared.links, deadlines).await;
        asked.map_err(|fault: Fault| fault.into())
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.config().prefix)
            .finish_non_exhaustive()
    }
}
