//! What instances share: the store traits, their contracts and their back ends.
//!
//! A back end knows nothing of HTTP or tower. It answers from what it knows and returns an error for everything
//! else; no layer ever reads an error as "not there".

#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub mod contract;
mod directory;
mod erased;
mod error;
mod events;
mod ledger;
mod memory;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
mod redis;

pub use directory::{
    Bury, Claim, ClaimReply, Claimed, ClaimedSession, Heartbeat, Lookup, Registered,
    SessionDirectory, Standing, TakeOver, Terminated,
};
pub use erased::{SharedDirectory, SharedEvents, SharedLedger};
pub use error::{StoreError, StoreErrorKind};
pub use events::{Append, Ending, Event, EventStore, Page, Seq, Snapshot, StreamHeader, StreamKey};
pub use ledger::{
    Begun, ClaimToken, Fingerprint, Held, KeyClaim, Origin, Outcome, Reply, RequestKey,
    RequestLedger,
};
#[cfg(feature = "test-util")]
pub use memory::DirectoryState;
pub use memory::{MemoryConfig, MemoryStore};
#[cfg(feature = "redis")]
pub use redis::{RedisConfig, RedisStore};
