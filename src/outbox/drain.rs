//! How far a stream has drained, for whoever admits work by it, and what they can do about it.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use bytes::Bytes;

use super::stream::Stream;

/// What a stream has published and its client has taken, as far as this side of the wire can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Messages that a client which is there could take.
    pub(crate) messages: u64,
    /// How many of them are known to answer a request.
    pub(crate) answers: u64,
    pub(crate) bytes: u64,
    /// The client asks for more, and waits for the log or for a proof.
    pub(crate) held: bool,
    /// Which client it is; another one has another number.
    pub(crate) client: u64,
    /// Messages that were taken so far.
    pub(crate) taken: u64,
    /// Bytes of messages that were handed to the wire so far.
    pub(crate) handed: u64,
    /// Answers that were taken so far.
    pub(crate) answered: u64,
    /// The stream has ended, and nobody has anything of it yet to read.
    pub(crate) over: bool,
}

/// Keeps an account of a stream. Called under the stream's lock.
pub(crate) trait Gauge: fmt::Debug + Send + Sync {
    /// The stream's progress has changed. What is given back is let go once the lock is released.
    fn changed(&self, before: &Progress, now: &Progress) -> Relief;

    /// How many messages the producer may bring before it asks again.
    fn room(&self) -> usize;

    /// Whether the client's connection carries other sessions' streams too.
    fn on_shared(&self, shared: bool);
}

/// What can be done to a stream from outside.
pub(crate) trait Lever: Send + Sync {
    /// There is room again.
    fn wake(&self);

    /// The stream is given up: the inner one is dropped, and what it owes is answered by an error.
    fn tear_down(&self);

    /// Says something that is no event of the stream, after all that there is to say. Whether it will be said.
    fn ask(&self, question: Bytes) -> bool;
}

/// Producers that there is room for again.
#[derive(Default)]
#[must_use]
pub(crate) struct Relief(pub(crate) Vec<Weak<dyn Lever>>);

impl Relief {
    /// Wakes them; under no lock, since each takes its own.
    pub(crate) fn wake(self) {
        for lever in self.0 {
            if let Some(lever) = lever.upgrade() {
                lever.wake();
            }
        }
    }
}

/// In a response's extensions: the stream that its body delivers. Such a body proves its session for each frame by
/// itself, and when the session is lost it says so to its client, which an outer layer could only cut off.
#[derive(Debug, Clone)]
pub(crate) struct Delivered(pub(crate) Arc<Stream>);
