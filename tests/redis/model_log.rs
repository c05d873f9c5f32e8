//! Logs and the ledger on Redis say what the embedded ones say, whatever is asked of both in whatever order. Retention is
//! not asked for here: Redis takes more at a time.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use mcp_session_guard::{
    clock::ManualClock,
    mcp::{RequestId, Subject},
    session::{Epoch, Fence, Incarnation, SessionId},
    store::{
        Append, ClaimToken, Ending, Event, EventStore, Fingerprint, KeyClaim, MemoryConfig,
        MemoryStore, Origin, Outcome, Page, RedisStore, Reply, RequestKey, RequestLedger, Seq,
        Snapshot, StoreErrorKind, StreamHeader, StreamKey,
    },
};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestRunner},
};

use crate::{
    model::{both, equal},
    server::Server,
};

type Outcomes = Result<(), TestCaseError>;

fn run<T: std::fmt::Debug>(
    ops: impl Strategy<Value = T>,
    test: &impl AsyncFn(&Server, &T) -> Outcomes,
) {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let config = Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let told = TestRunner::new(config).run(&ops, |ops| runtime.block_on(test(&server, &ops)));
    if let Err(error) = told {
        panic!("{error}");
    }
}

#[derive(Debug, Clone)]
enum OnLog {
    Open(u64, u64),
    Append(u64, u64, u64),
    End(u64, u64, bool),
    Read(u64, u64, usize, usize),
    Seal(u64),
}

fn on_log() -> impl Strategy<Value = OnLog> {
    let (stream, number) = (0..3u64, 0..60u64);
    let count = prop_oneof![8 => 0..6u64, 1 => 60..200u64];
    prop_oneof![
        3 => (stream.clone(), 3..7u64).prop_map(|(stream, fence)| OnLog::Open(stream, fence)),
        10 => (stream.clone(), 1..60u64, count).prop_map(|(stream, first, count)| OnLog::Append(stream, first, count)),
        1 => (stream.clone(), number.clone(), any::<bool>()).prop_map(|(stream, last, well)| OnLog::End(stream, last, well)),
        8 => (stream, number, 0..80usize, 0..3000usize).prop_map(|(stream, after, events, bytes)| OnLog::Read(stream, after, events, bytes)),
        1 => (3..7u64).prop_map(OnLog::Seal),
    ]
}

fn fence(counter: u64) -> Fence {
    Fence::new(Incarnation::new(1, 1), counter)
}

fn event(number: u64) -> Event {
    let id = || RequestId::from_json(&format!("\"{number}\"")).expect("an id");
    Event {
        subject: match number % 5 {
            1 => Subject::Answer(id()),
            2 => Subject::Batch([Subject::Question(id()), Subject::Nothing].into()),
            _ => Subject::Nothing,
        },
        bytes: Bytes::from(format!("{number} {}", "-".repeat((number % 90) as usize))),
    }
}

#[test]
fn its_logs_say_what_the_embedded_ones_say() {
    run(vec(on_log(), 1..60), &async |server, ops| {
        let memory = MemoryStore::new();
        // Each case has keys of its own.
        let epoch = Epoch::mint().expect("randomness");
        let session = SessionId::parse(format!("s-{epoch}")).expect("an id");
        let redis = server.store().await;
        for op in ops {
            on_both_logs(&memory, &redis, &session, epoch, op).await?;
        }
        Ok(())
    });
}

async fn on_both_logs(
    memory: &MemoryStore,
    redis: &RedisStore,
    session: &SessionId,
    epoch: Epoch,
    op: &OnLog,
) -> Outcomes {
    let key = |stream: &u64| StreamKey {
        session: session.clone(),
        epoch,
        stream: *stream,
    };
    match op {
        OnLog::Open(stream, counter) => {
            let requests = [RequestId::from_json("1.0").expect("an id")];
            let header = StreamHeader::new(key(stream), fence(*counter), None, requests);
            equal(memory.open(&header).await, redis.open(&header).await)
        }
        OnLog::Append(stream, first, count) => {
            let events: Vec<_> = (*first..first + count).map(event).collect();
            let append = Append {
                key: &key(stream),
                first: Seq::new(*first),
                events: &events,
                keep: Seq::new(first + count),
            };
            equal(memory.append(&append).await, redis.append(&append).await)
        }
        OnLog::End(stream, last, well) => {
            let ending = if *well {
                Ending::Answered
            } else {
                Ending::Failed
            };
            let (key, last) = (key(stream), Seq::new(*last));
            equal(
                memory.end(&key, last, ending).await,
                redis.end(&key, last, ending).await,
            )
        }
        OnLog::Read(stream, after, events, bytes) => {
            let (key, after) = (key(stream), Seq::new(*after));
            let page = Page {
                events: *events,
                bytes: *bytes,
            };
            let read = both(
                memory.read_after(&key, after, page).await,
                redis.read_after(&key, after, page).await,
            )?;
            match read {
                Some((Some(m), Some(r))) => same(&m, &r),
                Some((m, r)) => {
                    prop_assert_eq!(m, r);
                    Ok(())
                }
                None => Ok(()),
            }
        }
        OnLog::Seal(below) => equal(
            memory.seal(session, fence(*below)).await,
            redis.seal(session, fence(*below)).await,
        ),
    }
}

