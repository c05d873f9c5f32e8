//! What can happen to a server while instances rely on it. In each case nobody is served or refused for good without
//! proof, every answer comes in time, and when it is over everything goes on by itself.

use std::time::Duration;

use mcp_session_guard::{
    session::Residency::{self, Externalized, Pinned},
    store::{RedisConfig, RedisStore, StoreErrorKind},
};

use crate::{
    field::{Field, LEASE, hasty, until},
    proxy::Proxy,
    server::Server,
};

/// Three pods with a few sessions each.
async fn field(config: RedisConfig, residency: Residency) -> Field {
    let mut field = Field::start(config, 3, residency).await;
    field.open(4).await;
    field
}

async fn restarted_empty(residency: Residency) {
    let mut server = Server::start();
    let field = field(server.config(), residency).await;
    let traffic = field.traffic();
    server.kill();
    // The owners serve on; whoever else is asked does not know.
    field.goes_on(20, 20).await;
    server.run();
    // What nobody ever opened may have been forgotten.
    assert_eq!(field.ask(0, "never-was").await, 503);
    field.all_served().await;
    field.settled().await;
    field.all_served().await;
    traffic.stop().await;
    field.history.check(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_restarted_empty() {
    restarted_empty(Pinned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_restarted_empty_externalized() {
    restarted_empty(Externalized).await;
}

async fn down_for_longer_than_a_lease(residency: Residency) {
    let mut server = Server::start();
    let field = field(server.config(), residency).await;
    let traffic = field.traffic();
    server.kill();
    field.all_lapsed().await;
    field.goes_on(0, 20).await;
    server.run();
    field.all_ready().await;
    field.settled().await;
    field.all_served().await;
    traffic.stop().await;
    field.history.check(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_after_all_leases_were_over() {
    down_for_longer_than_a_lease(Pinned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_after_all_leases_were_over_externalized() {
    down_for_longer_than_a_lease(Externalized).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_with_what_it_wrote_to_disk() {
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let field = field(server.config(), Pinned).await;
    let ended = field.sessions[0].clone();
    assert_eq!(field.end(0, &ended).await, 204);
    let traffic = field.traffic();
    server.restart();
    // A tombstone is true in every life, so this one needs no recovery.
    until("a server", async || {
        server.client().get_connection().is_ok()
    })
    .await;
    until("the tombstone", async || field.ask(1, &ended).await == 404).await;
    for session in &field.sessions[1..] {
        field.served(session).await;
    }
    field.settled().await;
    traffic.stop().await;
    field.history.check(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_dies_while_the_server_restarts_empty() {
    for residency in [Pinned, Externalized] {
        let mut server = Server::start();
        let mut field = field(server.config(), residency).await;
        let (orphans, kept) = field.sessions.split_at(4);
        let (orphans, kept) = (orphans.to_vec(), kept.to_vec());
        server.kill();
        field.kill(0);
        server.run();
        for orphan in &orphans {
            assert_eq!(field.ask(1, orphan).await, 503);
        }
        for session in &kept {
            field.served(session).await;
        }
        // Nobody spoke up for them, so they are gone whatever they were.
        for orphan in &orphans {
            until("the end of a session", async || {
                field.ask(1, orphan).await == 404
            })
            .await;
        }
        for session in &kept {
            field.served(session).await;
        }
        field.history.check(&[0]);
    }
}

async fn frozen(residency: Residency) {
    let server = Server::start();
    let field = field(server.config(), residency).await;
    let traffic = field.traffic();
    server.freeze();
    field.goes_on(20, 20).await;
    field.all_lapsed().await;
    field.goes_on(0, 20).await;
    server.thaw();
    field.all_ready().await;
    field.all_served().await;
    traffic.stop().await;
    field.history.check(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_for_longer_than_a_lease() {
    frozen(Pinned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_for_longer_than_a_lease_externalized() {
    frozen(Externalized).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_in_the_middle_of_a_reply() {
    for residency in [Pinned, Externalized] {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let mut field = field(RedisConfig::new(proxy.url()), residency).await;
        let traffic = field.traffic();
        proxy.cut_every(7);
        // Sessions are opened and ended meanwhile. A refusal is one, and not half a session.
        for n in 0..30 {
            let pod = n % 3;
            let Ok(session) = field.try_open(pod).await else {
                continue;
            };
            assert_eq!(field.ask(pod, &session).await, 200);
            if n % 2 == 0 && field.end(pod, &session).await < 300 {
                until("a tombstone", async || {
                    field.ask((pod + 1) % 3, &session).await == 404
                })
                .await;
            } else {
                field.sessions.push(session);
            }
        }
        until("cuts", async || proxy.cuts() >= 10).await;
        proxy.cut_every(0);
        for session in &field.sessions[..12] {
            field.served(session).await;
        }
        traffic.stop().await;
        field.history.check(&[]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_leads_nowhere_is_given_up() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let field = field(RedisConfig::new(proxy.url()), Pinned).await;
    // Connections stay open and nothing comes over them, as behind a firewall that forgot them; new ones are fine.
    proxy.swallow();
    field.goes_on_with_new_connections().await;
    field.history.check(&[]);
}

impl Field {
    async fn goes_on_with_new_connections(&self) {
        for session in &self.sessions {
            for pod in 0..self.pods.len() {
                until("an answer that is one", async || {
                    matches!(self.ask(pod, session).await, 200 | 409)
                })
                .await;
            }
        }
    }
}

/// A primary and its replica, in step.
async fn pair() -> (Server, Server) {
    let (primary, replica) = (Server::start(), Server::start());
    follow(&replica, &primary).await;
    (primary, replica)
}

async fn follow(replica: &Server, primary: &Server) {
    let port = primary.port.to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]);
    until("a replica in step", async || {
        replica.info("replication", "master_link_status").as_deref() == Some("up")
    })
    .await;
}

async fn in_step(primary: &Server, replica: &Server) {
    until("a replica in step", async || {
        let at = primary.info("replication", "master_repl_offset");
        at.is_some() && replica.info("replication", "slave_repl_offset") == at
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_is_demoted() {
    for residency in [Pinned, Externalized] {
        let (one, other) = pair().await;
        let config = one.config().with_address(other.url());
        let field = field(config, residency).await;
        in_step(&one, &other).await;
        let traffic = field.traffic();
        other.command(&["REPLICAOF", "NO", "ONE"]);
        // Still there, and read-only.
        let port = other.port.to_string();
        one.command(&["REPLICAOF", "127.0.0.1", &port]);
        field.all_served().await;
        field.settled().await;
        field.all_served().await;
        traffic.stop().await;
        field.history.check(&[]);
        let beats = "{mcp-session-guard}:until";
        assert_ne!(other.command(&["ZCARD", beats]), redis::Value::Int(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_promoted_that_had_not_heard_of_the_last_writes() {
    for residency in [Pinned, Externalized] {
        let (mut one, other) = pair().await;
        let config = one.config().with_address(other.url());
        let mut field = field(config, residency).await;
        in_step(&one, &other).await;
        // From here on it hears nothing; clients still find the other one first.
        other.command(&["REPLICAOF", "NO", "ONE"]);
        field.open(4).await;
        let ended = field.sessions.remove(0);
        assert_eq!(field.end(0, &ended).await, 204);
        let traffic = field.traffic();
        one.kill();
        field.all_served().await;
        // What was ended is not there any more for its owner, who repeats the tombstone.
        until("the tombstone", async || field.ask(1, &ended).await == 404).await;
        field.settled().await;
        field.all_served().await;
        traffic.stop().await;
        field.history.check(&[]);
    }
}

#[cfg(feature = "redis-sentinel")]
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_says_who_is_the_primary_now() {
    let (mut one, other) = pair().await;
    let sentinel = Server::sentinel("guard", &one);
    until("a sentinel that knows the replica", async || {
        let known = sentinel.info("sentinel", "master0");
        known.is_some_and(|it| it.contains("slaves=1"))
    })
    .await;
    let config = RedisConfig::new(sentinel.url()).with_sentinel("guard");
    let field = field(config, Pinned).await;
    let traffic = field.traffic();
    one.kill();
    until("another primary", async || {
        other.info("replication", "role").as_deref() == Some("master")
    })
    .await;
    field.all_ready().await;
    field.settled().await;
    field.all_served().await;
    traffic.stop().await;
    field.history.check(&[]);
}

#[tokio::test]
async fn a_write_that_has_to_be_on_a_replica_is_refused_without_one() {
    use mcp_session_guard::{
        session::{Epoch, InstanceId, SessionId, SessionTerms},
        store::{Claim, Registered, SessionDirectory},
    };

    let (one, mut other) = pair().await;
    let config = one.config().with_replicas(1, Duration::from_millis(200));
    let store = RedisStore::connect(config).await.expect("a store");
    let who = InstanceId::new("i", Epoch::mint().expect("randomness"));
    let terms = SessionTerms::new(Pinned);
    let id = |text| SessionId::parse(text).expect("an id");
    store.claim(&Claim::new(&who, LEASE)).await.expect("claim");
    store
        .register(&id("a"), &who, &terms)
        .await
        .expect("register");
    // It is on the replica already.
    let written = other.text(&["GET", "{mcp-session-guard}:generation"]);
    assert!(!written.is_empty());
    other.kill();
    let refused = store.register(&id("b"), &who, &terms).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Unavailable);
    // Whatever only reads, and the heartbeats, go on.
    assert!(store.heartbeat(&who).await.expect("heartbeat").extended);
    // And what was written all the same is recognised.
    other.run();
    follow(&other, &one).await;
    until("a replica that has it", async || {
        let again = store.register(&id("b"), &who, &terms).await;
        matches!(again, Ok(Registered::Recorded(_)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_enough_replicas_proves_nothing() {
    let server = Server::start();
    let mut field = field(server.config(), Pinned).await;
    field.kill(0);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    // Nobody is absent and nobody is orphaned, however long it takes: no time passes without a write.
    field.all_lapsed().await;
    assert_eq!(field.ask(1, "never-was").await, 503);
    assert!(matches!(field.ask(1, &field.sessions[0]).await, 409 | 503));
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    field.all_ready().await;
    field.settled().await;
    for session in &field.sessions[4..] {
        field.served(session).await;
    }
    field.history.check(&[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_jumps_costs_nobody_the_lease() {
    for residency in [Pinned, Externalized] {
        let server = Server::start();
        let field = field(server.config(), residency).await;
        let traffic = field.traffic();
        const HOUR: i64 = 3_600_000;
        for jump in [HOUR, -HOUR, 24 * HOUR, -48 * HOUR] {
            server.jump(jump);
            field.goes_on(50, 20).await;
            assert!(
                field
                    .pods
                    .iter()
                    .flatten()
                    .all(|pod| pod.instance.is_ready())
            );
        }
        field.all_served().await;
        traffic.stop().await;
        field.history.check(&[]);
        // And time still passes: what a dead owner had is given up.
        let mut field = field;
        field.kill(0);
        let orphan = field.sessions[0].clone();
        match residency {
            Pinned => until("an end", async || field.ask(1, &orphan).await == 404).await,
            _ => field.served(&orphan).await,
        }
        field.history.check(&[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_refuses_what_is_new_and_keeps_what_is_there() {
    let server = Server::start();
    let field = field(server.config(), Pinned).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let refused = field.try_open(0).await.expect_err("no room");
    assert_eq!(refused.status, 503);
    let traffic = field.traffic();
    // Leases are extended, tombstones are written, and what is there is found, for longer than a lease.
    let beats = tokio::time::Instant::now() + LEASE * 2;
    until("two leases", async || tokio::time::Instant::now() > beats).await;
    assert!(
        field
            .pods
            .iter()
            .flatten()
            .all(|pod| pod.instance.is_ready())
    );
    assert_eq!(field.end(0, &field.sessions[0]).await, 204);
    assert_eq!(field.ask(1, &field.sessions[0]).await, 404);
    assert_eq!(field.ask(1, &field.sessions[1]).await, 409);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    field.try_open(0).await.expect("room");
    traffic.stop().await;
    field.history.check(&[]);
}

#[tokio::test]
async fn a_server_that_may_evict_is_refused_with_what_to_set() {
    for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl"] {
        let server = Server::start_with(&["--maxmemory-policy", policy]);
        let refused = RedisStore::connect(server.config()).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Unavailable);
        let why = std::error::Error::source(&refused)
            .expect("a source")
            .to_string();
        assert!(
            why.contains(policy) && why.contains("maxmemory-policy noeviction"),
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_to_be_unavailable_in_time() {
    let server = Server::start();
    let config = hasty(RedisConfig::new("redis://127.0.0.1:1"));
    let refused = tokio::time::timeout(Duration::from_secs(8), RedisStore::connect(config)).await;
    let kind = refused.expect("in time").unwrap_err().kind();
    assert_eq!(kind, StoreErrorKind::Unavailable);
    server.freeze();
    let config = hasty(server.config());
    let late = tokio::time::timeout(Duration::from_secs(8), RedisStore::connect(config)).await;
    let kind = late.expect("in time").unwrap_err().kind();
    assert_eq!(kind, StoreErrorKind::TimedOut);
    server.thaw();
}
