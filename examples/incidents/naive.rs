//! What the unguarded servers of the incidents about streams have in common: a front before rmcp that numbers what
//! is said, keeps it, and can say it again, with no idea of whose session, under which agreement or to which request.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use bytes::BytesMut;
use futures_util::stream;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::mpsc;

/// Events by session, in the order in which they were said. Of requests it knows nothing.
#[derive(Default)]
pub(crate) struct Log {
    streams: AtomicU64,
    events: Mutex<HashMap<String, Vec<Event>>>,
}

#[derive(Clone)]
pub(crate) struct Event {
    stream: u64,
    id: usize,
    data: String,
}

impl Event {
    fn bytes(&self) -> Bytes {
        format!("id: {}\ndata: {}\n\n", self.id, self.data).into()
    }
}

impl Log {
    fn events(&self) -> MutexGuard<'_, HashMap<String, Vec<Event>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, session: &str, stream: u64, data: String) -> Event {
        let mut events = self.events();
        let events = events.entry(session.to_owned()).or_default();
        let id = events.len() + 1;
        let event = Event { stream, id, data };
        events.push(event.clone());
        event
    }

    /// The rest of the stream that the event belongs to; `None` when this log has no such event.
    pub(crate) fn after(&self, session: &str, last_id: &str) -> Option<Vec<Event>> {
        let last_id: usize = last_id.parse().ok()?;
        let events = self.events();
        let events = events.get(session)?;
        let stream = events.iter().find(|event| event.id == last_id)?.stream;
        let rest = events
            .iter()
            .filter(|event| event.stream == stream && event.id > last_id);
        Some(rest.cloned().collect())
    }

    /// Numbers and keeps what rmcp says, and passes it on. Goes on when the client has left, as MCP demands: a
    /// disconnect is no cancellation.
    pub(crate) fn record(
        self: &Arc<Self>,
        session: String,
        response: Response,
        mut heard: impl FnMut(&Value) + Send + 'static,
    ) -> Response {
        let log = Arc::clone(self);
        let stream = log.streams.fetch_add(1, Ordering::Relaxed);
        let (say, said) = mpsc::unbounded_channel();
        let mut body = response.into_body();
        tokio::spawn(async move {
            let mut text = BytesMut::new();
            while let Some(Ok(frame)) = body.frame().await {
                text.extend_from_slice(&frame.into_data().unwrap_or_default());
                while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                    let block = String::from_utf8_lossy(&text.split_to(end + 2)).into_owned();
                    let data = block.lines().find_map(|line| line.strip_prefix("data:"));
                    let data = data.unwrap_or_default().trim();
                    if let Ok(message) = serde_json::from_str(data) {
                        heard(&message);
                        let event = log.append(&session, stream, data.to_owned());
                        let _ = say.send(event.bytes());
                    }
                }
            }
        });
        event_stream(Body::from_stream(stream::unfold(said, async |mut said| {
            let bytes = said.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(bytes), said))
        })))
    }
}

/// Says it again, and ends as if there were no more to say.
pub(crate) fn replay(events: &[Event]) -> Response {
    let bytes: Vec<u8> = events.iter().flat_map(|event| event.bytes()).collect();
    event_stream(Body::from(bytes))
}

fn event_stream(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
