//! The stores on a Redis server that this starts for itself, beside a bare `GET` and a bare `XADD` on the same connection
//! type: `cargo bench --features redis --bench redis`. `REDIS_SERVER` names another program, a Valkey for one.

mod support;

#[path = "../tests/redis/server.rs"]
#[allow(dead_code, unreachable_pub, reason = "this uses a part of it")]
mod server;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use mcp_session_guard::{
    mcp::Subject,
    session::{Epoch, Fence, Incarnation, InstanceId, Residency, SessionId, SessionTerms},
    store::{
        Append, Claim, Event, EventStore, Lookup, MemoryConfig, MemoryStore, RedisStore, Seq,
        SessionDirectory, StreamHeader, StreamKey,
    },
};
use redis::aio::MultiplexedConnection;
use server::Server;
use support::{Guard, instance, on_session, open, session_id};
use tower::Service;

const CALLS: usize = 8_000;
const SESSIONS: usize = 1_000;
/// A lookup of a session that somebody else owns, as times of a bare `GET`.
const MAX_LOOKUP: f64 = 1.2;
const MIN_EVENTS: f64 = 100_000.0;
const EVENT: usize = 200;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let server = Server::start();
    println!(
        "redis {}",
        server.info("server", "redis_version").expect("a version")
    );
    let good = runtime.block_on(async {
        let round_trips = round_trips(&server).await;
        let events = events(&server).await;
        layers(&server).await;
        round_trips && events
    });
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn plain(server: &Server) -> MultiplexedConnection {
    let client = server.client();
    client
        .get_multiplexed_async_connection()
        .await
        .expect("a connection")
}

/// Times of calls, one after the other.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    async fn time<T>(&mut self, call: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let done = call.await;
        self.0.push(begun.elapsed());
        done
    }

    fn percentile(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        self.0[self.0.len() * percent / 100].as_secs_f64() * 1e6
    }

    fn print(&mut self, what: &str, floor: f64) {
        let (median, tail) = (self.percentile(50), self.percentile(99));
        println!(
            "{what:<40} {median:>8.1} µs  {tail:>8.1} µs  {:>5.2} × GET",
            median / floor
        );
    }
}

async fn round_trips(server: &Server) -> bool {
    let store = RedisStore::connect(server.config()).await.expect("a store");
    let mut bare = plain(server).await;
    let (alice, bob) = (joined(&store, "alice").await, joined(&store, "bob").await);
    server.pass(Duration::from_secs(60));
    for who in [&alice, &bob] {
        claim(&store, who).await;
    }
    let terms = SessionTerms::new(Residency::Externalized);
    let ids: Vec<_> = (0..SESSIONS).map(|n| id(&format!("session-{n}"))).collect();
    for id in &ids {
        store.register(id, &alice, &terms).await.expect("register");
    }
    let value = vec![b'x'; 300];
    let set = redis::cmd("SET")
        .arg("bare")
        .arg(&value)
        .exec_async(&mut bare)
        .await;
    set.expect("set");

    let [mut get, mut lookup, mut unknown, mut beat, mut register] =
        [(); 5].map(|()| Times::default());
    // In turn, so that whatever else the machine does hits all alike.
    for n in 0..CALLS {
        let read: Vec<u8> = get
            .time(redis::cmd("GET").arg("bare").query_async(&mut bare))
            .await
            .expect("get");
        assert_eq!(read.len(), value.len());
        let found = lookup
            .time(store.lookup(&ids[n % SESSIONS]))
            .await
            .expect("lookup");
        assert!(matches!(found, Lookup::Owned { .. }));
        if n % 8 == 0 {
            let found = unknown
                .time(store.lookup(&id(&format!("unknown-{n}"))))
                .await;
            assert_eq!(found.expect("lookup"), Lookup::Absent);
            beat.time(store.heartbeat(&bob)).await.expect("heartbeat");
            let new = id(&format!("new-{n}"));
            register
                .time(store.register(&new, &bob, &terms))
                .await
                .expect("register");
        }
    }
    let floor = get.percentile(50);
    println!("{:<40} {:>11}  {:>11}", "one after the other", "p50", "p99");
    get.print("GET of 300 B", floor);
    lookup.print("lookup, owned by another", floor);
    unknown.print("lookup, absent", floor);
    beat.print("heartbeat", floor);
    register.print("register", floor);
    let times = lookup.percentile(50) / floor;
    println!("a lookup is {times:.2} times a bare GET (limit {MAX_LOOKUP})");
    times <= MAX_LOOKUP
}

async fn joined(store: &RedisStore, name: &'static str) -> InstanceId {
    let who = InstanceId::new(name, Epoch::mint().expect("randomness"));
    claim(store, &who).await;
    who
}

async fn claim(store: &RedisStore, who: &InstanceId) {
    let claim = Claim::new(who, Duration::from_secs(60));
    store.claim(&claim).await.expect("claim");
}

fn id(text: &str) -> SessionId {
    SessionId::parse(text).expect("an id")
}

