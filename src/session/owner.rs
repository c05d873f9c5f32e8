//! Who serves a session: a name for people and an epoch for everything else.

use std::{fmt, sync::Arc};

/// Identity of one run of one process, drawn at random when the process starts.
///
/// A restarted process has another epoch, so it can never be taken for the one that held the sessions before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u128);

impl Epoch {
    /// Draws a new epoch from the operating system's random source.
    ///
    /// # Errors
    ///
    /// When the operating system gives no randomness; an epoch that could repeat must not exist.
    pub fn mint() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }

    /// The epoch with this number; for back ends that read one back from a store.
    #[must_use]
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }

    /// The number behind the epoch; for back ends that write it to a store.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({self})")
    }
}

/// An instance of the server: `name` is a label for people (`pod-7`), `epoch` is what is compared.
///
/// Equality, order and hash look at the epoch alone, since a new process under an old name proves nothing about
/// the old one.
#[derive(Clone)]
pub struct InstanceId {
    name: Arc<str>,
    epoch: Epoch,
}

impl InstanceId {
    /// An id from its parts.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, epoch: Epoch) -> Self {
        Self {
            name: name.into(),
            epoch,
        }
    }

    /// The label that a person gave.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The identity of this run of the process.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

impl PartialEq for InstanceId {
    fn eq(&self, other: &Self) -> bool {
        self.epoch == other.epoch
    }
}

impl Eq for InstanceId {}

impl PartialOrd for InstanceId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InstanceId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.epoch.cmp(&other.epoch)
    }
}

impl std::hash::Hash for InstanceId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.epoch.hash(state);
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_epoch_under_an_old_name_is_another_instance() {
        let old = InstanceId::new("pod-7", Epoch::mint().unwrap());
        let new = InstanceId::new("pod-7", Epoch::mint().unwrap());
        assert_ne!(old, new);
        let renamed = InstanceId::new("pod-8", old.epoch());
        assert_eq!(old, renamed);
    }
}
