//! One client with one notebook: it writes, does what refusals tell it to do, and reads back what it wrote.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::PACE;
use crate::{
    Error,
    client::{Answer, Client},
    notebook::LINES,
};

const APPENDS_BEFORE: usize = 3;
const APPENDS_AFTER: usize = 6;
const READS: usize = 3;
/// Before the first retry of a refused request; doubled for each further one.
const BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// After which a request that is still refused is given up.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) struct Session {
    client: Arc<Client>,
    number: usize,
    id: String,
    /// The instance that opened it.
    opener: String,
    /// Every line that was acknowledged in the session of this id.
    lines: Vec<String>,
    /// How many of them were so before the crash.
    old: usize,
    story: Story,
}

/// What a session lived through after the crash, from its client's side.
#[derive(Default)]
pub(super) struct Story {
    /// Its opener crashed.
    pub(super) orphaned: bool,
    /// When the first request was sent that another instance than the opener answered.
    pub(super) misdirected: Option<Instant>,
    /// When the client first heard that something is wrong.
    pub(super) told: Option<Instant>,
    /// How many calls were answered by a success without what the session had written before.
    pub(super) silent_losses: usize,
    pub(super) refusals: Vec<Refusal>,
    /// JSON-RPC errors in answers by 200.
    pub(super) errors: usize,
    /// How often it was told 404 while its opener lived.
    pub(super) false_404s: usize,
    /// In the end its notebook holds each line that was acknowledged in it, once and in order.
    pub(super) whole: bool,
}

pub(super) struct Refusal {
    pub(super) reason: String,
    /// From the request to it.
    pub(super) took: Duration,
    pub(super) received: Instant,
}

impl Session {
    pub(super) async fn open(client: Arc<Client>, number: usize) -> Result<Self, Error> {
        let answer = client.initialize().await?;
        let mut session = Self {
            client,
            number,
            id: answer.session.unwrap_or_default(),
            opener: answer.served_by,
            lines: Vec::new(),
            old: 0,
            story: Story::default(),
        };
        let nobody = HashSet::new();
        for _ in 0..APPENDS_BEFORE {
            session.append(&nobody).await?;
        }
        if session.story.misdirected.is_some() || !session.story.refusals.is_empty() {
            return Err("a session was not served by its own instance before the crash".into());
        }
        Ok(session)
    }

    pub(super) async fn go_on(mut self, crashed: &HashSet<String>) -> Result<Story, Error> {
        self.story.orphaned = crashed.contains(&self.opener);
        self.old = self.lines.len();
        for _ in 0..APPENDS_AFTER {
            self.append(crashed).await?;
            sleep(PACE).await;
        }
        let mut kept = 0;
        for _ in 0..READS {
            let uri = json!({"uri": LINES});
            let answer = self.call("resources/read", &uri, crashed).await?;
            let text = &answer.message["result"]["contents"][0]["text"];
            let read: Vec<&str> = text.as_str().unwrap_or_default().lines().collect();
            self.story.whole = read == self.lines;
            if self.story.whole {
                return Ok(self.story);
            }
            self.story.told.get_or_insert(answer.received);
            if text.is_null() {
                self.story.errors += 1;
            } else {
                self.story.silent_losses += 1;
            }
            let same = self.lines.iter().zip(&read).take_while(|(a, b)| a == *b);
            kept = same.count();
            sleep(PACE).await;
        }
        // An append is lost when the notebook does not hold it behind all that came before it.
        self.story.silent_losses += self.lines.len() - kept.max(self.old);
        Ok(self.story)
    }

    async fn append(&mut self, crashed: &HashSet<String>) -> Result<(), Error> {
        let line = format!("session {} line {}", self.number, self.lines.len() + 1);
        let params = json!({"name": "session_append", "arguments": {"text": line}});
        let answer = self.call("tools/call", &params, crashed).await?;
        if answer.message["result"]["content"].is_null() {
            return Err(format!("an append failed: {}", answer.message).into());
        }
        self.lines.push(line);
        Ok(())
    }

    /// Sends a request until it is served, as the refusals say: again after a while, or in a new session.
    async fn call(
        &mut self,
        method: &str,
        params: &Value,
        crashed: &HashSet<String>,
    ) -> Result<Answer, Error> {
        let begin = Instant::now();
        let mut backoff = BACKOFF;
        loop {
            let answer = self.client.request(Some(&self.id), method, params).await?;
            if answer.served_by != self.opener {
                self.story.misdirected.get_or_insert(answer.sent);
            }
            if answer.status == 200 {
                return Ok(answer);
            }
            let Some(reason) = answer.reason.clone() else {
                return Err(
                    format!("{method}: {} from {}", answer.status, answer.served_by).into(),
                );
            };
            self.story.told.get_or_insert(answer.received);
            self.story.refusals.push(Refusal {
                reason,
                took: answer.received - answer.sent,
                received: answer.received,
            });
            let data = &answer.message["error"]["data"];
            if data["action"] == "reinitialize" {
                self.story.false_404s += usize::from(!crashed.contains(&self.opener));
                // Whatever was acknowledged since the crash is gone as well, and nobody said so when it was.
                self.story.silent_losses += self.lines.len() - self.old;
                let opened = self.client.initialize().await?;
                self.id = opened.session.unwrap_or_default();
                self.opener = opened.served_by;
                self.lines.clear();
                self.old = 0;
            } else if data["retryable"] == true && begin.elapsed() < PATIENCE {
                sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
            } else {
                return Err(format!("{method}: given up: {}", answer.message).into());
            }
        }
    }
}
