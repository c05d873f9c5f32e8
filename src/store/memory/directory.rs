//! [`SessionDirectory`] on the embedded store: a lock, the clock, and the pure state.

use super::MemoryStore;
use crate::{
    session::{Fence, InstanceId, SessionId, SessionTerms},
    store::{
        Bury, Claim, ClaimReply, Heartbeat, Lookup, Registered, SessionDirectory, StoreError,
        TakeOver, Terminated,
    },
};

impl SessionDirectory for MemoryStore {
    async fn lookup(&self, id: &SessionId) -> Result<Lookup, StoreError> {
        self.state().lookup(self.shared.clock.now(), id)
    }

    async fn register(
        &self,
        id: &SessionId,
        owner: &InstanceId,
        terms: &SessionTerms,
    ) -> Result<Registered, StoreError> {
        self.state()
            .register(self.shared.clock.now(), id, owner, terms)
    }

    async fn claim(&self, claim: &Claim<'_>) -> Result<ClaimReply, StoreError> {
        Ok(self.state().claim(self.shared.clock.now(), claim))
    }

    async fn heartbeat(&self, instance: &InstanceId) -> Result<Heartbeat, StoreError> {
        Ok(self.state().heartbeat(self.shared.clock.now(), instance))
    }

    async fn take_over(
        &self,
        id: &SessionId,
        seen: Fence,
        by: &InstanceId,
    ) -> Result<TakeOver, StoreError> {
        self.state()
            .take_over(self.shared.clock.now(), id, seen, by)
    }

    async fn bury(&self, id: &SessionId, seen: Fence) -> Result<Bury, StoreError> {
        self.state().bury(self.shared.clock.now(), id, seen)
    }

    async fn touch(
        &self,
        owner: &InstanceId,
        ids: &[SessionId],
    ) -> Result<Vec<SessionId>, StoreError> {
        Ok(self.state().touch(self.shared.clock.now(), owner, ids))
    }

    async fn terminate(
        &self,
        id: &SessionId,
        fence: Option<Fence>,
    ) -> Result<Terminated, StoreError> {
        self.state().terminate(self.shared.clock.now(), id, fence)
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), StoreError> {
        self.state().leave(instance);
        Ok(())
    }
}