fn same(memory: &Snapshot, redis: &Snapshot) -> Outcomes {
    prop_assert_eq!(&memory.header, &redis.header);
    prop_assert_eq!(
        (memory.head, memory.ending, memory.gap),
        (redis.head, redis.ending, redis.gap)
    );
    prop_assert_eq!(&memory.subjects, &redis.subjects);
    // A page may be a little smaller, where it begins within a piece.
    prop_assert!(
        memory.events.starts_with(&redis.events),
        "{:?}",
        redis.events
    );
    prop_assert_eq!(memory.events.is_empty(), redis.events.is_empty());
    Ok(())
}

#[derive(Debug, Clone)]
enum OnLedger {
    Begin(Asked),
    Renew(Asked),
    Complete(Asked, u8),
    Release(Asked),
    Pass(u64),
    Loses,
}

/// A claim: key, fingerprint, token, origin, lease, and whether it may run again.
type Asked = (u8, u8, u128, Option<u8>, u64, bool);

fn on_ledger() -> impl Strategy<Value = OnLedger> {
    let asked = || {
        let origin = proptest::option::of(0..2u8);
        (0..2u8, 0..2u8, 0..4u128, origin, 1..8u64, any::<bool>())
    };
    prop_oneof![
        8 => asked().prop_map(OnLedger::Begin),
        3 => asked().prop_map(OnLedger::Renew),
        4 => (asked(), 0..4u8).prop_map(|(asked, outcome)| OnLedger::Complete(asked, outcome)),
        2 => asked().prop_map(OnLedger::Release),
        4 => (1..12u64).prop_map(OnLedger::Pass),
        1 => Just(OnLedger::Loses),
    ]
}

fn claim((key, what, token, origin, lease, again): &Asked) -> KeyClaim {
    KeyClaim::new(
        RequestKey::from_bytes([*key; 32]),
        Fingerprint::from_bytes([*what; 32]),
        ClaimToken::from_u128(*token),
        Duration::from_secs(*lease),
    )
    .with_origin(origin.map(|origin| Origin::from_bytes([origin; 32])))
    .with_may_run_again(*again)
}

#[test]
fn its_ledger_says_what_the_embedded_one_says() {
    // Nothing is over in a case: the embedded ledger finds out when it next comes by, and until then says otherwise.
    const OUTCOMES: Duration = Duration::from_secs(100_000);
    const HORIZON: Duration = Duration::from_secs(10);
    run(vec(on_ledger(), 1..60), &async |server, ops| {
        server.command(&["FLUSHALL"]);
        let config = server
            .config()
            .with_outcomes(OUTCOMES)
            .with_retry_horizon(HORIZON);
        let redis = RedisStore::connect(config).await.expect("a store");
        let clock = Arc::new(ManualClock::new());
        let config = MemoryConfig::default()
            .with_outcomes(OUTCOMES)
            .with_retry_horizon(HORIZON);
        let memory = MemoryStore::with_clock(config, Arc::clone(&clock));
        begin(&redis).await;
        server.pass_in_ledger(HORIZON);
        let mut lost = false;
        for op in ops {
            match op {
                // While it recovers the embedded ledger forgets a spent token as soon as anybody else asks for its key.
                OnLedger::Release(_) if lost => {}
                OnLedger::Begin(asked) => {
                    let claim = claim(asked);
                    equal(memory.begin(&claim).await, redis.begin(&claim).await)?;
                }
                OnLedger::Renew(asked) => {
                    let claim = claim(asked);
                    equal(memory.renew(&claim).await, redis.renew(&claim).await)?;
                }
                OnLedger::Complete(asked, outcome) => {
                    let (claim, text) = (claim(asked), Bytes::from_static(b"{\"a\":1}"));
                    let outcome = match outcome {
                        0 => Outcome::Reply(Reply::Result(text)),
                        1 => Outcome::Reply(Reply::Error(text)),
                        2 => Outcome::TooLarge,
                        _ => Outcome::Unknown,
                    };
                    equal(
                        memory.complete(&claim, &outcome).await,
                        redis.complete(&claim, &outcome).await,
                    )?;
                }
                OnLedger::Release(asked) => {
                    let mut claim = claim(asked);
                    claim.lease = OUTCOMES;
                    equal(memory.release(&claim).await, redis.release(&claim).await)?;
                }
                OnLedger::Pass(seconds) => {
                    let time = Duration::from_secs(*seconds);
                    clock.advance(time);
                    server.pass_in_ledger(time);
                }
                OnLedger::Loses => {
                    lost = true;
                    memory.lose_memory();
                    server.command(&["FLUSHALL"]);
                    begin(&redis).await;
                }
            }
        }
        Ok(())
    });
}

/// Has the present incarnation begin, since no time passes before.
async fn begin(redis: &RedisStore) {
    let nobody = claim(&(255, 0, 0, None, 1, false));
    let recovering = redis.begin(&nobody).await.unwrap_err().kind();
    assert_eq!(recovering, StoreErrorKind::Recovering);
}
