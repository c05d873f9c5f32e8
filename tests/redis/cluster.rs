//! Three nodes, and slots that move while they are used.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use mcp_session_guard::{
    mcp::Subject,
    session::{
        Epoch, Fence, Incarnation,
        Residency::{Externalized, Pinned},
        SessionId,
    },
    store::{
        Append, ClaimToken, Event, EventStore, Fingerprint, KeyClaim, Page, RedisConfig,
        RedisStore, RequestKey, RequestLedger, Seq, StoreErrorKind, StreamHeader, StreamKey,
    },
};

use crate::{
    field::{Field, until},
    server::{PATIENCE, Server, free_port},
};

struct Cluster {
    nodes: Vec<Server>,
    names: Vec<String>,
}

impl Cluster {
    async fn start() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            let bus = free_port();
            let node = Server::start_with(&[
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus.to_string(),
                "--cluster-node-timeout",
                "5000",
            ]);
            nodes.push((node, bus));
        }
        let ranges = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
        let (first, bus) = (nodes[0].0.port.to_string(), nodes[0].1.to_string());
        for ((node, _), (from, to)) in nodes.iter().zip(ranges) {
            node.command(&["CLUSTER", "ADDSLOTSRANGE", from, to]);
            node.command(&["CLUSTER", "MEET", "127.0.0.1", &first, &bus]);
        }
        let nodes: Vec<_> = nodes.into_iter().map(|(node, _)| node).collect();
        for node in &nodes {
            until("a cluster", async || {
                let info = node.text(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            })
            .await;
        }
        let names = nodes.iter().map(|node| node.text(&["CLUSTER", "MYID"]));
        Self {
            names: names.collect(),
            nodes,
        }
    }

    fn config(&self) -> RedisConfig {
        let mut config = RedisConfig::new(self.nodes[0].url()).with_cluster();
        for node in &self.nodes[1..] {
            config = config.with_address(node.url());
        }
        config
            .with_connect_deadline(PATIENCE)
            .with_response_deadline(PATIENCE)
            .with_deadline(PATIENCE)
    }

    fn slot(&self, key: &str) -> String {
        match self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]) {
            redis::Value::Int(slot) => slot.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// The node that has a slot.
    fn holder(&self, slot: &str) -> usize {
        let slot: u16 = slot.parse().expect("a slot");
        let nodes = self.nodes[0].text(&["CLUSTER", "NODES"]);
        let has = |line: &&str| {
            let mut ranges = line
                .split(' ')
                .skip(8)
                .filter(|range| !range.starts_with('['));
            ranges.any(|range| {
                let (from, to) = range.split_once('-').unwrap_or((range, range));
                let number = |text: &str| text.parse::<u16>().expect("a slot");
                (number(from)..=number(to)).contains(&slot)
            })
        };
        let line = nodes.lines().find(has).expect("somebody has it");
        let name = |name: &String| line.starts_with(name.as_str());
        self.names.iter().position(name).expect("a node")
    }

    /// Moves a slot to the next node, key by key, while it is used.
    fn move_on(&self, slot: &str) {
        let from = self.holder(slot);
        let to = (from + 1) % self.nodes.len();
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        target.command(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &self.names[from]]);
        source.command(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &self.names[to]]);
        loop {
            let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", slot, "10"]);
            let keys: Vec<String> = redis::from_redis_value(keys).expect("keys");
            if keys.is_empty() {
                break;
            }
            let port = target.port.to_string();
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.iter().map(String::as_str));
            source.command(&migrate);
        }
        // Those two first. The rest would hear of it in time, and until then say that it is where it was.
        let others = self.nodes.iter().enumerate();
        let others = others.filter(|(n, _)| *n != from && *n != to);
        for node in [target, source]
            .into_iter()
            .chain(others.map(|(_, node)| node))
        {
            node.command(&["CLUSTER", "SETSLOT", slot, "NODE", &self.names[to]]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slot_of_the_directory_moves() {
    for residency in [Pinned, Externalized] {
        let cluster = Cluster::start().await;
        let mut field = Field::start(cluster.config(), 3, residency).await;
        field.open(4).await;
        let slot = cluster.slot("{mcp-session-guard}:marker");
        let traffic = field.traffic();
        for _ in 0..2 {
            field.goes_on(20, 20).await;
            cluster.move_on(&slot);
            // Another process has it now, so nothing is taken for gone until everybody could speak up.
            field.all_served().await;
            field.settled().await;
            field.all_served().await;
        }
        traffic.stop().await;
        field.history.check(&[]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slot_of_a_log_moves() {
    let cluster = Cluster::start().await;
    let store = RedisStore::connect(cluster.config())
        .await
        .expect("a store");
    let keys: Vec<_> = (0..4).map(key).collect();
    let fence = Fence::new(Incarnation::new(1, 1), 1);
    for key in &keys {
        let header = StreamHeader::new(key.clone(), fence, None, []);
        store.open(&header).await.expect("open");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (keys.iter().cloned())
        .map(|key| {
            let (store, stop) = (store.clone(), Arc::clone(&stop));
            tokio::spawn(async move { produce(&store, &key, &stop).await })
        })
        .collect();
    for _ in 0..3 {
        for key in &keys {
            let name = log_key(&cluster, key);
            cluster.move_on(&cluster.slot(&name));
        }
    }
    stop.store(true, Ordering::Relaxed);
    for (producer, key) in producers.into_iter().zip(&keys) {
        let said = producer.await.expect("a producer");
        let mut after = Seq::START;
        let page = Page {
            events: 100,
            bytes: usize::MAX,
        };
        while after < Seq::new(said) {
            let read = store.read_after(key, after, page).await.expect("a read");
            let read = read.expect("a stream");
            assert_eq!(read.gap, None);
            for event in &read.events {
                after = after.next();
                assert_eq!(event.bytes, event_of(after.get()).bytes);
            }
        }
        assert_eq!(after, Seq::new(said));
    }
}

/// Writes until it is told to stop, each batch until it is acknowledged. Gives the last number.
async fn produce(store: &RedisStore, key: &StreamKey, stop: &AtomicBool) -> u64 {
    let mut said = 0;
    // No more than is kept.
    while !stop.load(Ordering::Relaxed) && said < 4000 {
        let events = [event_of(said + 1), event_of(said + 2)];
        let append = Append {
            key,
            first: Seq::new(said + 1),
            events: &events,
            keep: Seq::new(said + 3),
        };
        match store.append(&append).await {
            Ok(()) => said += 2,
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}"),
        }
    }
    said
}

fn event_of(number: u64) -> Event {
    Event {
        subject: Subject::Nothing,
        bytes: Bytes::from(format!("data: {number}\n\n")),
    }
}

fn key(n: usize) -> StreamKey {
    StreamKey {
        session: SessionId::parse(format!("session-{n}")).expect("an id"),
        epoch: Epoch::mint().expect("randomness"),
        stream: 1,
    }
}

/// Some key of a log, wherever it is.
fn log_key(cluster: &Cluster, key: &StreamKey) -> String {
    let look = || {
        cluster.nodes.iter().find_map(|node| {
            let names = node.command(&["KEYS", &format!("*:m:{}.1", key.epoch)]);
            let names: Vec<String> = redis::from_redis_value(names).expect("keys");
            names.into_iter().next()
        })
    };
    // Each node is asked by itself, so one that has just moved may be missed.
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        match look() {
            Some(name) => return name,
            None => assert!(std::time::Instant::now() < deadline, "the log is nowhere"),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[tokio::test]
async fn keyed_requests_are_spread_and_each_part_recovers_by_itself() {
    let cluster = Cluster::start().await;
    let config = cluster
        .config()
        .with_retry_horizon(std::time::Duration::ZERO);
    let store = RedisStore::connect(config).await.expect("a store");
    let claims = (0..64).map(|n| {
        KeyClaim::new(
            RequestKey::from_bytes([n; 32]),
            Fingerprint::from_bytes([0; 32]),
            ClaimToken::from_u128(u128::from(n)),
            PATIENCE,
        )
    });
    for claim in claims {
        // The first of each part finds that it may have been forgotten.
        until("a claim", async || store.begin(&claim).await.is_ok()).await;
    }
    for node in &cluster.nodes {
        let names: Vec<String> =
            redis::from_redis_value(node.command(&["KEYS", "*:k:*"])).expect("keys");
        assert!(!names.is_empty(), "a node without keys");
    }
}
