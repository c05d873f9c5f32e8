//! A client that comes back to a stream where its session cannot be proven: for how long it is held, and what it is told.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Response, request::Parts};
use tokio::time::{Instant, sleep_until};

use super::layer::Config;
use crate::{
    instance::Shared,
    mcp::header::LAST_EVENT_ID,
    outbox::{Cursor, refuse_after_the_end, refuse_in_band},
    rejection::{RefusalStyle, Rejection},
};

/// How long it waits before it looks again.
const PAUSE: Duration = Duration::from_millis(250);

/// What a request resumes, if it does.
pub(super) struct Resume {
    cursor: Option<Cursor>,
    in_band: bool,
    shared: Arc<Shared>,
    until: Instant,
}

impl Resume {
    pub(super) fn of(parts: &Parts, config: &Config) -> Self {
        let id = (parts.method == Method::GET).then(|| parts.headers.get(LAST_EVENT_ID));
        let cursor = id
            .flatten()
            .and_then(|id| Cursor::parse(id.as_bytes()).ok());
        Self {
            cursor,
            in_band: config.style != Some(RefusalStyle::Status),
            shared: Arc::clone(config.instance.shared()),
            until: Instant::now() + config.resume_deadline,
        }
    }

    /// Waits a little, if it may still be confirmed in time. Real clients give a stream up after two refusals.
    pub(super) async fn holds(&self) -> bool {
        let next = Instant::now() + PAUSE;
        let live = self.cursor.as_ref().is_some_and(|cursor| !cursor.terminal);
        if !live || next > self.until {
            return false;
        }
        self.shared.poke();
        sleep_until(next).await;
        true
    }

    /// How it is refused, if not as any other request.
    pub(super) fn refuse(&self, rejection: &Rejection) -> Option<Response<Bytes>> {
        let cursor = self.cursor.as_ref().filter(|_| self.in_band)?;
        match cursor.terminal {
            true => Some(refuse_after_the_end(rejection)),
            false => refuse_in_band(rejection, cursor),
        }
    }
}
