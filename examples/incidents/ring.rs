//! A consistent-hash ring: each key belongs to the first point clockwise of its hash, so a member that goes takes
//! only its own keys with it.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Points for each member: enough that no member gets much more than its share.
const POINTS: u32 = 128;

#[derive(Default)]
pub(crate) struct Ring {
    points: BTreeMap<u64, Arc<str>>,
}

impl Ring {
    pub(crate) fn insert(&mut self, member: &Arc<str>) {
        for point in 0..POINTS {
            self.points
                .insert(hash((member, point)), Arc::clone(member));
        }
    }

    pub(crate) fn remove(&mut self, member: &str) {
        self.points.retain(|_, other| **other != *member);
    }

    pub(crate) fn find(&self, key: &str) -> Option<&Arc<str>> {
        let clockwise = self.points.range(hash(key)..).next();
        clockwise
            .or_else(|| self.points.first_key_value())
            .map(|(_, member)| member)
    }
}

/// Without a random key: every replica of an edge must hash alike.
fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
