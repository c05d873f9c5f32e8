//! The contracts of the traits, as the embedded store keeps them too.

use std::{sync::Mutex, time::Duration};

use mcp_session_guard::{
    session::{Epoch, InstanceId},
    store::{
        ClaimToken, Fingerprint, KeyClaim, RedisStore, RequestKey, RequestLedger, SessionDirectory,
        StoreErrorKind,
        contract::{DirectoryHarness, EventHarness, EventRetention, LedgerHarness, LedgerTimes},
    },
};

use crate::server::Server;

pub(crate) struct OnRedis {
    server: Mutex<Server>,
    store: RedisStore,
}

impl DirectoryHarness for OnRedis {
    type Directory = RedisStore;

    async fn start(max_lease: Duration) -> Self {
        let server = Server::start();
        let config = server.config().with_max_lease(max_lease);
        let store = RedisStore::connect(config).await.expect("a store");
        // The first to ask finds no marker. Who knows what was there before?
        let nobody = InstanceId::new("nobody", Epoch::mint().expect("randomness"));
        store.heartbeat(&nobody).await.expect("heartbeat");
        server.pass(max_lease);
        Self {
            server: Mutex::new(server),
            store,
        }
    }

    fn directory(&self) -> &RedisStore {
        &self.store
    }

    async fn pass(&self, time: Duration) {
        self.server.lock().unwrap().pass(time);
    }

    async fn lose_memory(&self) {
        self.server.lock().unwrap().restart();
        // Before anybody asked it is in no incarnation, and no time passes there.
        let nobody = InstanceId::new("nobody", Epoch::mint().expect("randomness"));
        self.store.heartbeat(&nobody).await.expect("heartbeat");
    }
}

mod directory {
    use super::OnRedis;

    mcp_session_guard::directory_contract!(OnRedis);
}

impl EventHarness for OnRedis {
    type Events = RedisStore;

    async fn start(retention: EventRetention) -> Self {
        let server = Server::start();
        let config = server
            .config()
            .with_max_events_per_session(retention.events)
            .with_max_event_bytes_per_session(retention.bytes)
            .with_max_event_age(retention.age)
            .with_max_streams_per_session(retention.streams);
        let store = RedisStore::connect(config).await.expect("a store");
        Self {
            server: Mutex::new(server),
            store,
        }
    }

    fn events(&self) -> &RedisStore {
        &self.store
    }

    async fn pass(&self, time: Duration) {
        self.store.advance(time);
    }
}

mod events {
    use super::OnRedis;

    mcp_session_guard::event_contract!(OnRedis);
}

/// Has the present incarnation of the ledger begin, since no time passes before.
async fn begin_ledger(store: &RedisStore) {
    let claim = KeyClaim::new(
        RequestKey::from_bytes([0; 32]),
        Fingerprint::from_bytes([0; 32]),
        ClaimToken::from_u128(0),
        Duration::ZERO,
    );
    let recovering = store.begin(&claim).await.unwrap_err().kind();
    assert_eq!(recovering, StoreErrorKind::Recovering);
}

impl LedgerHarness for OnRedis {
    type Ledger = RedisStore;

    async fn start(times: LedgerTimes) -> Self {
        let server = Server::start();
        let config = server
            .config()
            .with_outcomes(times.outcomes)
            .with_retry_horizon(times.retry_horizon);
        let store = RedisStore::connect(config).await.expect("a store");
        begin_ledger(&store).await;
        server.pass_in_ledger(times.retry_horizon);
        Self {
            server: Mutex::new(server),
            store,
        }
    }

    fn ledger(&self) -> &RedisStore {
        &self.store
    }

    async fn pass(&self, time: Duration) {
        self.server.lock().unwrap().pass_in_ledger(time);
    }

    async fn lose_memory(&self) {
        self.server.lock().unwrap().restart();
        begin_ledger(&self.store).await;
    }
}

mod ledger {
    use super::OnRedis;

    mcp_session_guard::ledger_contract!(OnRedis);
}
