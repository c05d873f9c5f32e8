//! Where the server is, how long to wait for it, and how much to keep there.

use std::{fmt, time::Duration};

/// Addresses, deadlines, bounds and times of a [`RedisStore`](super::RedisStore).
///
/// All instances of a deployment must use the same [`prefix`](Self::with_prefix) and the same
/// [`max_lease`](Self::with_max_lease).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisConfig {
    /// Where the server is, as `redis://[user:password@]host[:port][/db]`, `rediss://` or `unix://`. Of several the first
    /// that is reached and is a primary is used: a primary and its replicas. In a cluster, the nodes to begin with.
    pub addresses: Vec<String>,
    /// Whether the addresses are nodes of a cluster.
    #[cfg(feature = "redis-cluster")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-cluster")))]
    pub cluster: bool,
    /// The name that Sentinels know the primary by, if the addresses are theirs.
    #[cfg(feature = "redis-sentinel")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-sentinel")))]
    pub sentinel: Option<String>,
    /// How many replicas have to have a write of the directory, a seal or a word of the ledger before it counts, and how
    /// long to wait for them. Default none. See [`RedisStore`](super::RedisStore) on what it costs.
    pub replicas: Option<(usize, Duration)>,
    /// What all keys begin with. Default `mcp-session-guard`.
    pub prefix: String,
    /// How long to wait for a connection, all addresses together. Default 500 ms.
    pub connect_deadline: Duration,
    /// How long to wait for a reply. Default 500 ms.
    pub response_deadline: Duration,
    /// How long a call takes at most, with a connection that has to be made first and a second attempt. Default one
    /// second.
    pub deadline: Duration,
    /// How many sessions there may be, tombstones included. Default one million.
    pub max_sessions: usize,
    /// The longest lease that is granted, and so how long a recovery takes. Default 60 seconds.
    pub max_lease: Duration,
    /// How long a tombstone is kept. Default one hour.
    pub tombstones: Duration,
    /// How many events of one session are kept. Default 4096.
    pub max_events_per_session: usize,
    /// How many bytes of one session's events are kept, as they are sent. Default 8 MiB.
    pub max_event_bytes_per_session: usize,
    /// How long an event is kept, and a stream that is over. Default 5 minutes.
    pub max_event_age: Duration,
    /// How many streams of one session are kept, open or over. Default 256.
    pub max_streams_per_session: usize,
    /// How long a stream that is neither over nor written nor read is kept, and the seal of a session. Default 25 hours,
    /// which is more than the idle limit of an instance.
    pub max_silence: Duration,
    /// How many keyed requests are remembered, those in progress included. Default one million.
    pub max_keys: usize,
    /// How many bytes the outcomes of keyed requests take. Default 256 MiB. Beyond that the oldest are dropped; that they
    /// ran stays known.
    pub max_outcome_bytes: usize,
    /// How long it is remembered that a keyed request ran, and what came of it. Default 24 hours.
    pub outcomes: Duration,
    /// How long after the server lost its memory no key is taken that was not seen since. Default 5 minutes; it should be
    /// as long as clients go on retrying, and longer than any claim's lease. A server that nothing was ever written to
    /// may have lost it too.
    pub retry_horizon: Duration,
}

