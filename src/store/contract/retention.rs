//! The cases of what is kept: what goes first, and what does not go.

#![allow(missing_docs, reason = "the name of each case says what it checks")]

use super::{
    EventHarness, EventRetention,
    events::{AGE, ALL, Log, ROOMY, event, kind},
};
use crate::store::{Page, Seq, StoreErrorKind, StreamKey};

/// Far below what a few hundred events take.
const FEW: EventRetention = EventRetention {
    events: 100,
    ..ROOMY
};

pub async fn retention_by_events_takes_from_the_front<H: EventHarness>() {
    takes_from_the_front::<H>(FEW).await;
}

pub async fn retention_by_bytes_takes_from_the_front<H: EventHarness>() {
    let bytes = 100 * event(1).bytes.len();
    takes_from_the_front::<H>(EventRetention { bytes, ..ROOMY }).await;
}

/// With room for about a hundred events.
async fn takes_from_the_front<H: EventHarness>(retention: EventRetention) {
    let log = Log::<H>::start(retention).await;
    let key = log.open(1).await;
    for n in 0..100 {
        log.say(&key, n * 10 + 1, n * 10 + 10).await;
    }
    // What is left is told first, since a reader keeps what comes after it.
    let there = log.read(&key, 980).await;
    assert_eq!((there.events.len(), there.gap), (20, None));
    for after in [0, 500] {
        let gone = log.read(&key, after).await;
        assert!(gone.events.is_empty());
        assert_eq!(gone.gap, Some(Seq::new(after + 1)));
        assert_eq!(gone.head, Seq::new(1000));
    }
}

pub async fn retention_by_time_takes_from_the_front<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 3).await;
    log.harness.pass(AGE * 2).await;
    log.say(&key, 4, 5).await;
    let there = log.read(&key, 3).await;
    assert_eq!((there.events.len(), there.gap), (2, None));
    assert_eq!(log.read(&key, 0).await.gap, Some(Seq::new(1)));
}

pub async fn retention_takes_the_oldest_whatever_the_stream<H: EventHarness>() {
    let log = Log::<H>::start(FEW).await;
    let [old, busy] = [log.open(1).await, log.open(2).await];
    log.say(&old, 1, 50).await;
    fill(&log, &busy, 1).await;
    assert_eq!(log.read(&old, 49).await.gap, Some(Seq::new(50)));
    // And what is said on it now is newer.
    log.say(&old, 51, 51).await;
    log.say(&busy, 1001, 1010).await;
    assert_eq!(log.read(&old, 50).await.events.len(), 1);
}

/// Says a thousand events from `first` on, and nobody is behind.
async fn fill<H: EventHarness>(log: &Log<H>, key: &StreamKey, first: u64) {
    for n in 0..100 {
        log.say(key, first + n * 10, first + n * 10 + 9).await;
    }
}

pub async fn retention_leaves_what_the_producer_keeps<H: EventHarness>() {
    let log = Log::<H>::start(FEW).await;
    let key = log.open(1).await;
    log.say(&key, 1, 10).await;
    // A client is behind from the sixth on, until there is no more room.
    let mut said = 10;
    let refused = loop {
        let events = [event(said + 1), event(said + 2)];
        match log.append(&key, said + 1, &events, 6).await {
            Ok(()) => said += 2,
            Err(error) => break error.kind(),
        }
        assert!(said < 1000, "more is kept than there is room for");
    };
    assert_eq!(refused, StoreErrorKind::Full);
    // Another stream of the session has none either, and takes none.
    let other = log.open(2).await;
    assert_eq!(kind(log.try_say(&other, 1, 50).await), StoreErrorKind::Full);
    let numbers = log.read_through(&key, 5, ALL).await;
    assert_eq!(numbers, (6..=said).collect::<Vec<_>>());
    // It has read on. What had no room stays a gap.
    log.append(&key, said + 3, &[event(said + 3)], said + 3)
        .await
        .expect("append");
    let gap = log.read(&key, said).await.gap;
    assert_eq!(gap, Some(Seq::new(said + 1)));
    fill(&log, &other, 1).await;
}

