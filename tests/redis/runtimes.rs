//! One store on several runtimes.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant as Moment},
};

use mcp_session_guard::{
    instance::Instance,
    session::SessionId,
    store::{RedisStore, SessionDirectory},
};

use crate::{
    field::{LEASE, hasty},
    server::{PATIENCE, Server, wait_for},
};

#[tokio::test]
async fn a_handler_that_blocks_its_runtime_does_not_cost_the_lease() {
    let server = Server::start();
    // Connected on this runtime, which nothing drives while it is blocked.
    let store = RedisStore::connect(hasty(server.config()))
        .await
        .expect("a store");
    let builder = Instance::builder("blocked").with_lease(LEASE);
    let instance = builder.join(store.clone()).expect("joins");
    instance.ready().await;
    let lapsed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let end = Moment::now() + LEASE * 2;
            while Moment::now() < end {
                lapsed.fetch_or(!instance.is_ready(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    });
    assert!(!lapsed.into_inner());
    let unknown = SessionId::parse("unknown").expect("an id");
    // And the connection that nobody drove is none the worse.
    let asked = tokio::time::timeout(PATIENCE, store.lookup(&unknown)).await;
    assert!(asked.expect("in time").is_ok());
}

#[test]
fn a_runtime_that_is_gone_takes_its_connection_along() {
    let server = Server::start();
    let clients = || -> usize {
        let clients = server
            .info("clients", "connected_clients")
            .expect("an answer");
        clients.trim().parse().expect("a number")
    };
    let before = clients();
    let store = RedisStore::new(server.config()).expect("a store");
    let unknown = SessionId::parse("unknown").expect("an id");
    for _ in 0..5 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        // Recovering, since nothing was ever written; but asked.
        let _ = runtime.block_on(store.lookup(&unknown));
    }
    wait_for("the end of the connections", || {
        (clients() <= before).then_some(())
    });
}
