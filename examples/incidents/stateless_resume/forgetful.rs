//! A log that keeps events and loses the requests behind them, as one does that stores lines by session id.

use mcp_session_guard::{
    session::{Fence, SessionId},
    store::{
        Append, Ending, EventStore, Page, Seq, SharedEvents, Snapshot, StoreError, StreamHeader,
        StreamKey,
    },
};

#[derive(Clone)]
pub(super) struct Forgetful(pub(super) SharedEvents);

impl EventStore for Forgetful {
    async fn open(&self, header: &StreamHeader) -> Result<(), StoreError> {
        self.0.open(header).await
    }

    async fn append(&self, append: &Append<'_>) -> Result<(), StoreError> {
        self.0.append(append).await
    }

    async fn end(&self, key: &StreamKey, last: Seq, ending: Ending) -> Result<(), StoreError> {
        self.0.end(key, last, ending).await
    }

    async fn read_after(
        &self,
        key: &StreamKey,
        after: Seq,
        page: Page,
    ) -> Result<Option<Snapshot>, StoreError> {
        let mut snapshot = self.0.read_after(key, after, page).await?;
        if let Some(snapshot) = &mut snapshot {
            snapshot.header.requests = [].into();
        }
        Ok(snapshot)
    }

    async fn seal(&self, session: &SessionId, below: Fence) -> Result<(), StoreError> {
        self.0.seal(session, below).await
    }
}
