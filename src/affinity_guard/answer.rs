//! The inner service's answer to a request, read as far as its first JSON-RPC response.

use std::ops::ControlFlow;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use tokio::time::Instant;

use crate::{
    body::{Replay, is_event_stream, read},
    mcp::sse::{Decoder, Item},
};

/// The first JSON-RPC response in an answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// The id that it answers.
    pub(super) id: Box<RawValue>,
    /// Its result; `None` when it is an error.
    pub(super) result: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    id: Option<Box<RawValue>>,
    result: Option<Value>,
    error: Option<Value>,
}

impl Answer {
    fn parse(text: &[u8]) -> Option<Self> {
        if !text.trim_ascii_start().starts_with(b"[") {
            return Self::of(serde_json::from_slice(text).ok()?);
        }
        // The answer to a batch: the one that opens the session, if there is one.
        let batch: Vec<Message> = serde_json::from_slice(text).ok()?;
        let mut answers: Vec<_> = batch.into_iter().filter_map(Self::of).collect();
        let opens = |answer: &Self| {
            let result = answer.result.as_ref();
            result.is_some_and(|result| result.get("protocolVersion").is_some())
        };
        let at = answers.iter().position(opens).unwrap_or(0);
        (at < answers.len()).then(|| answers.swap_remove(at))
    }

    fn of(message: Message) -> Option<Self> {
        (message.result.is_some() != message.error.is_some()).then_some(Self {
            id: message.id?,
            result: message.result,
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
    let mut decoder = Decoder::new(limit);
    let mut answer = None;
    let read = read(body, limit, deadline, |bytes| {
        let fed = decoder.feed(bytes, |item| {
            if let (Item::Event(event), None) = (item, &answer) {
                answer = event.data.and_then(Answer::parse);
            }
        });
        match (fed, &answer) {
            (Ok(()), None) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    })
    .await;
    (read.replay, answer)
}
