//! The contracts of the traits, as the embedded store keeps them too.

use std::{sync::Mutex, time::Duration};

use mcp_session_guard::{
    session::{Epoch, InstanceId},
    store::{
        RedisStore, SessionDirectory,
        contract::{DirectoryHarness, EventHarness, EventRetention},
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
