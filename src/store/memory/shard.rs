//! The logs of some sessions as a value, found by the hash of their ids, and the memory that they may take.

use hashbrown::HashTable;

use super::{
    MemoryConfig,
    logs::Logs,
    weight::{Limits, Weight},
};
use crate::{
    clock::Timestamp,
    session::{Fence, SessionId},
    store::{
        Append, Ending, Page, Seq, Snapshot, StoreError, StoreErrorKind, StreamHeader, StreamKey,
    },
};

#[derive(Debug)]
pub(super) struct Shard {
    limits: Limits,
    sessions: HashTable<Entry>,
    used: usize,
    /// What of the store's memory is set aside for it.
    granted: usize,
}

#[derive(Debug)]
pub(super) struct Entry {
    hash: u64,
    logs: Logs,
}

impl Shard {
    pub(super) fn new(config: &MemoryConfig) -> Self {
        Self {
            limits: Limits::new(config),
            sessions: HashTable::new(),
            used: 0,
            granted: 0,
        }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// What it was granted and does not use.
    pub(super) fn spare(&self) -> usize {
        self.granted.saturating_sub(self.used)
    }

    pub(super) fn grant(&mut self, memory: usize) {
        self.granted += memory;
    }

    /// Gives back what it does not use beyond `kept`.
    pub(super) fn give_back(&mut self, kept: usize) -> usize {
        let back = self.spare().saturating_sub(kept);
        self.granted -= back;
        back
    }

    /// What a stream with this header takes, should its session have no other.
    pub(super) fn need_of_stream(header: &StreamHeader) -> usize {
        Self::need_of_seal(&header.key.session) + Weight::of_stream(header).memory
    }

    pub(super) fn need_of_seal(session: &SessionId) -> usize {
        Weight::of_session(session).memory
    }

    pub(super) fn open(
        &mut self,
        now: Timestamp,
        hash: u64,
        header: &StreamHeader,
    ) -> Result<(), StoreError> {
        self.enter(hash, &header.key.session, Self::need_of_stream(header))?;
        self.change(hash, &header.key.session, |logs, limits, spare| {
            logs.open(now, limits, header, spare)
        })
        .unwrap_or_else(fenced)
    }

    pub(super) fn append(
        &mut self,
        now: Timestamp,
        hash: u64,
        append: &Append<'_>,
        weight: Weight,
    ) -> Result<(), StoreError> {
        self.change(hash, &append.key.session, |logs, limits, spare| {
            logs.append(now, limits, append, weight, spare)
        })
        .unwrap_or_else(fenced)
    }

    pub(super) fn end(
        &mut self,
        now: Timestamp,
        hash: u64,
        key: &StreamKey,
        last: Seq,
        ending: Ending,
    ) -> Result<(), StoreError> {
        self.change(hash, &key.session, |logs, limits, _| {
            logs.end(now, limits, key, last, ending)
        })
        .unwrap_or_else(fenced)
    }

    pub(super) fn read_after(
        &mut self,
        now: Timestamp,
        hash: u64,
        key: &StreamKey,
        after: Seq,
        page: Page,
    ) -> Option<Snapshot> {
        self.change(hash, &key.session, |logs, limits, _| {
            logs.read_after(now, limits, key, after, page)
        })
        .flatten()
    }

    pub(super) fn seal(
        &mut self,
        now: Timestamp,
        hash: u64,
        session: &SessionId,
        below: Fence,
    ) -> Result<(), StoreError> {
        self.enter(hash, session, Self::need_of_seal(session))?;
        self.change(hash, session, |logs, limits, _| {
            logs.seal(now, limits, below);
        });
        Ok(())
    }

    #[cfg(feature = "test-util")]
    pub(super) fn forget(&mut self) {
        self.sessions.clear();
        self.used = 0;
    }

    /// Takes what is older than it may be. Costs a look at each stream, so it is for now and then.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let Self { limits, used, .. } = self;
        self.sessions.retain(|entry| {
            let before = entry.logs.memory();
            let kept = entry.logs.sweep(now, limits);
            *used -= before;
            if kept {
                *used += entry.logs.memory();
            }
            kept
        });
        if self.sessions.capacity() / 4 > self.sessions.len() {
            self.sessions
                .shrink_to(self.sessions.capacity() / 2, |entry| entry.hash);
        }
    }

    /// Takes streams that nobody has ended and that were silent for very long, until `need` is free: the longest
    /// silent first.
    pub(super) fn drop_silent(&mut self, now: Timestamp, need: usize) {
        let mut silent: Vec<_> = (self.sessions.iter())
            .flat_map(|entry| entry.logs.silent(now, &self.limits))
            .collect();
        silent.sort_unstable();
        let (mut free, mut until) = (self.spare(), None);
        for (touched, memory) in silent {
            if free >= need {
                break;
            }
            free += memory;
            until = Some(touched);
        }
        let Some(until) = until else {
            return;
        };
        let used = &mut self.used;
        for entry in &mut self.sessions {
            *used -= entry.logs.memory();
            entry.logs.drop_silent(now, until);
            *used += entry.logs.memory();
        }
    }

    /// Makes a place for a session that has none yet, where there is room for `need`.
    fn enter(&mut self, hash: u64, id: &SessionId, need: usize) -> Result<(), StoreError> {
        let known = self.sessions.find(hash, |entry| entry.logs.id() == id);
        if known.is_none() {
            if need > self.spare() {
                return Err(StoreErrorKind::Full.into());
            }
            let logs = Logs::new(id.clone());
            self.used += logs.memory();
            self.sessions
                .insert_unique(hash, Entry { hash, logs }, |entry| entry.hash);
        }
        Ok(())
    }

    fn change<T>(
        &mut self,
        hash: u64,
        id: &SessionId,
        change: impl FnOnce(&mut Logs, &Limits, usize) -> T,
    ) -> Option<T> {
        let spare = self.spare();
        let entry = self
            .sessions
            .find_mut(hash, |entry| entry.logs.id() == id)?;
        let before = entry.logs.memory();
        let outcome = change(&mut entry.logs, &self.limits, spare);
        self.used = self.used - before + entry.logs.memory();
        Some(outcome)
    }
}

fn fenced<T>() -> Result<T, StoreError> {
    Err(StoreErrorKind::Fenced.into())
}
