//! [`RequestLedger`] on Redis: each verb is one script and one round trip.
//!
//! A keyed call costs two: one before it is dispatched, which cannot be spared, and one with its outcome, which has to be
//! recorded before the answer goes out if a retry is to find it.

use std::fmt::Write;

use redis::Script;

use super::{
    RedisStore,
    call::{Call, Reply as Said},
    fault::Fault,
    record,
    script::{BEGIN, COMPLETE, RELEASE, RENEW},
};
use crate::store::{
    Begun, Held, KeyClaim, Origin, Outcome, Reply, RequestLedger, StoreError, StoreErrorKind,
};

/// In the place of a session that there is not.
const NOWHERE: &str = "----------------------------------------------------------------";

impl RequestLedger for RedisStore {
    async fn begin(&self, claim: &KeyClaim) -> Result<Begun, StoreError> {
        let room = self.config().max_keys / self.partitions();
        let call = self
            .of_claim(&BEGIN, claim)
            .arg(u8::from(claim.may_run_again))
            .arg(room.max(1));
        let mut said = self.ask_for_good(call).await?;
        Ok(match said.text()?.as_str() {
            "fresh" => Begun::Fresh {
                attempt: attempt(&said.text()?)?,
            },
            "in_flight" => Begun::InFlight,
            "completed" => Begun::Completed {
                origin: origin(&said.text()?)?,
                reply: reply(&mut said)?,
            },
            "conflict" => Begun::Conflict,
            "unknown" => Begun::OutcomeUnknown,
            "fenced" => return Err(StoreErrorKind::Fenced.into()),
            "full" => return Err(StoreErrorKind::Full.into()),
            "recovering" => return Err(StoreErrorKind::Recovering.into()),
            _ => return Err(unsaid()),
        })
    }

    async fn renew(&self, claim: &KeyClaim) -> Result<Held, StoreError> {
        held(&mut self.ask_for_good(self.of_claim(&RENEW, claim)).await?)
    }

    async fn complete(&self, claim: &KeyClaim, outcome: &Outcome) -> Result<Held, StoreError> {
        let (state, text) = match outcome {
            Outcome::Reply(Reply::Result(text)) => ("R", &text[..]),
            Outcome::Reply(Reply::Error(text)) => ("E", &text[..]),
            Outcome::TooLarge => ("L", &[][..]),
            Outcome::Unknown => ("U", &[][..]),
        };
        let call = self
            .of_claim(&COMPLETE, claim)
            .arg(state)
            .arg(text)
            .arg(self.config().max_outcome_bytes / self.partitions());
        held(&mut self.ask_for_good(call).await?)
    }

    async fn release(&self, claim: &KeyClaim) -> Result<(), StoreError> {
        let mut said = self.ask_for_good(self.of_claim(&RELEASE, claim)).await?;
        match said.text()?.as_str() {
            "released" => Ok(()),
            _ => Err(unsaid()),
        }
    }
}

impl RedisStore {
    fn of_claim(&self, script: &'static Script, claim: &KeyClaim) -> Call {
        let key = hex(claim.key.as_bytes());
        let config = self.config();
        let origin = claim.origin.map(|origin| hex(origin.as_bytes()));
        Call::new(script, &key, &self.keys().request(&key, self.partitions()))
            .arg(format!("{:016x}", self.nonce()))
            .arg(record::millis(config.retry_horizon))
            .arg(record::millis(config.outcomes))
            .arg(&key)
            .arg(format!("{:032x}", claim.token.as_u128()))
            .arg(hex(claim.fingerprint.as_bytes()))
            .arg(origin.as_deref().unwrap_or(NOWHERE))
            .arg(format!("{:08x}", claim.attempt))
            .arg(record::millis(claim.lease))
    }

    /// Over how many slots of a cluster the ledger is spread. Each is a memory of its own, with bounds of its own.
    fn partitions(&self) -> usize {
        #[cfg(feature = "redis-cluster")]
        if self.config().cluster {
            return 16;
        }
        1
    }
}

fn held(said: &mut Said) -> Result<Held, StoreError> {
    Ok(match said.text()?.as_str() {
        "yes" => Held::Yes,
        "superseded" => Held::Superseded,
        "absent" => Held::Absent,
        _ => return Err(unsaid()),
    })
}

fn attempt(digits: &str) -> Result<u32, Fault> {
    u32::from_str_radix(digits, 16).map_err(|_| Fault::Misread("an attempt that is none"))
}

fn origin(digits: &str) -> Result<Option<Origin>, Fault> {
    if digits == NOWHERE {
        return Ok(None);
    }
    let bytes = record::read_bytes(digits).ok_or(Fault::Misread("an origin that is none"))?;
    Ok(Some(Origin::from_bytes(bytes)))
}

fn reply(said: &mut Said) -> Result<Option<Reply>, Fault> {
    let (state, text) = (said.text()?, said.bytes()?);
    Ok(match state.as_str() {
        "R" => Some(Reply::Result(text.into())),
        "E" => Some(Reply::Error(text.into())),
        "L" => None,
        _ => return Err(Fault::Misread("an outcome that is none")),
    })
}

fn unsaid() -> StoreError {
    Fault::Misread("a word that is no answer").into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
