//! A producer, clients that come back and take over from each other, and a log: every event once and in order,
//! whatever the order in which they run.
//!
//! Under `--cfg shuttle` each test is run under many schedules, one of them at a time; otherwise on real threads.

use std::{future::poll_fn, sync::Arc, task::Poll};

use bytes::Bytes;

use super::{
    Bounds, Chunk, Stream,
    batch::{Numbering, Prefix},
    sync::{Mutex, PoisonError},
    window::Taken,
};
use crate::{
    session::{Epoch, Fence, Incarnation, SessionId},
    store::{Ending, Seq, StreamHeader, StreamKey},
};

#[cfg(shuttle)]
use shuttle::{future::block_on, thread};
#[cfg(not(shuttle))]
use {std::thread, tokio_test::block_on};

fn check(test: impl Fn() + Send + Sync + 'static) {
    #[cfg(shuttle)]
    {
        shuttle::check_random(test, 3000);
    }
    #[cfg(not(shuttle))]
    for _ in 0..200 {
        test();
    }
}

const EVENTS: u64 = 12;

/// A stream with a window of three events, a client may be behind by six, and the log of what was recorded.
struct World {
    stream: Stream,
    log: Mutex<Vec<u64>>,
}

impl World {
    fn new() -> Arc<Self> {
        let key = StreamKey {
            session: SessionId::parse("s").expect("an id"),
            epoch: Epoch::from_u128(1),
            stream: 1,
        };
        let fence = Fence::new(Incarnation::new(1, 1), 1);
        let bounds = Bounds { window: 3, lag: 6 };
        let numbering = Numbering::new(&Prefix::new(key.epoch), key.stream, None);
        let header = StreamHeader::new(key, fence, None, Vec::new());
        let stream = Stream::new(header, numbering, bounds);
        stream.opened(true);
        Arc::new(Self {
            stream,
            log: Mutex::default(),
        })
    }

    fn logged(&self, after: u64, up_to: u64) -> Vec<u64> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = |number: &&u64| (after + 1..=up_to).contains(*number);
        log.iter().filter(wanted).copied().collect()
    }

    /// Publishes event after event, one byte each and none of which is `unlogged`.
    async fn produce(&self, unlogged: impl Fn(u64) -> bool) {
        for number in 1..=EVENTS {
            poll_fn(|cx| match self.stream.demand(cx.waker()).room {
                0 => Poll::Pending,
                _ => Poll::Ready(()),
            })
            .await;
            let logged = !unlogged(number);
            if logged {
                let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
                log.push(number);
            }
            let mut chunk = Some(Chunk {
                first: Seq::new(number),
                bytes: Bytes::from_static(b"."),
                ends: Box::default(),
                answers: Default::default(),
                logged,
            });
            poll_fn(|cx| {
                let refused = chunk
                    .take()
                    .and_then(|chunk| self.stream.publish(chunk, cx.waker()).err());
                match refused {
                    None => Poll::Ready(()),
                    refused => {
                        chunk = refused;
                        Poll::Pending
                    }
                }
            })
            .await;
        }
        self.stream.end(Ending::Answered);
    }

    /// Reads from `next` on, at most `limit` events, and gives their numbers.
    async fn consume(&self, mut next: u64, limit: usize) -> Vec<u64> {
        let generation = self.stream.attach(Some(Seq::new(next)));
        let mut read = Vec::new();
        while read.len() < limit {
            let taken = poll_fn(|cx| match self.stream.take(generation, cx.waker()) {
                Taken::Wait => Poll::Pending,
                taken => Poll::Ready(taken),
            });
            match taken.await {
                Taken::Chunk(chunk) => {
                    read.extend(chunk.first.get()..chunk.end().get());
                    next = chunk.end().get();
                }
                Taken::Behind => {
                    let page = self.logged(next - 1, self.stream.head().get());
                    assert_eq!(
                        page.first(),
                        Some(&next),
                        "what is not in the window is in the log"
                    );
                    let page = &page[..page.len().min(2)];
                    read.extend(page);
                    next += page.len() as u64;
                    let lengths = page.iter().map(|_| 1);
                    self.stream.advance(generation, Seq::new(next), lengths);
                }
                Taken::Ended(_) | Taken::Superseded => break,
                Taken::Aside(_) | Taken::Wait => {}
            }
        }
        self.stream.detach(generation);
        read
    }
}

fn spawn<T: Send + 'static>(
    world: &Arc<World>,
    run: impl FnOnce(&World) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let world = Arc::clone(world);
    thread::spawn(move || run(&world))
}

fn in_order(read: &[u64], from: u64) {
    let expected: Vec<u64> = (from..from + read.len() as u64).collect();
    assert_eq!(read, expected);
}

#[test]
fn a_client_that_comes_back_again_and_again_reads_each_event_once() {
    check(|| {
        let world = World::new();
        let producer = spawn(&world, |world| block_on(world.produce(|_| false)));
        let client = spawn(&world, |world| {
            let mut read = Vec::new();
            for limit in [1, 3, 2, usize::MAX] {
                let next = read.len() as u64 + 1;
                read.extend(block_on(world.consume(next, limit)));
            }
            read
        });
        producer.join().expect("produced");
        let read = client.join().expect("read");
        in_order(&read, 1);
        assert_eq!(read.len() as u64, EVENTS);
    });
}

#[test]
fn clients_that_take_over_from_each_other_read_in_order_and_the_last_to_the_end() {
    check(|| {
        let world = World::new();
        let producer = spawn(&world, |world| block_on(world.produce(|_| false)));
        let first = spawn(&world, |world| block_on(world.consume(1, usize::MAX)));
        let second = spawn(&world, |world| block_on(world.consume(1, usize::MAX)));
        producer.join().expect("produced");
        let first = first.join().expect("read");
        let second = second.join().expect("read");
        in_order(&first, 1);
        in_order(&second, 1);
        assert_eq!(first.len().max(second.len()) as u64, EVENTS);
    });
}

#[test]
fn what_is_in_no_log_is_not_lost_to_a_client_that_is_there() {
    check(|| {
        let world = World::new();
        // Attached before anything is said: a client that is behind cannot be helped from a log that has nothing.
        let producer = {
            let generation = world.stream.attach(None);
            let client = spawn(&world, move |world| {
                let mut read = Vec::new();
                loop {
                    let taken = block_on(poll_fn(|cx| {
                        match world.stream.take(generation, cx.waker()) {
                            Taken::Wait => Poll::Pending,
                            taken => Poll::Ready(taken),
                        }
                    }));
                    match taken {
                        Taken::Chunk(chunk) => read.push(chunk.first.get()),
                        Taken::Ended(_) => return read,
                        other => panic!("{other:?}"),
                    }
                }
            });
            let producer = spawn(&world, |world| block_on(world.produce(|_| true)));
            let read = client.join().expect("read");
            in_order(&read, 1);
            assert_eq!(read.len() as u64, EVENTS);
            producer
        };
        producer.join().expect("produced");
    });
}

#[test]
fn a_producer_does_not_wait_for_a_client_that_has_left() {
    check(|| {
        let world = World::new();
        let producer = spawn(&world, |world| {
            block_on(world.produce(|number| number.is_multiple_of(2)));
        });
        let client = spawn(&world, |world| {
            let generation = world.stream.attach(None);
            world.stream.detach(generation);
        });
        client.join().expect("left");
        producer.join().expect("produced to the end");
        assert_eq!(world.stream.head().get(), EVENTS);
    });
}
