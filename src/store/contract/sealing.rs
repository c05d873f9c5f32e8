//! The cases of the seal: what no older producer does any more, and what stays.

#![allow(missing_docs, reason = "the name of each case says what it checks")]

use super::{
    EventHarness,
    events::{Log, ROOMY, fence, header, kind},
    session,
};
use crate::{
    session::{Fence, Incarnation},
    store::{EventStore, Seq, StoreErrorKind, StreamKey},
};

pub async fn a_seal_refuses_whatever_is_below_it<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 2).await;
    for _ in 0..2 {
        log.seal(fence(6)).await;
        assert_eq!(kind(log.try_say(&key, 3, 3).await), StoreErrorKind::Fenced);
        assert_eq!(kind(log.try_end(&key, 2).await), StoreErrorKind::Fenced);
        let opened = log.open_as(&log.header(2)).await;
        assert_eq!(kind(opened), StoreErrorKind::Fenced);
    }
    // A fence of an older incarnation is below too, however often it was granted.
    log.seal(Fence::new(Incarnation::new(2, 0), 1)).await;
    let opened = log.open_as(&header(log.key(3), fence(1000))).await;
    assert_eq!(kind(opened), StoreErrorKind::Fenced);
}

pub async fn a_seal_refuses_neither_its_own_fence_nor_a_newer_one<H: EventHarness>() {
    let (log, own) = Log::<H>::opened().await;
    log.seal(fence(5)).await;
    log.say(&own, 1, 1).await;
    log.open(2).await;
    let newer = log.key(3);
    log.open_as(&header(newer.clone(), fence(6)))
        .await
        .expect("open");
    log.say(&newer, 1, 1).await;
    for key in [&own, &newer] {
        log.end(key, 1).await;
        assert!(log.read(key, 0).await.ending.is_some());
    }
}

pub async fn what_was_written_below_a_seal_stays_readable<H: EventHarness>() {
    let log = Log::<H>::start(ROOMY).await;
    let (open, over) = (log.open(1).await, log.open(2).await);
    for key in [&open, &over] {
        log.say(key, 1, 3).await;
    }
    log.end(&over, 3).await;
    log.seal(fence(6)).await;
    for (key, ended) in [(&open, false), (&over, true)] {
        let snapshot = log.read(key, 1).await;
        assert_eq!((snapshot.events.len(), snapshot.gap), (2, None));
        assert_eq!(snapshot.ending.is_some(), ended);
    }
}

pub async fn a_seal_never_goes_back<H: EventHarness>() {
    let log = Log::<H>::start(ROOMY).await;
    for below in [7, 6, 3] {
        log.seal(fence(below)).await;
    }
    let refused = log.open_as(&header(log.key(1), fence(6))).await;
    assert_eq!(kind(refused), StoreErrorKind::Fenced);
    let opened = log.open_as(&header(log.key(2), fence(7))).await;
    opened.expect("open");
}

pub async fn a_seal_is_one_sessions<H: EventHarness>() {
    let (log, _) = Log::<H>::opened().await;
    let other = StreamKey {
        session: session("other"),
        ..log.key(1)
    };
    log.open_as(&header(other.clone(), fence(5)))
        .await
        .expect("open");
    log.seal(fence(6)).await;
    log.say(&other, 1, 1).await;
    log.end(&other, 1).await;
    assert_eq!(log.read(&other, 0).await.head, Seq::new(1));
}

pub async fn a_seal_comes_before_any_stream<H: EventHarness>() {
    let log = Log::<H>::start(ROOMY).await;
    let unheard_of = log.events().seal(&session("unheard-of"), fence(1)).await;
    unheard_of.expect("seal");
    log.seal(fence(6)).await;
    let opened = log.open_as(&log.header(1)).await;
    assert_eq!(kind(opened), StoreErrorKind::Fenced);
}
