//! What the branches share: the money, which counts how often it was moved, and the ledger. Both are asked over a
//! socket, for a branch is a process of its own.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use mcp_session_guard::store::{
    Begun, ClaimToken, Fingerprint, Held, KeyClaim, MemoryStore, Origin, Outcome, Reply,
    RequestKey, RequestLedger, StoreError, StoreErrorKind,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::Error;

/// One question, a line of JSON, answered by another.
#[derive(Debug, Serialize, Deserialize)]
enum Question {
    Pay(String),
    Begin(Claim),
    Renew(Claim),
    Complete(Claim, Ended),
    Release(Claim),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Claim {
    key: [u8; 32],
    fingerprint: [u8; 32],
    origin: Option<[u8; 32]>,
    token: (u64, u64),
    lease: Duration,
    may_run_again: bool,
    attempt: u32,
}

#[derive(Debug, Serialize, Deserialize)]
enum Ended {
    Result(String),
    Error(String),
    TooLarge,
    Unknown,
}

#[derive(Debug, Serialize, Deserialize)]
enum Known {
    Fresh(u32),
    InFlight,
    Completed(Option<[u8; 32]>, Ended),
    Conflict,
    OutcomeUnknown,
    Failed,
}

#[derive(Debug, Serialize, Deserialize)]
enum Holds {
    Yes,
    Superseded,
    Absent,
    Failed,
}

/// The bank: payments by order, and the ledger.
#[derive(Default)]
struct Books {
    payments: Mutex<BTreeMap<String, usize>>,
    ledger: MemoryStore,
}

pub(super) struct Bank {
    pub(super) address: SocketAddr,
    books: Arc<Books>,
    server: JoinHandle<()>,
}

impl Bank {
    pub(super) async fn open() -> Result<Self, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let books = Arc::new(Books::default());
        let shared = Arc::clone(&books);
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let books = Arc::clone(&shared);
                tokio::spawn(async move {
                    if let Err(error) = books.answer(socket).await {
                        eprintln!("the bank: {error}");
                    }
                });
            }
        });
        Ok(Self {
            address,
            books,
            server,
        })
    }

    /// How often each order was paid.
    pub(super) fn payments(&self) -> BTreeMap<String, usize> {
        let payments = self.books.payments.lock();
        payments.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Books {
    async fn answer(&self, socket: TcpStream) -> Result<(), Error> {
        socket.set_nodelay(true)?;
        let mut socket = BufReader::new(socket);
        let mut line = String::new();
        if socket.read_line(&mut line).await? == 0 {
            // A branch that was killed before it could ask.
            return Ok(());
        }
        let mut answer = match serde_json::from_str(&line)? {
            Question::Pay(order) => {
                let mut payments = self.payments.lock().unwrap_or_else(PoisonError::into_inner);
                *payments.entry(order).or_default() += 1;
                serde_json::to_string(&())?
            }
            Question::Begin(claim) => {
                serde_json::to_string(&known(self.ledger.begin(&claim.into()).await))?
            }
            Question::Renew(claim) => {
                serde_json::to_string(&holds(&self.ledger.renew(&claim.into()).await))?
            }
            Question::Complete(claim, ended) => {
                let outcome = ended.into();
                let held = self.ledger.complete(&claim.into(), &outcome).await;
                serde_json::to_string(&holds(&held))?
            }
            Question::Release(claim) => {
                let released = self.ledger.release(&claim.into()).await;
                serde_json::to_string(&released.is_ok())?
            }
        };
        answer.push('\n');
        socket.write_all(answer.as_bytes()).await?;
        Ok(())
    }
}

/// The bank as a branch has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire(pub(super) SocketAddr);

impl Wire {
    async fn ask<T: DeserializeOwned>(&self, question: &Question) -> Result<T, Error> {
        let socket = TcpStream::connect(self.0).await?;
        socket.set_nodelay(true)?;
        let mut socket = BufReader::new(socket);
        let mut line = serde_json::to_string(question)?;
        line.push('\n');
        socket.write_all(line.as_bytes()).await?;
        line.clear();
        socket.read_line(&mut line).await?;
        Ok(serde_json::from_str(&line)?)
    }

    pub(super) async fn pay(&self, order: &str) -> Result<(), Error> {
        self.ask(&Question::Pay(order.to_owned())).await
    }

    async fn call<T: DeserializeOwned>(&self, question: &Question) -> Result<T, StoreError> {
        let answer = self.ask(question).await;
        answer.map_err(|error| StoreError::new(StoreErrorKind::Unavailable).with_source(error))
    }
}

impl RequestLedger for Wire {
    async fn begin(&self, claim: &KeyClaim) -> Result<Begun, StoreError> {
        Ok(match self.call(&Question::Begin(claim.into())).await? {
            Known::Fresh(attempt) => Begun::Fresh { attempt },
            Known::InFlight => Begun::InFlight,
            Known::Conflict => Begun::Conflict,
            Known::OutcomeUnknown => Begun::OutcomeUnknown,
            Known::Completed(origin, ended) => Begun::Completed {
                origin: origin.map(Origin::from_bytes),
                reply: match ended.into() {
                    Outcome::Reply(reply) => Some(reply),
                    _ => None,
                },
            },
            Known::Failed => return Err(StoreErrorKind::Unavailable.into()),
        })
    }

    async fn renew(&self, claim: &KeyClaim) -> Result<Held, StoreError> {
        self.call::<Holds>(&Question::Renew(claim.into()))
            .await?
            .try_into()
    }

    async fn complete(&self, claim: &KeyClaim, outcome: &Outcome) -> Result<Held, StoreError> {
        let question = Question::Complete(claim.into(), outcome.into());
        self.call::<Holds>(&question).await?.try_into()
    }

    async fn release(&self, claim: &KeyClaim) -> Result<(), StoreError> {
        match self.call(&Question::Release(claim.into())).await? {
            true => Ok(()),
            false => Err(StoreErrorKind::Unavailable.into()),
        }
    }
}

impl From<&KeyClaim> for Claim {
    fn from(claim: &KeyClaim) -> Self {
        let token = claim.token.as_u128();
        Self {
            key: *claim.key.as_bytes(),
            fingerprint: *claim.fingerprint.as_bytes(),
            origin: claim.origin.map(|origin| *origin.as_bytes()),
            token: ((token >> 64) as u64, token as u64),
            lease: claim.lease,
            may_run_again: claim.may_run_again,
            attempt: claim.attempt,
        }
    }
}

impl From<Claim> for KeyClaim {
    fn from(claim: Claim) -> Self {
        let token = u128::from(claim.token.0) << 64 | u128::from(claim.token.1);
        let mut made = Self::new(
            RequestKey::from_bytes(claim.key),
            Fingerprint::from_bytes(claim.fingerprint),
            ClaimToken::from_u128(token),
            claim.lease,
        )
        .with_origin(claim.origin.map(Origin::from_bytes))
        .with_may_run_again(claim.may_run_again);
        made.attempt = claim.attempt;
        made
    }
}

impl From<&Outcome> for Ended {
    fn from(outcome: &Outcome) -> Self {
        let text = |text: &Bytes| String::from_utf8_lossy(text).into_owned();
        match outcome {
            Outcome::Reply(Reply::Result(result)) => Self::Result(text(result)),
            Outcome::Reply(Reply::Error(error)) => Self::Error(text(error)),
            Outcome::TooLarge => Self::TooLarge,
            _ => Self::Unknown,
        }
    }
}

impl From<Ended> for Outcome {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Result(text) => Self::Reply(Reply::Result(text.into())),
            Ended::Error(text) => Self::Reply(Reply::Error(text.into())),
            Ended::TooLarge => Self::TooLarge,
            Ended::Unknown => Self::Unknown,
        }
    }
}

