//! Who polls a stream's pump: the client's body as long as it asks for more, and else a task.
//!
//! While a body's last answer was "nothing yet", a wake leads to another poll, and the pump is polled there, where the
//! event goes out: no task is made for it, and no other thread is woken. A body that has just given something is
//! promised no other poll, since its connection may be full. A wake at that time moves the pump to a task of its own,
//! and there it stays; so does the body's end.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
};

use futures_util::task::{ArcWake, waker_ref};
use tokio::runtime::Handle;

use super::sync::{Mutex, MutexGuard, PoisonError};

pub(super) type Pumping = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What makes tasks.
pub(super) trait Spawn: Send + Sync + 'static {
    fn spawn(&self, pumping: Pumping);
}

impl Spawn for Handle {
    fn spawn(&self, pumping: Pumping) {
        // Nobody waits for its end.
        drop(Handle::spawn(self, pumping));
    }
}

/// A pump and its present whereabouts. Its own waker is the one that the pump is polled with.
pub(super) struct Driver<S = Handle> {
    state: Mutex<State>,
    runtime: S,
}

struct State {
    /// None while it is polled, and once it is done or has a task of its own.
    pump: Option<Pumping>,
    /// It wants to be polled.
    woken: bool,
    client: Client,
    /// Whom to wake for another poll; kept over several.
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// It may never ask again.
    Away,
    /// It is polling the pump right now.
    Polling,
    /// It was told that there is nothing yet.
    Listening,
    /// The pump needs it no more.
    Relieved,
}

impl<S: Spawn> Driver<S> {
    /// Polls the pump for the first time, so that it goes on even if nobody asks for anything.
    pub(super) fn start(pump: Pumping, runtime: S) -> Arc<Self> {
        let driver = Arc::new(Self {
            state: Mutex::new(State {
                pump: Some(pump),
                woken: true,
                client: Client::Away,
                waker: None,
            }),
            runtime,
        });
        driver.drive();
        driver.away();
        driver
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the pump if it wants to be. To be followed by one of the others.
    pub(super) fn drive(self: &Arc<Self>) {
        let mut state = self.state();
        if !state.woken {
            return;
        }
        let Some(mut pump) = state.pump.take() else {
            return;
        };
        state.woken = false;
        state.client = Client::Polling;
        drop(state);
        let waker = waker_ref(self);
        if pump
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            drop(pump);
            self.release(self.state());
        } else {
            self.state().pump = Some(pump);
        }
    }

    /// The client is about to be told that there is nothing yet.
    pub(super) fn listen(&self, waker: &Waker) {
        let mut state = self.state();
        if state.pump.is_none() {
            return;
        }
        state.client = Client::Listening;
        let old = match &state.waker {
            Some(kept) if kept.will_wake(waker) => None,
            _ => state.waker.replace(waker.clone()),
        };
        let woken = state.woken;
        drop(state);
        drop(old);
        if woken {
            waker.wake_by_ref();
        }
    }

    /// The client is about to be given something, and may not ask again.
    pub(super) fn away(self: &Arc<Self>) {
        if self.is_quiet() {
            return;
        }
        // What came meanwhile, once; a pump that wants more than that has its reasons.
        self.drive();
        if !self.is_quiet() {
            self.release(self.state());
        }
    }

    /// Whether the pump can be left to its next wake.
    fn is_quiet(&self) -> bool {
        let mut state = self.state();
        if state.pump.is_some() && !state.woken {
            state.client = Client::Away;
        }
        state.pump.is_none() || !state.woken
    }

    /// The client asks for nothing any more.
    pub(super) fn leave(&self) {
        self.release(self.state());
    }

    /// Whatever is left of the pump goes on as a task. What is let go here is let go under no lock.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        let (pump, waker) = (state.pump.take(), state.waker.take());
        state.client = Client::Relieved;
        drop(state);
        drop(waker);
        if let Some(pump) = pump {
            self.runtime.spawn(pump);
        }
    }
}

