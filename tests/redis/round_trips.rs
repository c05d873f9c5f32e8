//! What each verb costs: how often the server is asked, as it counts itself.

use std::time::Duration;

use bytes::Bytes;
use mcp_session_guard::{
    instance::Instance,
    mcp::Subject,
    session::{
        Epoch, Fence, Incarnation, InstanceId,
        Residency::{Externalized, Pinned},
        SessionId, SessionTerms,
    },
    store::{
        Append, Bury, Claim, Ending, Event, EventStore, Lookup, Page, RedisStore, Registered, Seq,
        SessionDirectory, StreamHeader, StreamKey, TakeOver,
    },
};

use crate::{
    field::{Field, LEASE, until},
    server::Server,
};

/// How often clients asked the server since it was last looked at. What scripts do is not counted.
fn asked(server: &Server) -> usize {
    let stats = server.text(&["INFO", "commandstats"]);
    let calls = |name: &str| -> usize {
        let line = stats.lines().find_map(|line| line.strip_prefix(name));
        let calls = line.and_then(|line| line.strip_prefix(":calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    };
    let asked = calls("cmdstat_evalsha") + calls("cmdstat_mget") + calls("cmdstat_script|load");
    server.command(&["CONFIG", "RESETSTAT"]);
    asked
}

fn id(text: &str) -> SessionId {
    SessionId::parse(text).expect("an id")
}

async fn join(store: &RedisStore) -> InstanceId {
    let who = InstanceId::new("i", Epoch::mint().expect("randomness"));
    claim(store, &who).await;
    who
}

async fn claim(store: &RedisStore, who: &InstanceId) {
    store.claim(&Claim::new(who, LEASE)).await.expect("claim");
}

/// A directory that is not recovering and has two instances, whose scripts are all known to the server.
async fn stage(server: &Server) -> (RedisStore, InstanceId, InstanceId) {
    let store = RedisStore::connect(server.config().with_max_lease(LEASE)).await;
    let store = store.expect("a store");
    let (alice, bob) = (join(&store).await, join(&store).await);
    server.pass(LEASE);
    for who in [&alice, &bob] {
        claim(&store, who).await;
    }
    let (warm, fence) = (id("warm"), Fence::new(Incarnation::new(1, 1), 1));
    store.lookup(&warm).await.expect("lookup");
    store.heartbeat(&alice).await.expect("heartbeat");
    let terms = SessionTerms::new(Pinned);
    store
        .register(&warm, &alice, &terms)
        .await
        .expect("register");
    store
        .touch(&alice, std::slice::from_ref(&warm))
        .await
        .expect("touch");
    store
        .take_over(&warm, fence, &alice)
        .await
        .expect("take over");
    store.bury(&warm, fence).await.expect("bury");
    store.terminate(&warm, None).await.expect("terminate");
    asked(server);
    (store, alice, bob)
}

#[tokio::test]
async fn a_registration_and_a_heartbeat_ask_once_however_many_sessions_there_are() {
    let server = Server::start();
    let (store, alice, _) = stage(&server).await;
    let ids: Vec<_> = (0..500).map(|n| id(&format!("s-{n}"))).collect();
    let terms = SessionTerms::new(Pinned).with_retention(Duration::from_secs(60));
    for id in &ids {
        let registered = store.register(id, &alice, &terms).await.expect("register");
        assert!(matches!(registered, Registered::Recorded(_)));
    }
    assert_eq!(asked(&server), 500);
    assert!(store.heartbeat(&alice).await.expect("heartbeat").extended);
    assert_eq!(asked(&server), 1);
    assert!(store.touch(&alice, &ids).await.expect("touch").is_empty());
    assert_eq!(asked(&server), 1);
}

#[tokio::test]
async fn a_session_of_another_is_found_at_once() {
    let server = Server::start();
    let (store, alice, _) = stage(&server).await;
    let terms = SessionTerms::new(Externalized);
    let ids: Vec<_> = (0..50).map(|n| id(&format!("s-{n}"))).collect();
    for id in &ids {
        store.register(id, &alice, &terms).await.expect("register");
    }
    asked(&server);
    for id in &ids {
        let found = store.lookup(id).await.expect("lookup");
        assert!(matches!(found, Lookup::Owned { .. }));
    }
    assert_eq!(asked(&server), 50);
    // All but the first were found by their records alone.
    let scripts = server.text(&["INFO", "commandstats"]);
    assert!(!scripts.contains("cmdstat_evalsha"), "{scripts}");
}

#[tokio::test]
async fn what_a_dead_owner_had_takes_one_more() {
    let server = Server::start();
    let (store, alice, bob) = stage(&server).await;
    let (pinned, shared) = (id("pinned"), id("shared"));
    let mut fences = Vec::new();
    for (id, residency) in [(&pinned, Pinned), (&shared, Externalized)] {
        let terms = SessionTerms::new(residency);
        match store.register(id, &alice, &terms).await.expect("register") {
            Registered::Recorded(fence) => fences.push(fence),
            other => panic!("{other:?}"),
        }
        store.lookup(id).await.expect("lookup");
    }
    store.leave(&alice).await.expect("leave");
    // Nobody here heard of it; but then one read finds that leases may have ended, and the directory is asked first.
    store.lookup(&pinned).await.expect("lookup");
    asked(&server);
    for id in [&pinned, &shared] {
        let found = store.lookup(id).await.expect("lookup");
        assert!(matches!(found, Lookup::Orphaned(_)));
    }
    assert_eq!(asked(&server), 2);
    let buried = store.bury(&pinned, fences[0]).await.expect("bury");
    assert_eq!(buried, Bury::Buried);
    assert_eq!(asked(&server), 1);
    let taken = store.take_over(&shared, fences[1], &bob).await;
    assert!(matches!(taken, Ok(TakeOver::Taken(_))));
    assert_eq!(asked(&server), 1);
}

#[tokio::test]
async fn an_owner_asks_nobody() {
    let server = Server::start();
    let mut field = Field::start(server.config(), 2, Pinned).await;
    field.open(1).await;
    // Between two heartbeats.
    let session = field.sessions[0].clone();
    until("a moment without a heartbeat", async || {
        asked(&server);
        for _ in 0..100 {
            assert_eq!(field.ask(0, &session).await, 200);
        }
        asked(&server) == 0
    })
    .await;
}

#[tokio::test]
async fn a_batch_of_events_is_one_call() {
    let server = Server::start();
    let store = server.store().await;
    let key = StreamKey {
        session: id("s"),
        epoch: Epoch::mint().expect("randomness"),
        stream: 1,
    };
    let fence = Fence::new(Incarnation::new(1, 1), 1);
    let header = StreamHeader::new(key.clone(), fence, None, []);
    let event = Event {
        subject: Subject::Nothing,
        bytes: Bytes::from_static(b"data: x\n\n"),
    };
    let events = vec![event; 500];
    // The first of each has the server learn its script.
    for round in 0..2 {
        asked(&server);
        store.open(&header).await.expect("open");
        let first = Seq::new(round * 500 + 1);
        let append = Append {
            key: &key,
            first,
            events: &events,
            keep: first.plus(500),
        };
        store.append(&append).await.expect("append");
        let page = Page {
            events: 100,
            bytes: usize::MAX,
        };
        let read = store.read_after(&key, Seq::new(round * 500), page).await;
        assert_eq!(read.expect("a read").expect("a stream").events.len(), 100);
        store.seal(&key.session, fence).await.expect("seal");
    }
    assert_eq!(asked(&server), 4);
    store
        .end(&key, Seq::new(1000), Ending::Answered)
        .await
        .expect("end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_instances_beat_on_one_server() {
    const INSTANCES: usize = 1000;
    let lease = Duration::from_secs(10);
    let server = Server::start();
    let config = server.config().with_max_lease(lease);
    let store = RedisStore::connect(config).await.expect("a store");
    let mut instances = Vec::new();
    for n in 0..INSTANCES {
        let builder = Instance::builder(format!("i-{n}"))
            .with_lease(lease)
            .with_heartbeats(mcp_session_guard::instance::Heartbeats::OnRuntime);
        instances.push(builder.join(store.clone()).expect("joins"));
    }
    for instance in &instances {
        instance.ready().await;
    }
    asked(&server);
    let begun = tokio::time::Instant::now();
    until("two leases", async || {
        assert!(instances.iter().all(Instance::is_ready));
        begun.elapsed() > 2 * lease
    })
    .await;
    // One call for each in each period, which is a fifth of the lease.
    let periods = begun.elapsed().as_secs_f64() / (lease.as_secs_f64() / 5.0);
    let asked = asked(&server) as f64;
    assert!(asked < (periods + 2.0) * INSTANCES as f64, "{asked}");
}
