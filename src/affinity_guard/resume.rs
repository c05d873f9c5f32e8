//! A client that comes back to a stream where its session cannot be proven: for how long it is held, and what it is told.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use tokio::time::{Instant, sleep_until};

use super::layer::Config;
use crate::{
    instance::Shared,
    mcp::header::LAST_EVENT_ID,
    outbox::{Cursor, last_event},
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
    ///
    /// A client that still waits for an answer on the stream is told within a stream: by status it would wait for ever.
    /// One that comes back after that is told that nothing comes any more.
    pub(super) fn refuse(&self, rejection: &Rejection) -> Option<Response<Bytes>> {
        let cursor = self.cursor.as_ref().filter(|_| self.in_band)?;
        let pending = cursor.pending.as_ref();
        if !cursor.terminal && pending.is_none() {
            return None;
        }
        let mut response = rejection.answer(None);
        let headers = response.headers_mut();
        if cursor.terminal {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST, DELETE"));
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        } else {
            let event_stream = HeaderValue::from_static("text/event-stream");
            headers.insert(header::CONTENT_TYPE, event_stream);
            let message = rejection.message(pending);
            *response.body_mut() = last_event(&cursor.clone().terminal(), &message);
            *response.status_mut() = StatusCode::OK;
        }
        Some(response)
    }
}
