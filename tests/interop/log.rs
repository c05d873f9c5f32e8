//! A log that tells the test what has been recorded, and loses it when it is told to.

use std::sync::Arc;

use mcp_session_guard::{
    session::{Fence, SessionId},
    store::{
        Append, Ending, EventStore, MemoryStore, Page, Seq, Snapshot, StoreError, StreamHeader,
        StreamKey,
    },
};
use tokio::sync::watch;

use crate::until;

/// A stream, as far as it has been recorded.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub stream: u64,
    /// Whether it is the session's own.
    pub standalone: bool,
    pub events: usize,
    pub ending: Option<Ending>,
}

/// What is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loss {
    #[default]
    Nothing,
    /// Streams.
    Streams,
    /// The requests that opened them.
    Requests,
}

#[derive(Debug, Clone)]
pub struct Log {
    store: MemoryStore,
    loss: Arc<watch::Sender<Loss>>,
    recorded: Arc<watch::Sender<Vec<Recorded>>>,
}

impl Log {
    pub fn new(store: MemoryStore) -> Self {
        Self {
            store,
            loss: Arc::default(),
            recorded: Arc::default(),
        }
    }

    /// Waits for the first stream of a call. Only one session is opened, so a number says which stream.
    pub async fn call(&self) -> u64 {
        self.first("a call", |stream| !stream.standalone).await
    }

    /// Waits for the session's own stream.
    pub async fn standalone(&self) -> u64 {
        self.first("a stream of its own", |stream| stream.standalone)
            .await
    }

    async fn first(&self, what: &str, is: impl Fn(&Recorded) -> bool) -> u64 {
        let all = until(&self.recorded, what, |all| all.iter().any(&is)).await;
        let first = all.iter().find(|stream| is(stream));
        first.expect("waited for").stream
    }

    /// Waits until a stream is such.
    pub async fn until(&self, stream: u64, what: &str, is: impl Fn(&Recorded) -> bool) {
        until(&self.recorded, what, |all| {
            all.iter().any(|one| one.stream == stream && is(one))
        })
        .await;
    }

    pub fn lose(&self, loss: Loss) {
        self.loss.send_replace(loss);
    }

    pub fn events(&self, stream: u64) -> usize {
        let all = self.recorded.borrow();
        all.iter()
            .find(|one| one.stream == stream)
            .map_or(0, |one| one.events)
    }

    fn note(&self, stream: u64, change: impl FnOnce(&mut Recorded)) {
        self.recorded.send_modify(|all| {
            let recorded = all.iter_mut().find(|one| one.stream == stream);
            change(recorded.expect("opened before"));
        });
    }
}

impl EventStore for Log {
    async fn open(&self, header: &StreamHeader) -> Result<(), StoreError> {
        self.store.open(header).await?;
        let recorded = Recorded {
            stream: header.key.stream,
            standalone: header.requests.is_empty(),
            events: 0,
            ending: None,
        };
        self.recorded.send_modify(|all| all.push(recorded));
        Ok(())
    }

    async fn append(&self, append: &Append<'_>) -> Result<(), StoreError> {
        self.store.append(append).await?;
        self.note(append.key.stream, |one| one.events += append.events.len());
        Ok(())
    }

    async fn end(&self, key: &StreamKey, last: Seq, ending: Ending) -> Result<(), StoreError> {
        self.store.end(key, last, ending).await?;
        self.note(key.stream, |one| one.ending = Some(ending));
        Ok(())
    }

    async fn read_after(
        &self,
        key: &StreamKey,
        after: Seq,
        page: Page,
    ) -> Result<Option<Snapshot>, StoreError> {
        let mut snapshot = self.store.read_after(key, after, page).await?;
        let loss = *self.loss.borrow();
        match (loss, &mut snapshot) {
            (Loss::Streams, _) => return Ok(None),
            (Loss::Requests, Some(snapshot)) => snapshot.header.requests = [].into(),
            _ => {}
        }
        Ok(snapshot)
    }

    async fn seal(&self, session: &SessionId, below: Fence) -> Result<(), StoreError> {
        self.store.seal(session, below).await
    }
}
