//! What is found under a key and is not what was put there.

use mcp_session_guard::{
    session::{Epoch, Fence, Incarnation, InstanceId, Residency::Pinned, SessionId, SessionTerms},
    store::{
        Claim, EventStore, Lookup, Page, RedisStore, Seq, SessionDirectory, StoreErrorKind,
        StreamHeader, StreamKey,
    },
};

use crate::{field::LEASE, server::Server};

const CORRUPT: StoreErrorKind = StoreErrorKind::Corrupt;

fn id(text: &str) -> SessionId {
    SessionId::parse(text).expect("an id")
}

/// The keys with this pattern, of which there is one.
fn key(server: &Server, pattern: &str) -> String {
    let keys = server.command(&["KEYS", pattern]);
    let keys: Vec<String> = redis::from_redis_value(keys).expect("keys");
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.into_iter().next().expect("one")
}

async fn registered(server: &Server, name: &'static str) -> (RedisStore, InstanceId, String) {
    let config = server.config().with_prefix(name).with_max_lease(LEASE);
    let store = RedisStore::connect(config).await.expect("a store");
    let who = InstanceId::new("i", Epoch::mint().expect("randomness"));
    store.claim(&Claim::new(&who, LEASE)).await.expect("claim");
    let terms = SessionTerms::new(Pinned);
    store
        .register(&id(name), &who, &terms)
        .await
        .expect("register");
    let found = store.lookup(&id(name)).await.expect("lookup");
    assert!(matches!(found, Lookup::Owned { .. }));
    let key = key(server, &format!("{{{name}}}:s:*"));
    (store, who, key)
}

#[tokio::test]
async fn a_record_that_cannot_be_read_or_is_anothers_is_no_answer() {
    let server = Server::start();
    let (store, who, key) = registered(&server, "one").await;
    let (_, _, other) = registered(&server, "other").await;
    let own = server.text(&["GET", &key]);
    let strange = [
        String::new(),
        "1".to_owned(),
        "garbage".to_owned(),
        own.replacen('1', "2", 1),
        own[..150].to_owned(),
        own[..own.len() - 3].to_owned(),
        // Of the same owner, so that only what it says of itself tells.
        own.replace(r#""id":"one""#, r#""id":"two""#),
        server.text(&["GET", &other]),
    ];
    for text in &strange {
        server.command(&["SET", &key, text]);
        let found = store.lookup(&id("one")).await;
        match found {
            Err(error) if error.kind() == CORRUPT => {}
            // Whoever owns the other one has no lease in this directory.
            Err(error) if error.kind() == StoreErrorKind::Recovering => {
                assert!(text == &strange[7]);
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    server.command(&["DEL", &key]);
    server.command(&["LPUSH", &key, "a list"]);
    assert_eq!(store.lookup(&id("one")).await.unwrap_err().kind(), CORRUPT);
    let terms = SessionTerms::new(Pinned);
    let registered = store.register(&id("one"), &who, &terms).await;
    assert_eq!(registered.unwrap_err().kind(), CORRUPT);
}

#[tokio::test]
async fn the_log_of_another_stream_is_no_answer() {
    let server = Server::start();
    let store = server.store().await;
    let stream = |session: &str| StreamKey {
        session: id(session),
        epoch: Epoch::from_u128(7),
        stream: 1,
    };
    let fence = Fence::new(Incarnation::new(1, 1), 1);
    for session in ["one", "other"] {
        let header = StreamHeader::new(stream(session), fence, None, []);
        store.open(&header).await.expect("open");
    }
    let heads = server.command(&["KEYS", "*:m:*"]);
    let heads: Vec<String> = redis::from_redis_value(heads).expect("keys");
    server.command(&["COPY", &heads[0], &heads[1], "REPLACE"]);
    let page = Page {
        events: 1,
        bytes: 1,
    };
    let mut corrupt = 0;
    for session in ["one", "other"] {
        match store.read_after(&stream(session), Seq::START, page).await {
            Err(error) => {
                assert_eq!(error.kind(), CORRUPT);
                corrupt += 1;
            }
            Ok(read) => assert_eq!(read.expect("a stream").header.key, stream(session)),
        }
    }
    assert_eq!(corrupt, 1);
}
