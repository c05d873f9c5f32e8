//! A client of one event stream.

use std::{collections::VecDeque, pin::Pin, time::Duration};

use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt;
use serde_json::Value;

use super::Body;

/// One event or comment as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Got {
    pub id: Option<String>,
    pub data: Option<String>,
    pub retry: Option<u64>,
    pub comment: Option<String>,
}

impl Got {
    pub fn json(&self) -> Value {
        let data = self.data.as_deref().expect("an event with data");
        serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"))
    }

    pub fn id(&self) -> &str {
        self.id.as_deref().expect("an event with an id")
    }

    /// Reason and request of an error.
    pub fn error(&self) -> (String, Value) {
        let json = self.json();
        let reason = json["error"]["data"]["reason"].as_str().expect("a reason");
        (reason.to_owned(), json["id"].clone())
    }
}

pub(crate) struct Reader {
    pub headers: HeaderMap,
    body: Pin<Box<Body>>,
    text: String,
    ready: VecDeque<Got>,
    pub frames: Vec<usize>,
    /// The newest id, as a client would come back with it.
    pub last_id: Option<String>,
}

impl Reader {
    pub fn new(response: http::Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            headers: parts.headers,
            body: Box::pin(body),
            text: String::new(),
            ready: VecDeque::new(),
            frames: Vec::new(),
            last_id: None,
        }
    }

    /// The next event or comment; `None` at the end. Fails when nothing comes for a minute.
    pub async fn next(&mut self) -> Option<Got> {
        let next = tokio::time::timeout(Duration::from_secs(60), self.read());
        next.await.expect("something comes")
    }

    /// The next event with data that is not empty.
    pub async fn message(&mut self) -> Got {
        loop {
            let got = self.next().await.expect("a message, and not the end");
            if got.data.as_deref().is_some_and(|data| !data.is_empty()) {
                return got;
            }
        }
    }

    /// What is there and what comes within a second, without waiting for an end.
    pub async fn now(&mut self) -> Vec<Got> {
        let mut all = Vec::new();
        while let Ok(Some(got)) = tokio::time::timeout(Duration::from_secs(1), self.read()).await {
            all.push(got);
        }
        all
    }

    /// The data of all messages up to the end.
    pub async fn rest(&mut self) -> Vec<Got> {
        let mut all = Vec::new();
        while let Some(got) = self.next().await {
            if got.data.as_deref().is_some_and(|data| !data.is_empty()) {
                all.push(got);
            }
        }
        assert!(self.body.is_end_stream());
        all
    }

    async fn read(&mut self) -> Option<Got> {
        loop {
            if let Some(got) = self.ready.pop_front() {
                if got.id.is_some() {
                    self.last_id.clone_from(&got.id);
                }
                return Some(got);
            }
            let frame = self.body.frame().await?.expect("no body breaks");
            let data = frame.into_data().expect("data");
            self.frames.push(data.len());
            self.text += std::str::from_utf8(&data).expect("text");
            self.split();
        }
    }

    fn split(&mut self) {
        while let Some(end) = self.text.find("\n\n") {
            let block: String = self.text.drain(..end + 2).collect();
            let mut got = Got::default();
            let mut data: Vec<&str> = Vec::new();
            for line in block.lines() {
                match line.split_once(": ").or(line.split_once(':')) {
                    Some(("", comment)) => got.comment = Some(comment.to_owned()),
                    Some(("id", id)) => got.id = Some(id.to_owned()),
                    Some(("data", text)) => data.push(text),
                    Some(("retry", millis)) => got.retry = Some(millis.parse().unwrap()),
                    _ => {}
                }
            }
            if block.lines().any(|line| line.starts_with("data")) {
                got.data = Some(data.join("\n"));
            }
            self.ready.push_back(got);
        }
    }

    pub fn cursor(&self) -> &str {
        self.last_id.as_deref().expect("an id was seen")
    }
}

pub(crate) fn data(events: &[Got]) -> Vec<&str> {
    let text = events.iter().map(|got| got.data.as_deref().unwrap_or(""));
    text.collect()
}