impl<S: Spawn> ArcWake for Driver<S> {
    fn wake_by_ref(this: &Arc<Self>) {
        let mut state = this.state();
        if state.client == Client::Relieved || std::mem::replace(&mut state.woken, true) {
            return;
        }
        match state.client {
            Client::Away => this.release(state),
            Client::Listening => {
                let waker = state.waker.clone();
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Client::Polling | Client::Relieved => {}
        }
    }
}

#[cfg(test)]
mod races {
    //! Under `--cfg shuttle` many schedules of the same, one of them at a time; otherwise real threads.

    use std::{future::poll_fn, task::Poll};

    #[cfg(shuttle)]
    use shuttle::{future::block_on, thread};
    #[cfg(not(shuttle))]
    use {std::thread, tokio_test::block_on};

    use super::*;

    const SAID: u64 = 6;

    /// What a producer has said, what its pump has passed on, and who waits for either.
    #[derive(Default)]
    struct World {
        said: Mutex<(u64, Option<Waker>)>,
        passed: Mutex<(u64, Option<Waker>)>,
    }

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say((count, waker): &mut (u64, Option<Waker>), now: u64) -> Option<Waker> {
        *count = now;
        waker.take()
    }

    impl World {
        fn produce(&self) {
            for now in 1..=SAID {
                let waker = say(&mut lock(&self.said), now);
                waker.into_iter().for_each(Waker::wake);
                thread::yield_now();
            }
        }

        fn pump(self: &Arc<Self>) -> Pumping {
            let world = Arc::clone(self);
            Box::pin(poll_fn(move |cx| {
                let mut said = lock(&world.said);
                let now = said.0;
                said.1 = Some(cx.waker().clone());
                drop(said);
                let waker = say(&mut lock(&world.passed), now);
                waker.into_iter().for_each(Waker::wake);
                match now {
                    SAID => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            }))
        }

        /// Asks until it was given something `times` times.
        fn read(&self, driver: &Arc<Driver<Threads>>, times: u64) {
            let mut seen = 0;
            for _ in 0..times {
                block_on(poll_fn(|cx| {
                    driver.drive();
                    let mut passed = lock(&self.passed);
                    passed.1 = Some(cx.waker().clone());
                    let now = passed.0;
                    drop(passed);
                    if now == seen && now < SAID {
                        driver.listen(cx.waker());
                        return Poll::Pending;
                    }
                    seen = now;
                    driver.away();
                    Poll::Ready(())
                }));
            }
        }

        fn all_passed(&self) {
            block_on(poll_fn(|cx| {
                let mut passed = lock(&self.passed);
                passed.1 = Some(cx.waker().clone());
                match passed.0 {
                    SAID => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            }));
        }
    }

    struct Threads;

    impl Spawn for Threads {
        fn spawn(&self, pumping: Pumping) {
            thread::spawn(|| block_on(pumping));
        }
    }

    fn check(test: impl Fn() + Send + Sync + 'static) {
        #[cfg(shuttle)]
        shuttle::check_random(test, 3000);
        #[cfg(not(shuttle))]
        for _ in 0..200 {
            test();
        }
    }

    /// Has a client read so many times while the producer speaks, and then do `last`.
    fn with_client(times: u64, last: impl Fn(&Driver<Threads>) + Clone + Send + Sync + 'static) {
        check(move || {
            let world = Arc::new(World::default());
            let driver = Driver::start(world.pump(), Threads);
            let producer = thread::spawn({
                let world = Arc::clone(&world);
                move || world.produce()
            });
            world.read(&driver, times);
            last(&driver);
            world.all_passed();
            producer.join().expect("said");
        });
    }

    #[test]
    fn a_client_that_reads_no_more_holds_nothing_up() {
        for times in [0, 1, 2] {
            with_client(times, |_| {});
        }
    }

    #[test]
    fn a_client_that_leaves_holds_nothing_up() {
        for times in [0, 1, 2] {
            with_client(times, Driver::leave);
        }
    }

    #[test]
    fn a_client_that_reads_on_gets_everything() {
        // As often as there may be something new, and then at once.
        with_client(SAID, |_| {});
    }
}
