//! What the directory remembers of a session.

use std::time::Duration;

use super::{CapabilityHash, Fence, InstanceId, Principal};

/// Where the state behind a session lives, and so what may happen when its owner is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Residency {
    /// Only in the owner's memory. When the owner's lease has lapsed the session is buried, then answered 404.
    #[default]
    Pinned,
    /// In a shared store that the inner service rehydrates from. When the owner's lease has lapsed, whoever is
    /// asked takes the session over under a higher fence.
    Externalized,
}

/// What is fixed about a session when it is opened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub struct SessionTerms {
    /// Where its state lives.
    pub residency: Residency,
    /// What was negotiated; `None` when the handshake was not seen, which equals nothing.
    pub capabilities: Option<CapabilityHash>,
    /// For whom it was opened.
    pub principal: Option<Principal>,
    /// How long the directory keeps the record after the last touch. The owner makes it its idle limit plus a
    /// lease plus a heartbeat, so that the owner alone decides when a session has been idle too long.
    pub retention: Option<Duration>,
    /// When it was opened, in milliseconds since the Unix epoch; for people, never compared.
    pub opened: u64,
}

impl SessionTerms {
    /// Terms of a session with this residency and nothing else.
    #[must_use]
    pub fn new(residency: Residency) -> Self {
        Self {
            residency,
            ..Self::default()
        }
    }

    /// Sets what was negotiated.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: impl Into<Option<CapabilityHash>>) -> Self {
        self.capabilities = capabilities.into();
        self
    }

    /// Sets for whom it was opened.
    #[must_use]
    pub fn with_principal(mut self, principal: impl Into<Option<Principal>>) -> Self {
        self.principal = principal.into();
        self
    }

    /// Sets how long the record is kept after the last touch.
    #[must_use]
    pub fn with_retention(mut self, retention: impl Into<Option<Duration>>) -> Self {
        self.retention = retention.into();
        self
    }
}

/// One session as the directory knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct SessionRecord {
    /// The instance that owns it, or owned it last.
    pub owner: InstanceId,
    /// The grant under which it does.
    pub fence: Fence,
    /// What was fixed when it was opened.
    pub terms: SessionTerms,
}

impl SessionRecord {
    /// A record from its parts; for back ends.
    #[must_use]
    pub fn new(owner: InstanceId, fence: Fence, terms: SessionTerms) -> Self {
        Self {
            owner,
            fence,
            terms,
        }
    }
}
