//! The cases of what is recorded: numbers, gaps, endings, and what comes with them.

#![allow(missing_docs, reason = "the name of each case says what it checks")]

use super::{
    EventHarness,
    events::{ALL, Log, ROOMY, event, fence, header, id, kind},
    session,
};
use crate::{
    session::Epoch,
    store::{Ending, EventStore, Page, Seq, StoreErrorKind, StreamHeader, StreamKey},
};

pub async fn a_log_reads_back_in_order_with_its_header_and_its_ending<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    let fresh = log.read(&key, 0).await;
    assert_eq!((fresh.head, fresh.ending), (Seq::START, None));
    log.say(&key, 1, 1).await;
    log.say(&key, 2, 4).await;
    log.say(&key, 5, 5).await;
    let open = log.read(&key, 0).await;
    assert_eq!((open.events.len(), open.ending), (5, None));
    log.end(&key, 5).await;
    let ended = log.read(&key, 0).await;
    assert_eq!(ended.header, log.header(1));
    assert_eq!((ended.head, ended.gap), (Seq::new(5), None));
    assert_eq!(ended.ending, Some(Ending::Answered));
    assert_eq!(ended.events, (1..=5).map(event).collect::<Vec<_>>());
}

pub async fn a_lost_append_stays_a_gap<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 2).await;
    log.say(&key, 5, 6).await;
    let before = log.read(&key, 0).await;
    assert_eq!(before.events.len(), 2);
    assert_eq!((before.head, before.gap), (Seq::new(6), Some(Seq::new(3))));
    let at = log.read(&key, 3).await;
    assert!(at.events.is_empty());
    assert_eq!(at.gap, Some(Seq::new(4)));
    let beyond = log.read(&key, 4).await;
    assert_eq!((beyond.events.len(), beyond.gap), (2, None));
}

pub async fn a_gap_is_the_first_of_all_the_rest_and_not_only_of_the_page<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 20).await;
    log.say(&key, 22, 30).await;
    log.say(&key, 35, 40).await;
    for (after, gap) in [(0, 21), (15, 21), (20, 21), (21, 31), (25, 31), (32, 33)] {
        let page = Page { events: 2, ..ALL };
        let snapshot = log.page(&key, after, page).await.expect("a stream");
        assert_eq!(snapshot.gap, Some(Seq::new(gap)), "after {after}");
        // No further than the gap.
        let there = (gap - after - 1).min(2) as usize;
        assert_eq!(snapshot.events.len(), there, "after {after}");
    }
    assert_eq!(log.read(&key, 34).await.gap, None);
}

pub async fn a_lost_append_that_comes_late_fills_no_gap<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 2).await;
    log.say(&key, 4, 4).await;
    // Acknowledged or refused: somebody may have been told of the gap already.
    let _ = log.try_say(&key, 3, 3).await;
    assert_eq!(log.read(&key, 0).await.gap, Some(Seq::new(3)));
}

pub async fn a_lost_last_append_stays_a_gap<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 2).await;
    log.end(&key, 4).await;
    let ended = log.read(&key, 0).await;
    assert_eq!((ended.head, ended.gap), (Seq::new(4), Some(Seq::new(3))));
    assert_eq!(log.read(&key, 2).await.gap, Some(Seq::new(3)));
    assert_eq!(log.read(&key, 3).await.gap, Some(Seq::new(4)));
    assert_eq!(log.read(&key, 4).await.gap, None);
    // Of a stream of which nothing was recorded too.
    let silent = log.open(2).await;
    log.end(&silent, 2).await;
    let ended = log.read(&silent, 0).await;
    assert_eq!((ended.head, ended.gap), (Seq::new(2), Some(Seq::new(1))));
}

pub async fn a_repeated_append_is_acknowledged_and_not_written_twice<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    for _ in 0..2 {
        log.say(&key, 1, 3).await;
    }
    log.say(&key, 4, 4).await;
    log.say(&key, 2, 3).await;
    let snapshot = log.read(&key, 0).await;
    assert_eq!(snapshot.events.len(), 4);
    assert_eq!((snapshot.head, snapshot.gap), (Seq::new(4), None));
}

pub async fn an_append_that_is_there_in_part_adds_the_rest<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 3).await;
    log.say(&key, 2, 6).await;
    let snapshot = log.read(&key, 0).await;
    assert_eq!((snapshot.events.len(), snapshot.gap), (6, None));
}