async fn events(server: &Server) -> bool {
    const TOTAL: usize = 400_000;
    let store = RedisStore::connect(server.config()).await.expect("a store");
    let mut best = 0.0f64;
    println!(
        "{:<40} {:>11}",
        "events of 200 B on one connection", "a second"
    );
    let mut floor = 0.0f64;
    for batch in [1, 16, 64] {
        let total = if batch == 1 { TOTAL / 8 } else { TOTAL };
        let bare = xadd(server, total, batch).await;
        println!(
            "{:<40} {bare:>11.0}",
            format!("XADD, pipelined by {}", batch * STREAMS)
        );
        let rate = append(&store, total, batch).await;
        println!(
            "{:<40} {rate:>11.0}",
            format!("append of {batch}, {STREAMS} streams")
        );
        best = best.max(rate);
        floor = floor.max(bare);
    }
    let least = MIN_EVENTS.min(floor / 2.0);
    println!("{best:.0} events a second (least {least:.0})");
    best >= least
}

/// So many producers at once, each of which waits for its reply.
const STREAMS: usize = 16;

async fn xadd(server: &Server, total: usize, batch: usize) -> f64 {
    let bare = plain(server).await;
    let payload = vec![b'x'; EVENT];
    let begun = Instant::now();
    join_all((0..STREAMS).map(|stream| {
        let (mut bare, payload) = (bare.clone(), &payload);
        async move {
            for _ in 0..total / STREAMS / batch {
                let mut pipe = redis::pipe();
                for _ in 0..batch {
                    pipe.cmd("XADD")
                        .arg(format!("xadd-{stream}"))
                        .arg("MAXLEN")
                        .arg("~")
                        .arg(4096)
                        .arg("*")
                        .arg("e")
                        .arg(payload)
                        .ignore();
                }
                pipe.exec_async(&mut bare).await.expect("xadd");
            }
        }
    }))
    .await;
    total as f64 / begun.elapsed().as_secs_f64()
}

async fn append(store: &RedisStore, total: usize, batch: usize) -> f64 {
    let epoch = Epoch::mint().expect("randomness");
    let fence = Fence::new(Incarnation::new(1, 1), 1);
    let event = Event {
        subject: Subject::Nothing,
        bytes: Bytes::from(vec![b'x'; EVENT]),
    };
    let events = vec![event; batch];
    let mut keys = Vec::new();
    for n in 0..STREAMS {
        let key = StreamKey {
            session: id(&format!("log-{batch}-{n}")),
            epoch,
            stream: 1,
        };
        let header = StreamHeader::new(key.clone(), fence, None, []);
        store.open(&header).await.expect("open");
        keys.push(key);
    }
    let begun = Instant::now();
    join_all(keys.iter().map(|key| {
        let events = &events;
        async move {
            let mut first = Seq::START.next();
            for _ in 0..total / STREAMS / batch {
                let next = first.plus(batch as u64);
                let append = Append {
                    key,
                    first,
                    events,
                    keep: next,
                };
                store.append(&append).await.expect("append");
                first = next;
            }
        }
    }))
    .await;
    total as f64 / begun.elapsed().as_secs_f64()
}

/// The guard on either store, on this thread's runtime.
async fn layers(server: &Server) {
    const LEASE: Duration = Duration::from_secs(3600);
    let config = MemoryConfig::default().with_max_lease(LEASE);
    let memory = MemoryStore::with_config(config);
    let config = server.config().with_max_lease(LEASE).with_prefix("layers");
    let redis = RedisStore::connect(config).await.expect("a store");
    println!("{:<40} {:>11}  {:>11}", "through the guard", "p50", "p99");
    guarded("memory", &memory).await;
    guarded("redis", &redis).await;
}

async fn guarded(store: &str, directory: &(impl SessionDirectory + Clone)) {
    let owner = instance(directory.clone()).await.expect("joins");
    let other = instance(directory.clone()).await.expect("joins");
    let (mut owner, mut other) = (support::guard(&owner), support::guard(&other));
    let [mut opened, mut owned, mut elsewhere] = [(); 3].map(|()| Times::default());
    for n in 0..SESSIONS {
        opened.time(open(&mut owner, n..n + 1)).await;
    }
    for n in 0..CALLS {
        let id = session_id(n % SESSIONS);
        assert_eq!(owned.time(status(&mut owner, &id)).await, 200);
        assert_eq!(elsewhere.time(status(&mut other, &id)).await, 409);
    }
    for (what, times) in [
        ("initialize", &mut opened),
        ("a call at the owner", &mut owned),
        ("a call elsewhere", &mut elsewhere),
    ] {
        let (median, tail) = (times.percentile(50), times.percentile(99));
        println!(
            "{:<40} {median:>8.1} µs  {tail:>8.1} µs",
            format!("{store}: {what}")
        );
    }
}

async fn status(guard: &mut Guard, id: &str) -> u16 {
    let answer = guard.call(on_session(id)).await;
    answer
        .unwrap_or_else(|never| match never {})
        .status()
        .as_u16()
}
