//! The own table: the sessions that this instance owns, by id.

use std::{
    hash::BuildHasher,
    sync::{Arc, PoisonError, RwLock},
};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::owned::OwnedSession;

/// The sessions of one instance, by id.
///
/// Sharded, so that requests of different sessions do not meet; hashed with a key of its own, so that ids which a
/// client makes up cannot be made to collide.
#[derive(Debug)]
pub(crate) struct OwnTable {
    shards: Box<[RwLock<HashTable<Arc<OwnedSession>>>]>,
    hasher: DefaultHashBuilder,
}

const SHARDS: usize = 64;

impl OwnTable {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    fn shard(&self, hash: u64) -> &RwLock<HashTable<Arc<OwnedSession>>> {
        // The table itself uses the upper and the lowest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    #[inline]
    pub(crate) fn get(&self, id: &[u8]) -> Option<Arc<OwnedSession>> {
        let hash = self.hasher.hash_one(id);
        let shard = self
            .shard(hash)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        shard
            .find(hash, |session| session.id_bytes() == id)
            .cloned()
    }

    /// Puts a session in; returns the one that had its id.
    pub(crate) fn insert(&self, session: Arc<OwnedSession>) -> Option<Arc<OwnedSession>> {
        let hash = self.hasher.hash_one(session.id_bytes());
        let mut shard = self
            .shard(hash)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match shard.find_mut(hash, |other| other.id_bytes() == session.id_bytes()) {
            Some(slot) => Some(std::mem::replace(slot, session)),
            None => {
                shard.insert_unique(hash, session, |other| {
                    self.hasher.hash_one(other.id_bytes())
                });
                None
            }
        }
    }

    /// Takes this very session out, and not one that came after it.
    pub(crate) fn remove(&self, session: &Arc<OwnedSession>) -> bool {
        let hash = self.hasher.hash_one(session.id_bytes());
        let mut shard = self
            .shard(hash)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        shard
            .find_entry(hash, |other| Arc::ptr_eq(other, session))
            .is_ok_and(|entry| {
                entry.remove();
                true
            })
    }

    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).len())
            .sum()
    }

    /// The sessions for which `wanted` is true, gathered shard by shard.
    pub(crate) fn collect(
        &self,
        mut wanted: impl FnMut(&OwnedSession) -> bool,
    ) -> Vec<Arc<OwnedSession>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            found.extend(shard.iter().filter(|session| wanted(session)).cloned());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Timestamp,
        session::{Fence, Incarnation, Residency, SessionId, SessionTerms},
    };

    fn session(id: &str) -> Arc<OwnedSession> {
        Arc::new(OwnedSession::new(
            SessionId::parse(id).unwrap(),
            SessionTerms::new(Residency::Pinned),
            Fence::new(Incarnation::new(1, 1), 1),
            1,
            Timestamp::ORIGIN,
            true,
        ))
    }

    #[test]
    fn takes_out_the_very_one() {
        let table = OwnTable::new();
        let (old, new) = (session("a"), session("a"));
        assert!(table.insert(old.clone()).is_none());
        assert!(Arc::ptr_eq(&table.insert(new.clone()).unwrap(), &old));
        assert!(!table.remove(&old));
        assert!(table.get(b"a").is_some() && table.len() == 1);
        assert!(table.remove(&new) && table.get(b"a").is_none());
    }
}