pub async fn an_end_lets_go_of_what_the_producer_kept<H: EventHarness>() {
    let log = Log::<H>::start(FEW).await;
    let [ended, busy] = [log.open(1).await, log.open(2).await];
    let events: Vec<_> = (1..=50).map(event).collect();
    log.append(&ended, 1, &events, 1).await.expect("append");
    log.end(&ended, 50).await;
    fill(&log, &busy, 1).await;
    // It may be gone as a whole.
    if let Some(snapshot) = log.page(&ended, 0, ALL).await {
        assert_eq!(snapshot.gap, Some(Seq::new(1)));
    }
}

pub async fn retention_leaves_what_a_reader_has_yet_to_read<H: EventHarness>() {
    let log = Log::<H>::start(FEW).await;
    let [read, busy] = [log.open(1).await, log.open(2).await];
    log.say(&read, 1, 50).await;
    let page = Page { events: 5, ..ALL };
    log.page(&read, 5, page).await.expect("a stream");
    // That is the producer's end, and not the reader's.
    log.end(&read, 50).await;
    let mut next = 1;
    fill(&log, &busy, next).await;
    for after in [5, 10, 15, 40] {
        next += 1000;
        let snapshot = log.page(&read, after, page).await.expect("a stream");
        assert_eq!((snapshot.events.len(), snapshot.gap), (5, None));
        // Older than an event is kept, but not than it was last read.
        log.harness.pass(AGE / 2).await;
        fill(&log, &busy, next).await;
    }
    let rest = log.read(&read, 45).await;
    assert_eq!((rest.events.len(), rest.gap), (5, None));
    assert!(rest.ending.is_some());
}

pub async fn what_nobody_came_back_for_is_held_no_longer<H: EventHarness>() {
    let log = Log::<H>::start(FEW).await;
    let [left, busy] = [log.open(1).await, log.open(2).await];
    let events: Vec<_> = (1..=50).map(event).collect();
    log.append(&left, 1, &events, 1).await.expect("append");
    log.read(&left, 10).await;
    log.harness.pass(AGE * 2).await;
    fill(&log, &busy, 1).await;
    assert_eq!(log.read(&left, 10).await.gap, Some(Seq::new(11)));
}

pub async fn a_stream_that_is_over_goes_as_a_whole<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 3).await;
    log.end(&key, 3).await;
    log.harness.pass(AGE * 2).await;
    assert_eq!(log.page(&key, 3, ALL).await, None);
}

pub async fn a_stream_that_is_open_outlives_its_events<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 3).await;
    log.harness.pass(AGE * 2).await;
    let snapshot = log.read(&key, 3).await;
    assert_eq!(snapshot.header, log.header(1));
    assert_eq!((snapshot.head, snapshot.gap), (Seq::new(3), None));
    log.say(&key, 4, 4).await;
    assert_eq!(log.read(&key, 3).await.events.len(), 1);
}

pub async fn a_session_with_no_more_room_for_streams_says_so<H: EventHarness>() {
    let streams = 4;
    let log = Log::<H>::start(EventRetention { streams, ..ROOMY }).await;
    let mut open = Vec::new();
    let refused = loop {
        let stream = open.len() as u64 + 1;
        match log.open_as(&log.header(stream)).await {
            Ok(()) => open.push(log.key(stream)),
            Err(error) => break error.kind(),
        }
        assert!(open.len() < 50, "there is always room for another");
    };
    assert_eq!(refused, StoreErrorKind::Full);
    assert!(open.len() >= streams);
    // None of them had to make place.
    for key in &open {
        log.say(key, 1, 2).await;
    }
    // One that is over and has nothing that is yet to be read does.
    log.end(&open[0], 2).await;
    let new = log.open(100).await;
    log.say(&new, 1, 2).await;
    for key in &open[1..] {
        log.say(key, 3, 3).await;
        assert_eq!(log.read(key, 0).await.events.len(), 3);
    }
}
