//! One stream between its producer and its client: the window under a lock, and whom to wake once it is released.

use std::{
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use super::{
    batch::Numbering,
    drain::{Gauge, Lever, Relief},
    sync::{Mutex, MutexGuard, PoisonError},
    window::{Bounds, Chunk, Taken, Wake, Window},
};
use crate::store::{Ending, Seq, StreamHeader};

#[derive(Debug)]
pub(crate) struct Stream {
    header: StreamHeader,
    /// How its producer numbers it; none where there is only the log.
    numbering: Option<Numbering>,
    window: Mutex<Window>,
    /// Whoever keeps an account of it.
    gauge: OnceLock<Arc<dyn Gauge>>,
}

/// What the producer has to know of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) attached: bool,
    /// How many messages it may still be sent; none when it is too far behind for more.
    pub(crate) room: usize,
    /// The stream was given up from outside.
    pub(crate) torn: bool,
}

impl Stream {
    pub(crate) fn new(header: StreamHeader, numbering: Numbering, bounds: Bounds) -> Self {
        Self {
            header,
            numbering: Some(numbering),
            window: Mutex::new(Window::new(bounds)),
            gauge: OnceLock::new(),
        }
    }

    /// A stream of which only the log is left, up to `head`.
    pub(crate) fn over(header: StreamHeader, bounds: Bounds, head: Seq, ending: Ending) -> Self {
        Self {
            header,
            numbering: None,
            window: Mutex::new(Window::over(bounds, head, ending)),
            gauge: OnceLock::new(),
        }
    }

    pub(crate) fn header(&self) -> &StreamHeader {
        &self.header
    }

    pub(crate) fn numbering(&self) -> Option<&Numbering> {
        self.numbering.as_ref()
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        // Nothing in the window's methods panics half-way through a change.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the window, and wakes whoever must know after the lock is released.
    fn change<T>(&self, change: impl FnOnce(&mut Window) -> (T, Wake)) -> T {
        let mut window = self.window();
        let (outcome, wake) = change(&mut window);
        let relief = self.report(&mut window);
        drop(window);
        wake.wake();
        relief.wake();
        outcome
    }

    fn report(&self, window: &mut Window) -> Relief {
        match self.gauge.get() {
            Some(gauge) => window
                .progress()
                .map(|(before, now)| gauge.changed(&before, &now))
                .unwrap_or_default(),
            None => Relief::default(),
        }
    }

    /// Has an account kept of the stream, by the first gauge that it was given.
    pub(crate) fn watch(&self, gauge: impl FnOnce() -> Arc<dyn Gauge>) -> &Arc<dyn Gauge> {
        let gauge = self.gauge.get_or_init(gauge);
        self.change(|_| ((), Wake::default()));
        gauge
    }

    pub(crate) fn handed(&self, generation: u64, bytes: usize) {
        self.change(|window| (window.handed(generation, bytes), Wake::default()));
    }

    pub(crate) fn held(&self, generation: u64) {
        self.change(|window| (window.held(generation), Wake::default()));
    }

    pub(crate) fn is_torn(&self) -> bool {
        self.window().is_torn()
    }

    pub(crate) fn head(&self) -> Seq {
        self.window().head()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.window().ending().is_some()
    }

    pub(crate) fn opened(&self, numbered: bool) {
        self.change(|window| ((), window.opened(numbered)));
    }

    pub(crate) fn poll_numbered(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut window = self.window();
        match window.numbered() {
            Some(numbered) => Poll::Ready(numbered),
            None => {
                window.watch_opening(cx.waker());
                Poll::Pending
            }
        }
    }

    /// What is to be said that is no event, if there is anything.
    pub(crate) fn aside(&self, generation: u64) -> Option<Bytes> {
        self.window().aside(generation)
    }

    pub(crate) fn attach(&self, next: Option<Seq>) -> u64 {
        self.change(|window| window.attach(next))
    }

    pub(crate) fn detach(&self, generation: u64) {
        self.change(|window| ((), window.detach(generation)));
    }

    pub(crate) fn keep(&self, next: Seq) -> Seq {
        self.window().keep(next)
    }

    /// Publishes a chunk, and says whether the client should get its turn; gives it back, and keeps the waker, while
    /// there is no room for it.
    pub(crate) fn publish(&self, chunk: Chunk, waker: &Waker) -> Result<bool, Chunk> {
        self.change(|window| match window.publish(chunk) {
            Ok(wake) => (Ok(window.is_filling()), wake),
            Err(chunk) => {
                window.watch(waker, true);
                (Err(chunk), Wake::default())
            }
        })
    }

    pub(crate) fn say(&self, aside: Bytes) {
        self.change(|window| ((), window.say(aside)));
    }

    pub(crate) fn end(&self, ending: Ending) {
        self.change(|window| ((), window.end(ending)));
    }

    pub(crate) fn take(&self, generation: u64, waker: &Waker) -> Taken {
        self.change(|window| window.take(generation, waker))
    }

    pub(crate) fn advance(
        &self,
        generation: u64,
        next: Seq,
        lengths: impl DoubleEndedIterator<Item = usize>,
    ) {
        self.change(|window| ((), window.advance(generation, next, lengths)));
    }

    /// Ready once no client that is attached needs the log.
    pub(crate) fn poll_read_up(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut window = self.window();
        if !window.needs_log() {
            return Poll::Ready(());
        }
        window.watch(cx.waker(), true);
        Poll::Pending
    }

    /// What the client's side wants, with a waker for when that changes.
    pub(crate) fn demand(&self, waker: &Waker) -> Demand {
        let mut window = self.window();
        let full = window.is_full();
        window.watch(waker, full);
        let (attached, torn) = (window.is_attached(), window.is_torn());
        drop(window);
        let room = match self.gauge.get() {
            _ if full => 0,
            // Asked after the waker was left, so that whoever makes room finds it.
            Some(gauge) => gauge.room(),
            None => usize::MAX,
        };
        Demand {
            attached,
            room,
            torn,
        }
    }
}

impl Lever for Stream {
    fn wake(&self) {
        self.change(|window| ((), window.wake_producer()));
    }

    fn tear_down(&self) {
        self.change(|window| ((), window.tear_down()));
    }

    fn ask(&self, question: Bytes) -> bool {
        self.change(|window| match window.is_attached() {
            true => (true, window.ask(question)),
            false => (false, Wake::default()),
        })
    }
}
