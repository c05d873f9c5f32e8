//! What an operator watches, and is told of.

use std::time::Duration;

use crate::session::SessionId;

/// What is outstanding in all sessions at this moment, and what was done about it since the layer was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Figures {
    /// Sessions that have anything outstanding, or an open stream.
    pub sessions: usize,
    /// Places that requests hold until their answers have drained.
    pub reserved: usize,
    /// Messages that are deliverable and were not taken.
    pub undrained_messages: usize,
    /// Their bytes.
    pub undrained_bytes: u64,
    /// The most messages that one session ever had undrained.
    pub peak_messages: u32,
    /// The most bytes that one session ever had undrained.
    pub peak_bytes: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Streams and answers that were torn down.
    pub streams_torn_down: u64,
    /// Sessions that were ended because not one of their streams made progress.
    pub sessions_ended: u64,
}

/// Streams of a session that were torn down, as a hook is told.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stalled {
    /// The session.
    pub session: SessionId,
    /// How many of its streams and answers were torn down.
    pub streams: usize,
    /// Messages that they had undrained.
    pub messages: u32,
    /// Bytes that they had undrained.
    pub bytes: u64,
    /// Whether the session is ended with them, because none of its streams made progress.
    pub session_ended: bool,
    /// The time after which a stream that has handed nothing over is torn down.
    pub timeout: Duration,
}

pub(super) type StalledHook = dyn Fn(&Stalled) + Send + Sync;
