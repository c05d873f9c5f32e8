//! The inner service's answer to a request, read as far as its first JSON-RPC response.

use std::ops::ControlFlow;

use bytes::Bytes;
use http::{HeaderMap, header::CONTENT_TYPE};
use http_body::Body;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use tokio::time::Instant;

use crate::{
    body::{Replay, read},
    mcp::EventReader,
};

/// The first JSON-RPC response in an answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// The id that it answers.
    pub(super) id: Box<RawValue>,
    /// Its result; `None` when it is an error.
    pub(super) result: Option<Value>,
}

impl Answer {
    fn parse(message: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Response {
            id: Box<RawValue>,
            result: Option<Value>,
            error: Option<Value>,
        }
        let response: Response = serde_json::from_slice(message).ok()?;
        (response.result.is_some() != response.error.is_some()).then_some(Self {
            id: response.id,
            result: response.result,
        })
    }
}

/// Reads an answer, JSON or SSE (priming events, notifications and comments may come first), until its first
/// response is seen, and gives back the whole body.
pub(super) async fn read_answer<R>(
    headers: &HeaderMap,
    body: R,
    limit: usize,
    deadline: Instant,
) -> (Replay<R>, Option<Answer>)
where
    R: Body<Data = Bytes>,
{
    if !is_event_stream(headers) {
        let read = read(body, limit, deadline, |_| ControlFlow::Continue(())).await;
        return (read.replay, Answer::parse(&read.bytes));
    }
    let mut reader = EventReader::default();
    let mut answer = None;
    let read = read(body, limit, deadline, |bytes| {
        reader.feed(bytes, |data| {
            if answer.is_none() {
                answer = Answer::parse(data);
            }
        });
        match answer {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })
    .await;
    (read.replay, answer)
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}