impl RedisConfig {
    /// The server at this address, with the default times and bounds.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            addresses: vec![address.into()],
            #[cfg(feature = "redis-cluster")]
            cluster: false,
            #[cfg(feature = "redis-sentinel")]
            sentinel: None,
            replicas: None,
            prefix: "mcp-session-guard".to_owned(),
            connect_deadline: Duration::from_millis(500),
            response_deadline: Duration::from_millis(500),
            deadline: Duration::from_secs(1),
            max_sessions: 1_000_000,
            max_lease: Duration::from_secs(60),
            tombstones: Duration::from_secs(3600),
            max_events_per_session: 4096,
            max_event_bytes_per_session: 8 << 20,
            max_event_age: Duration::from_secs(300),
            max_streams_per_session: 256,
            max_silence: Duration::from_secs(25 * 3600),
            max_keys: 1_000_000,
            max_outcome_bytes: 256 << 20,
            outcomes: Duration::from_secs(24 * 3600),
            retry_horizon: Duration::from_secs(300),
        }
    }

    /// Adds another address: of a replica that may become the primary, or of another node.
    #[must_use]
    pub fn with_address(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Takes the addresses for nodes of a cluster.
    #[cfg(feature = "redis-cluster")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-cluster")))]
    #[must_use]
    pub fn with_cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// Takes the addresses for Sentinels that know the primary by this name. User, password and database of the first
    /// address are used for the primary as well.
    #[cfg(feature = "redis-sentinel")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-sentinel")))]
    #[must_use]
    pub fn with_sentinel(mut self, primary: impl Into<String>) -> Self {
        self.sentinel = Some(primary.into());
        self
    }

    /// Sets how many replicas have to have a write before it counts, and how long to wait for them, which must be less than
    /// the response deadline. Not on a cluster.
    #[must_use]
    pub fn with_replicas(mut self, replicas: usize, wait: Duration) -> Self {
        self.replicas = Some((replicas, wait));
        self
    }

    /// Sets what all keys begin with. Two deployments on one server need two.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long to wait for a connection.
    #[must_use]
    pub fn with_connect_deadline(mut self, deadline: Duration) -> Self {
        self.connect_deadline = deadline;
        self
    }

    /// Sets how long to wait for a reply.
    #[must_use]
    pub fn with_response_deadline(mut self, deadline: Duration) -> Self {
        self.response_deadline = deadline;
        self
    }

    /// Sets how long a call takes at most.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets how many sessions there may be.
    #[must_use]
    pub fn with_max_sessions(mut self, sessions: usize) -> Self {
        self.max_sessions = sessions;
        self
    }

    /// Sets the longest lease that is granted.
    #[must_use]
    pub fn with_max_lease(mut self, lease: Duration) -> Self {
        self.max_lease = lease;
        self
    }

    /// Sets how long a tombstone is kept.
    #[must_use]
    pub fn with_tombstones(mut self, kept: Duration) -> Self {
        self.tombstones = kept;
        self
    }

    /// Sets how many events of one session are kept.
    #[must_use]
    pub fn with_max_events_per_session(mut self, events: usize) -> Self {
        self.max_events_per_session = events;
        self
    }

    /// Sets how many bytes of one session's events are kept.
    #[must_use]
    pub fn with_max_event_bytes_per_session(mut self, bytes: usize) -> Self {
        self.max_event_bytes_per_session = bytes;
        self
    }

    /// Sets how long an event is kept, and a stream that is over.
    #[must_use]
    pub fn with_max_event_age(mut self, age: Duration) -> Self {
        self.max_event_age = age;
        self
    }

    /// Sets how many streams of one session are kept.
    #[must_use]
    pub fn with_max_streams_per_session(mut self, streams: usize) -> Self {
        self.max_streams_per_session = streams;
        self
    }

    /// Sets how long a stream that nobody ends, writes or reads is kept.
    #[must_use]
    pub fn with_max_silence(mut self, silence: Duration) -> Self {
        self.max_silence = silence;
        self
    }

    /// Sets how many keyed requests are remembered.
    #[must_use]
    pub fn with_max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// Sets how many bytes the outcomes of keyed requests take.
    #[must_use]
    pub fn with_max_outcome_bytes(mut self, bytes: usize) -> Self {
        self.max_outcome_bytes = bytes;
        self
    }

    /// Sets how long it is remembered what came of a keyed request.
    #[must_use]
    pub fn with_outcomes(mut self, kept: Duration) -> Self {
        self.outcomes = kept;
        self
    }

    /// Sets how long after a loss of memory no new key is taken.
    #[must_use]
    pub fn with_retry_horizon(mut self, horizon: Duration) -> Self {
        self.retry_horizon = horizon;
        self
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses may have passwords in them.
        f.debug_struct("RedisConfig")
            .field("addresses", &self.addresses.len())
            .field("prefix", &self.prefix)
            .field("deadline", &self.deadline)
            .field("max_lease", &self.max_lease)
            .finish_non_exhaustive()
    }
}
