//! Bodies that the layers have looked into, and hand on as if they had not.

mod read;
mod replay;

use http::{HeaderMap, header::CONTENT_TYPE};

pub(crate) use read::{Finding, ReadBody, read, read_past};
pub use replay::Replay;

/// Mark in a response's extensions: a layer in front of the inner service gave it, and the inner service was not
/// asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnsweredInFront;

/// Whether a response's headers announce an event stream.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}