pub async fn a_repeated_open_is_acknowledged<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 3).await;
    log.open(1).await;
    assert_eq!(log.read(&key, 0).await.events.len(), 3);
}

pub async fn a_repeated_end_is_acknowledged<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 3).await;
    for _ in 0..2 {
        log.end(&key, 4).await;
    }
    // Another ending is not the same.
    assert_eq!(kind(log.try_end(&key, 5).await), StoreErrorKind::Fenced);
    let failed = log.events().end(&key, Seq::new(4), Ending::Failed).await;
    assert_eq!(kind(failed), StoreErrorKind::Fenced);
    let snapshot = log.read(&key, 0).await;
    assert_eq!(snapshot.head, Seq::new(4));
    assert_eq!(snapshot.ending, Some(Ending::Answered));
}

pub async fn another_header_under_the_same_key_is_corrupt<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 3).await;
    let told = log.header(1);
    let requests = [id("1")];
    let others = [
        StreamHeader::new(key.clone(), told.fence, told.capabilities, requests),
        StreamHeader::new(key.clone(), told.fence, None, told.requests.clone()),
        header(key.clone(), fence(6)),
    ];
    for other in &others {
        assert_eq!(kind(log.open_as(other).await), StoreErrorKind::Corrupt);
    }
    let snapshot = log.read(&key, 0).await;
    assert_eq!(snapshot.header, told);
    assert_eq!(snapshot.events.len(), 3);
}

pub async fn a_stream_that_is_not_open_takes_nothing<H: EventHarness>() {
    let log = Log::<H>::start(ROOMY).await;
    let key = log.key(1);
    for _ in 0..2 {
        assert_eq!(kind(log.try_say(&key, 1, 1).await), StoreErrorKind::Fenced);
        assert_eq!(kind(log.try_end(&key, 1).await), StoreErrorKind::Fenced);
        assert_eq!(log.page(&key, 0, ALL).await, None);
        // Nor does another stream of its session make a difference.
        log.open(2).await;
    }
}

pub async fn a_stream_that_has_ended_takes_nothing<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 2).await;
    log.end(&key, 2).await;
    assert_eq!(kind(log.try_say(&key, 3, 3).await), StoreErrorKind::Fenced);
    assert_eq!(log.read(&key, 0).await.head, Seq::new(2));
}

pub async fn another_sessions_key_finds_nothing<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 3).await;
    let other = StreamKey {
        session: session("other"),
        ..key.clone()
    };
    assert_eq!(log.page(&other, 0, ALL).await, None);
    let written = log.try_say(&other, 4, 4).await;
    assert_eq!(kind(written), StoreErrorKind::Fenced);
    // One of its own is another stream.
    log.open_as(&header(other.clone(), fence(5)))
        .await
        .expect("open");
    assert_eq!(log.read(&other, 0).await.head, Seq::START);
    assert_eq!(log.read(&key, 0).await.head, Seq::new(3));
}

pub async fn another_epochs_key_finds_nothing<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 3).await;
    let other = StreamKey {
        epoch: Epoch::mint().expect("randomness"),
        ..key.clone()
    };
    assert_eq!(log.page(&other, 0, ALL).await, None);
    let written = log.try_say(&other, 4, 4).await;
    assert_eq!(kind(written), StoreErrorKind::Fenced);
    log.open_as(&header(other.clone(), fence(6)))
        .await
        .expect("open");
    log.say(&other, 1, 1).await;
    assert_eq!(log.read(&other, 0).await.head, Seq::new(1));
    assert_eq!(log.read(&key, 0).await.head, Seq::new(3));
}

pub async fn events_and_context_come_together<H: EventHarness>() {
    let log = Log::<H>::start(ROOMY).await;
    let strange = ["null", "-1.5e3", "\"\\u0000 \\\"quoted\\\"\"", "\"\""];
    let mut told = log.header(1);
    told.requests = strange.map(id).into();
    log.open_as(&told).await.expect("open");
    log.say(&told.key, 1, 10).await;
    let snapshot = log.read(&told.key, 0).await;
    assert_eq!(snapshot.header, told);
    assert_eq!(snapshot.events.len(), 10);
    // A standalone stream answers nothing, and a handshake may not have been seen.
    let bare = StreamHeader::new(log.key(2), fence(5), None, []);
    log.open_as(&bare).await.expect("open");
    assert_eq!(log.read(&bare.key, 0).await.header, bare);
}
