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
