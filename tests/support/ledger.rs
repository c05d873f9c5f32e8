//! A ledger that hangs, fails or loses replies to order, and counts what it is asked.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
};

use mcp_session_guard::store::{
    Begun, Held, KeyClaim, MemoryStore, Outcome, RequestLedger, StoreError,
};

use super::directory::Fault;

#[derive(Debug, Clone)]
pub struct Ledger {
    pub store: MemoryStore,
    faults: Arc<Mutex<HashMap<&'static str, Fault>>>,
    calls: Arc<Mutex<HashMap<&'static str, usize>>>,
}

const VERBS: [&str; 4] = ["begin", "renew", "complete", "release"];

impl Ledger {
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

impl RequestLedger for Ledger {
    async fn begin(&self, claim: &KeyClaim) -> Result<Begun, StoreError> {
        self.run("begin", self.store.begin(claim)).await
    }

    async fn renew(&self, claim: &KeyClaim) -> Result<Held, StoreError> {
        self.run("renew", self.store.renew(claim)).await
    }

    async fn complete(&self, claim: &KeyClaim, outcome: &Outcome) -> Result<Held, StoreError> {
        self.run("complete", self.store.complete(claim, outcome))
            .await
    }

    async fn release(&self, claim: &KeyClaim) -> Result<(), StoreError> {
        self.run("release", self.store.release(claim)).await
    }
}
