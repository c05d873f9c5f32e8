//! The cases of a read: what it gives, page by page, and that all of it is of one moment.

#![allow(missing_docs, reason = "the name of each case says what it checks")]

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use tokio::{runtime::Handle, task::JoinHandle};

use super::{
    EventHarness,
    events::{ALL, Log, ROOMY, event},
};
use crate::store::{Ending, Event, EventStore, Page, Seq, Snapshot};

pub async fn a_read_gives_what_comes_after<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 5).await;
    assert_eq!(log.read(&key, 3).await.events, [event(4), event(5)]);
    let caught_up = log.read(&key, 5).await;
    assert!(caught_up.events.is_empty() && caught_up.subjects.is_empty());
    assert_eq!((caught_up.head, caught_up.gap), (Seq::new(5), None));
}

pub async fn a_reader_ahead_of_the_stream_is_told_its_head<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 5).await;
    let ahead = log.read(&key, 9).await;
    assert!(ahead.events.is_empty() && ahead.subjects.is_empty());
    assert_eq!((ahead.head, ahead.gap), (Seq::new(5), None));
}

pub async fn subjects_reach_beyond_the_page<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 70).await;
    let page = Page { events: 3, ..ALL };
    let snapshot = log.page(&key, 10, page).await.expect("a stream");
    assert_eq!(snapshot.events.len(), 3);
    let told: Vec<_> = snapshot.subjects.iter().map(|told| told.0.get()).collect();
    let about = |number: &u64| matches!(number % 7, 1 | 3 | 5);
    assert_eq!(told, (11..=70).filter(about).collect::<Vec<_>>());
}

pub async fn a_snapshot_is_one_moment<H: EventHarness>() {
    const LAST: u64 = 300;
    let log = Log::<H>::start(ROOMY).await;
    let streams = [log.open(1).await, log.open(2).await];
    let log = Arc::new(log);
    let mut tasks = Vec::new();
    for key in streams.clone() {
        let log = Arc::clone(&log);
        tasks.push(aside(async move {
            let mut next = 1;
            while next <= LAST {
                let last = LAST.min(next + next % 3);
                log.say(&key, next, last).await;
                next = last + 1;
            }
            log.end(&key, LAST).await;
        }));
    }
    for key in streams.iter().cycle().take(4) {
        let (log, key) = (Arc::clone(&log), key.clone());
        tasks.push(aside(async move {
            let (mut after, mut head) = (0, 0);
            loop {
                let page = Page { events: 50, ..ALL };
                // Its events, subjects and head are held against each other there.
                let snapshot = log.page(&key, after, page).await.expect("a stream");
                assert_eq!(snapshot.gap, None);
                assert!(snapshot.head.get() >= head, "the head went back");
                head = snapshot.head.get();
                if let Some(ending) = snapshot.ending {
                    assert_eq!((ending, head), (Ending::Answered, LAST));
                }
                after += snapshot.events.len() as u64;
                if after == LAST && snapshot.ending.is_some() {
                    return;
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task that does not panic");
    }
}

/// Runs beside the test on a thread of its own, whatever the test's runtime.
fn aside(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(task))
}

pub async fn paging_by_events_reads_everything_once<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 50).await;
    for events in [0, 1, 7, 50, 51] {
        let page = Page { events, ..ALL };
        let numbers = log.read_through(&key, 0, page).await;
        assert_eq!(numbers, (1..=50).collect::<Vec<_>>());
    }
}

pub async fn paging_by_bytes_reads_everything_once<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    log.say(&key, 1, 50).await;
    let one = event(50).bytes.len();
    for bytes in [one, one * 5, one * 60] {
        let page = Page { bytes, ..ALL };
        let numbers = log.read_through(&key, 0, page).await;
        assert_eq!(numbers, (1..=50).collect::<Vec<_>>());
        let first = log.page(&key, 0, page).await.expect("a stream");
        assert!(length(&first) <= bytes);
    }
}

pub async fn an_event_that_is_longer_than_the_page_is_read_alone<H: EventHarness>() {
    let (log, key) = Log::<H>::opened().await;
    let long = Event {
        bytes: Bytes::from(vec![b'x'; 10_000]),
        ..event(2)
    };
    let said = [event(1), long.clone(), event(3)];
    log.append(&key, 1, &said, 4).await.expect("append");
    let page = Page {
        events: 10,
        bytes: 500,
    };
    let read = async |after| {
        let read = log.events().read_after(&key, Seq::new(after), page).await;
        read.expect("read_after").expect("a stream").events
    };
    assert_eq!(read(0).await, [event(1)]);
    assert_eq!(read(1).await, [long]);
    assert_eq!(read(2).await, [event(3)]);
}

fn length(snapshot: &Snapshot) -> usize {
    snapshot.events.iter().map(|event| event.bytes.len()).sum()
}