fn known(begun: Result<Begun, StoreError>) -> Known {
    match begun {
        Ok(Begun::Fresh { attempt }) => Known::Fresh(attempt),
        Ok(Begun::InFlight) => Known::InFlight,
        Ok(Begun::Conflict) => Known::Conflict,
        Ok(Begun::OutcomeUnknown) => Known::OutcomeUnknown,
        Ok(Begun::Completed { origin, reply }) => {
            let ended = reply.map_or(Ended::TooLarge, |reply| (&Outcome::Reply(reply)).into());
            Known::Completed(origin.map(|origin| *origin.as_bytes()), ended)
        }
        Ok(_) | Err(_) => Known::Failed,
    }
}

fn holds(held: &Result<Held, StoreError>) -> Holds {
    match held {
        Ok(Held::Yes) => Holds::Yes,
        Ok(Held::Superseded) => Holds::Superseded,
        Ok(Held::Absent) => Holds::Absent,
        Ok(_) | Err(_) => Holds::Failed,
    }
}

impl TryFrom<Holds> for Held {
    type Error = StoreError;

    fn try_from(holds: Holds) -> Result<Self, StoreError> {
        match holds {
            Holds::Yes => Ok(Self::Yes),
            Holds::Superseded => Ok(Self::Superseded),
            Holds::Absent => Ok(Self::Absent),
            Holds::Failed => Err(StoreErrorKind::Unavailable.into()),
        }
    }
}
