//! The gateway on the way of each POST: it gives one up after a while, and sends it again.

use std::time::Duration;

use serde_json::Value;

use crate::Error;

const TIMEOUT: Duration = Duration::from_millis(400);
const ATTEMPTS: usize = 3;

pub(super) struct Gateway {
    http: reqwest::Client,
    url: String,
}

/// What became of calls.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    pub(super) accepted: usize,
    pub(super) refused: usize,
    pub(super) retries: usize,
}

impl Outcome {
    pub(super) fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.retries += other.retries;
    }
}

impl Gateway {
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        Ok(Self {
            http: reqwest::Client::builder().no_proxy().build()?,
            url: url.to_owned(),
        })
    }

    /// Sends a message until somebody answers, or it was tried often enough. A refusal is an answer.
    pub(super) async fn post(&self, session: &str, message: &Value) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        for attempt in 0..ATTEMPTS {
            outcome.retries += usize::from(attempt > 0);
            match self.once(session, message).await? {
                Some(202) => outcome.accepted += 1,
                Some(429) => outcome.refused += 1,
                // The session is gone.
                Some(404) => {}
                Some(status) => return Err(format!("a POST was answered {status}").into()),
                None => continue,
            }
            break;
        }
        Ok(outcome)
    }

    /// The status, unless nothing comes in time.
    pub(super) async fn once(&self, session: &str, message: &Value) -> Result<Option<u16>, Error> {
        let url = format!("{}/messages?sessionId={session}", self.url);
        let sent = self.http.post(url).json(message).timeout(TIMEOUT).send();
        match sent.await {
            Ok(response) => Ok(Some(response.status().as_u16())),
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
