//! A directory that hangs, fails or loses replies to order, and counts what it is asked.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_session_guard::{
    session::{Fence, InstanceId, SessionId, SessionTerms},
    store::{
        Bury, Claim, ClaimReply, Heartbeat, Lookup, MemoryStore, Registered, SessionDirectory,
        StoreError, StoreErrorKind, TakeOver, Terminated,
    },
};

/// What happens to the calls of one verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// They fail, and nothing has happened.
    Fails(StoreErrorKind),
    /// They hang.
    Hangs,
    /// They happen, and the reply is lost.
    LosesReply,
    /// They take this long and then happen.
    Slow(Duration),
}

#[derive(Debug, Clone)]
pub struct Faulty {
    pub store: MemoryStore,
    faults: Arc<Mutex<HashMap<&'static str, Fault>>>,
    calls: Arc<Mutex<HashMap<&'static str, usize>>>,
}

const VERBS: [&str; 9] = [
    "lookup",
    "register",
    "claim",
    "heartbeat",
    "take_over",
    "bury",
    "touch",
    "terminate",
    "leave",
];

impl Faulty {
    pub fn new(store: MemoryStore) -> Self {
        Self {
            store,
            faults: Arc::default(),
            calls: Arc::default(),
        }
    }

    pub fn set(&self, verb: &'static str, fault: Fault) {
        assert!(VERBS.contains(&verb));
        self.faults.lock().unwrap().insert(verb, fault);
    }

    pub fn set_all(&self, fault: Fault) {
        for verb in VERBS {
            self.set(verb, fault);
        }
    }

    pub fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }

    /// How often a verb was called since the last time it was asked for.
    pub fn take_calls(&self, verb: &'static str) -> usize {
        assert!(VERBS.contains(&verb));
        self.calls.lock().unwrap().remove(verb).unwrap_or(0)
    }

    async fn run<T>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        *self.calls.lock().unwrap().entry(verb).or_default() += 1;
        let fault = self.faults.lock().unwrap().get(verb).copied();
        match fault {
            None => call.await,
            Some(Fault::Fails(kind)) => Err(kind.into()),
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::LosesReply) => {
                call.await?;
                std::future::pending().await
            }
            Some(Fault::Slow(time)) => {
                tokio::time::sleep(time).await;
                call.await
            }
        }
    }
}

impl SessionDirectory for Faulty {
    async fn lookup(&self, id: &SessionId) -> Result<Lookup, StoreError> {
        self.run("lookup", self.store.lookup(id)).await
    }

    async fn register(
        &self,
        id: &SessionId,
        owner: &InstanceId,
        terms: &SessionTerms,
    ) -> Result<Registered, StoreError> {
        self.run("register", self.store.register(id, owner, terms))
            .await
    }

    async fn claim(&self, claim: &Claim<'_>) -> Result<ClaimReply, StoreError> {
        self.run("claim", self.store.claim(claim)).await
    }

    async fn heartbeat(&self, instance: &InstanceId) -> Result<Heartbeat, StoreError> {
        self.run("heartbeat", self.store.heartbeat(instance)).await
    }

    async fn take_over(
        &self,
        id: &SessionId,
        seen: Fence,
        by: &InstanceId,
    ) -> Result<TakeOver, StoreError> {
        self.run("take_over", self.store.take_over(id, seen, by))
            .await
    }

    async fn bury(&self, id: &SessionId, seen: Fence) -> Result<Bury, StoreError> {
        self.run("bury", self.store.bury(id, seen)).await
    }

    async fn touch(
        &self,
        owner: &InstanceId,
        ids: &[SessionId],
    ) -> Result<Vec<SessionId>, StoreError> {
        self.run("touch", self.store.touch(owner, ids)).await
    }

    async fn terminate(
        &self,
        id: &SessionId,
        fence: Option<Fence>,
    ) -> Result<Terminated, StoreError> {
        self.run("terminate", self.store.terminate(id, fence)).await
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), StoreError> {
        self.run("leave", self.store.leave(instance)).await
    }
}
