//! One client with one call: it counts what it hears.

use serde_json::{Value, json};
use tokio::sync::watch;

use super::NUMBERS;
use crate::{
    Error,
    caller::Caller,
    stream::{Heard, Stream},
};

pub(super) struct Client {
    caller: Caller,
    stream: Stream,
    pub(super) run: String,
    /// Leaves after so many numbers.
    pub(super) leaves_after: Option<u32>,
    story: Story,
}

/// What a client heard.
#[derive(Debug, Default)]
pub(super) struct Story {
    /// The last number.
    last: u32,
    /// Numbers that it had heard before.
    pub(super) duplicates: usize,
    /// Numbers that it never heard, and nobody said that they are missing.
    pub(super) gaps: usize,
    /// It came back.
    pub(super) resumed: bool,
    /// It was told that it cannot.
    pub(super) refused: bool,
    pub(super) answered: bool,
}

impl Story {
    /// It came back, and heard everything once.
    pub(super) fn exact(&self) -> bool {
        self.resumed && self.answered && self.duplicates == 0 && self.gaps == 0
    }

    /// Whether there is more to come.
    fn hear(&mut self, message: &Value) -> Result<bool, Error> {
        if let Some(number) = message["params"]["progress"].as_f64() {
            let number = number as u32;
            if number <= self.last {
                self.duplicates += 1;
            } else {
                self.gaps += (number - self.last - 1) as usize;
                self.last = number;
            }
            return Ok(true);
        }
        if message.get("result").is_some() {
            self.answered = true;
            self.gaps += (NUMBERS - self.last) as usize;
        } else if message["error"]["data"]["reason"] == "stream_cursor_unrecoverable" {
            self.refused = true;
        } else {
            return Err(format!("heard {message}").into());
        }
        Ok(false)
    }
}

impl Client {
    pub(super) async fn start(address: &str, run: String) -> Result<Self, Error> {
        let mut caller = Caller::open(address, &json!({})).await?;
        let range = json!({"run": run, "after": 0, "to": NUMBERS});
        let stream = caller.call(1, "count", &range).await?;
        Ok(Self {
            caller,
            stream,
            run,
            leaves_after: None,
            story: Story::default(),
        })
    }

    pub(super) fn served_by(&self) -> &str {
        &self.stream.served_by
    }

    /// Listens to the end, and comes back to it when it may.
    pub(super) async fn listen(mut self, mut back: watch::Receiver<bool>) -> Result<Story, Error> {
        loop {
            let left = self
                .leaves_after
                .is_some_and(|left| self.story.last >= left);
            let heard = if left {
                Heard::Break
            } else {
                self.stream.next().await?
            };
            match heard {
                Heard::Message(message) => {
                    if !self.story.hear(&message)? {
                        return Ok(self.story);
                    }
                }
                Heard::End => {
                    // Clean, and without the answer: what is missing is missing in silence.
                    self.story.gaps += (NUMBERS - self.story.last) as usize;
                    return Ok(self.story);
                }
                Heard::Break => {
                    let last_id = std::mem::take(&mut self.stream.last_id);
                    drop(self.stream);
                    self.caller.hang_up();
                    back.wait_for(|back| *back).await?;
                    self.leaves_after = None;
                    self.caller.reconnect().await?;
                    self.stream = self.caller.resume(&last_id).await?;
                    self.story.resumed = true;
                }
            }
        }
    }
}
