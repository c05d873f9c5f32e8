//! A log that fails, hangs, cheats or forgets to order, and counts what it is asked.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use mcp_session_guard::{
    session::{Fence, SessionId},
    store::{
        Append, Ending, EventStore, MemoryStore, Page, Seq, Snapshot, StoreError, StoreErrorKind,
        StreamHeader, StreamKey,
    },
};

/// What goes wrong.
#[derive(Debug, Clone, Default)]
pub struct Wrong {
    pub open: Option<Trouble>,
    /// Appends that contain an event with this number fail.
    pub append: Option<u64>,
    /// Appends that contain an event with this number hang.
    pub append_hangs: Option<u64>,
    /// Appends that contain an event with this number happen, and their reply is lost.
    pub append_unheard: Option<u64>,
    pub read: Option<Trouble>,
    pub seal: Option<Trouble>,
    /// Snapshots come without the requests that opened their stream.
    pub forgets_requests: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    Fails,
    Hangs,
}

impl Trouble {
    async fn happen(trouble: Option<Self>) -> Result<(), StoreError> {
        match trouble {
            None => Ok(()),
            Some(Self::Fails) => Err(StoreErrorKind::Unavailable.into()),
            Some(Self::Hangs) => std::future::pending().await,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Log {
    store: MemoryStore,
    wrong: Arc<Mutex<Wrong>>,
    calls: Arc<AtomicUsize>,
}

impl Log {
    pub fn new(store: MemoryStore) -> Self {
        Self {
            store,
            wrong: Arc::default(),
            calls: Arc::default(),
        }
    }

    pub fn set(&self, wrong: Wrong) {
        *self.wrong.lock().unwrap() = wrong;
    }

    fn wrong(&self) -> Wrong {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.wrong.lock().unwrap().clone()
    }

    /// How often it was called since the last time this was.
    pub fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }
}

impl EventStore for Log {
    async fn open(&self, header: &StreamHeader) -> Result<(), StoreError> {
        Trouble::happen(self.wrong().open).await?;
        self.store.open(header).await
    }

    async fn append(&self, append: &Append<'_>) -> Result<(), StoreError> {
        let numbers = append.first.get()..append.first.plus(append.events.len() as u64).get();
        let wrong = self.wrong();
        let hit = |number: Option<u64>| number.is_some_and(|number| numbers.contains(&number));
        let unavailable = || Err(StoreErrorKind::Unavailable.into());
        if hit(wrong.append) {
            return unavailable();
        }
        if hit(wrong.append_hangs) {
            std::future::pending::<()>().await;
        }
        if hit(wrong.append_unheard) {
            self.store.append(append).await?;
            return unavailable();
        }
        self.store.append(append).await
    }

    async fn end(&self, key: &StreamKey, last: Seq, ending: Ending) -> Result<(), StoreError> {
        self.wrong();
        self.store.end(key, last, ending).await
    }

    async fn read_after(
        &self,
        key: &StreamKey,
        after: Seq,
        page: Page,
    ) -> Result<Option<Snapshot>, StoreError> {
        let wrong = self.wrong();
        Trouble::happen(wrong.read).await?;
        let mut snapshot = self.store.read_after(key, after, page).await?;
        if let Some(snapshot) = &mut snapshot
            && wrong.forgets_requests
        {
            snapshot.header.requests = [].into();
        }
        Ok(snapshot)
    }

    async fn seal(&self, session: &SessionId, below: Fence) -> Result<(), StoreError> {
        Trouble::happen(self.wrong().seal).await?;
        self.store.seal(session, below).await
    }
}
