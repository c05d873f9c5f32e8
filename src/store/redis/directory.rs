//! [`SessionDirectory`] on Redis: each verb is one script and one round trip, and a lookup as a rule is not even a script.

use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use redis::Script;

use super::{
    RedisStore,
    call::{Call, Reply},
    fault::Fault,
    keys,
    peers::{Peers, Sample},
    record,
    script::{BURY, CLAIM, HEARTBEAT, LEAVE, LOOKUP, REGISTER, TAKE_OVER, TERMINATE, TOUCH},
};
use crate::{
    clock::{Clock, SystemClock, Timestamp},
    session::{Fence, InstanceId, SessionId, SessionTerms},
    store::{
        Bury, Claim, ClaimReply, Claimed, Heartbeat, Lookup, Registered, SessionDirectory,
        StoreError, StoreErrorKind, TakeOver, Terminated,
    },
};

impl SessionDirectory for RedisStore {
    async fn lookup(&self, id: &SessionId) -> Result<Lookup, StoreError> {
        let asked = SystemClock.now();
        if self.peers().are_well(asked)
            && let Some(lookup) = self.look(id).await?
        {
            return Ok(lookup);
        }
        let mut reply = self.ask(self.of_session(&LOOKUP, id)).await?;
        Ok(match reply.text()?.as_str() {
            "owned" => self.owned(id, asked, &mut reply)?,
            "orphaned" => {
                self.peers().doubt(SystemClock.now());
                Lookup::Orphaned(record::read(&reply.bytes()?, id)?)
            }
            "terminated" => {
                record::verify(&reply.bytes()?, id)?;
                Lookup::Terminated
            }
            "absent" => {
                self.peers().met(true);
                Lookup::Absent
            }
            other => return Err(unsaid(other)),
        })
    }

    async fn register(
        &self,
        id: &SessionId,
        owner: &InstanceId,
        terms: &SessionTerms,
    ) -> Result<Registered, StoreError> {
        let call = self
            .of_session(&REGISTER, id)
            .arg(owner.epoch().to_string())
            .arg(label(owner))
            .arg(record::residency(terms.residency))
            .arg(record::retention(terms))
            .arg(record::rest(id, terms))
            .arg(self.config().max_sessions);
        let mut reply = self.ask_for_good(call).await?;
        Ok(match reply.text()?.as_str() {
            "recorded" => Registered::Recorded(record::read_fence(&reply.text()?)?),
            "occupied" => {
                record::verify(&reply.bytes()?, id)?;
                Registered::Occupied
            }
            "no_lease" => Registered::NoLease,
            "full" => return Err(StoreErrorKind::Full.into()),
            other => return Err(unsaid(other)),
        })
    }

    async fn claim(&self, claim: &Claim<'_>) -> Result<ClaimReply, StoreError> {
        let sessions = claim.sessions.iter().map(|session| &session.id);
        let keys = self
            .keys()
            .directory(claim.tombstones.iter().chain(sessions));
        let mut call = self
            .of_instance(&CLAIM, claim.instance, &keys)
            .arg(label(claim.instance))
            .arg(record::millis(claim.lease))
            .arg(claim.address.unwrap_or_default())
            .arg(match claim.standing {
                crate::store::Standing::Lapsed => "L",
                crate::store::Standing::Unbroken => "U",
            })
            .arg(record::millis(self.config().tombstones))
            .arg(claim.tombstones.len());
        for id in claim.tombstones {
            call = call.arg(record::epitaph(id));
        }
        for session in claim.sessions {
            let next = session.fence.next(session.fence.incarnation());
            call = call
                .arg(record::fence(session.fence))
                .arg(record::fence(next))
                .arg(record::residency(session.terms.residency))
                .arg(record::retention(&session.terms))
                .arg(record::rest(&session.id, &session.terms));
        }
        let mut reply = self.ask_for_good(call).await?;
        expect(&mut reply, "claimed")?;
        let incarnation = record::read_incarnation(&reply.text()?)?;
        let granted = Duration::from_millis(reply.number()?);
        if reply.left() != claim.sessions.len() {
            return Err(Fault::Misread("not a word on each session").into());
        }
        let sessions = (0..claim.sessions.len()).map(|_| {
            Ok(match reply.text()?.as_str() {
                "noted" => Claimed::Noted,
                "buried" => Claimed::Buried,
                "taken" => Claimed::Taken,
                "absent" => Claimed::Absent,
                fence => Claimed::Held(record::read_fence(fence)?),
            })
        });
        let sessions = sessions.collect::<Result<_, Fault>>()?;
        // What is counted in whole milliseconds may be a little more than was asked for.
        Ok(ClaimReply::new(
            incarnation,
            granted.min(claim.lease),
            sessions,
        ))
    }

    async fn heartbeat(&self, instance: &InstanceId) -> Result<Heartbeat, StoreError> {
        let keys = self.keys().directory([]);
        let mut reply = self
            .ask(self.of_instance(&HEARTBEAT, instance, &keys))
            .await?;
        let extended = match reply.text()?.as_str() {
            "extended" => true,
            "lapsed" => false,
            other => return Err(unsaid(other)),
        };
        let incarnation = record::read_incarnation(&reply.text()?)?;
        Ok(Heartbeat::new(incarnation, extended))
    }

    async fn take_over(
        &self,
        id: &SessionId,
        seen: Fence,
        by: &InstanceId,
    ) -> Result<TakeOver, StoreError> {
        let call = self
            .of_session(&TAKE_OVER, id)
            .arg(record::fence(seen))
            .arg(record::fence(seen.next(seen.incarnation())))
            .arg(by.epoch().to_string())
            .arg(label(by));
        let mut reply = self.ask_for_good(call).await?;
        Ok(match reply.text()?.as_str() {
            "taken" => TakeOver::Taken(record::read_fence(&reply.text()?)?),
            "lost" => TakeOver::Lost,
            "no_lease" => TakeOver::NoLease,
            other => return Err(unsaid(other)),
        })
    }

    async fn bury(&self, id: &SessionId, seen: Fence) -> Result<Bury, StoreError> {
        let call = self
            .of_session(&BURY, id)
            .arg(record::fence(seen))
            .arg(record::millis(self.config().tombstones))
            .arg(record::epitaph(id));
        let mut reply = self.ask_for_good(call).await?;
        Ok(match reply.text()?.as_str() {
            "buried" => Bury::Buried,
            "lost" => Bury::Lost,
            other => return Err(unsaid(other)),
        })
    }

    async fn touch(
        &self,
        owner: &InstanceId,
        ids: &[SessionId],
    ) -> Result<Vec<SessionId>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let keys = self.keys().directory(ids);
        let mut reply = self.ask(self.of_instance(&TOUCH, owner, &keys)).await?;
        expect(&mut reply, "touched")?;
        let mut gone = Vec::with_capacity(reply.left());
        while reply.left() > 0 {
            let at = usize::try_from(reply.number()?).ok();
            let id = at.and_then(|at| ids.get(at.checked_sub(1)?));
            gone.push(
                id.ok_or(Fault::Misread("no session that was asked for"))?
                    .clone(),
            );
        }
        Ok(gone)
    }

    async fn terminate(
        &self,
        id: &SessionId,
        fence: Option<Fence>,
    ) -> Result<Terminated, StoreError> {
        let call = self
            .of_session(&TERMINATE, id)
            .arg(fence.map(record::fence).unwrap_or_default())
            .arg(record::millis(self.config().tombstones))
            .arg(record::epitaph(id));
        let mut reply = self.ask_for_good(call).await?;
        Ok(match reply.text()?.as_str() {
            "ended" => Terminated::Ended,
            "absent" => Terminated::Absent,
            "fenced" => Terminated::Fenced,
            other => return Err(unsaid(other)),
        })
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), StoreError> {
        let keys = self.keys().directory([]);
        let mut reply = self.ask(self.of_instance(&LEAVE, instance, &keys)).await?;
        expect(&mut reply, "left")
    }
}

impl RedisStore {
    /// Reads the record and nothing else. Nothing, unless it is that of an instance whose lease is known to be live.
    async fn look(&self, id: &SessionId) -> Result<Option<Lookup>, StoreError> {
        let mut cmd = redis::cmd("MGET");
        cmd.arg(self.keys().session(&keys::hash(id)))
            .arg(self.keys().generation());
        let mut reply = self.ask(Call::plain(cmd)).await?;
        let (Some(bytes), Some(generation)) = (reply.maybe()?, reply.maybe()?) else {
            return Ok(None);
        };
        let Some((owner, over)) = record::owner(&bytes) else {
            return Ok(None);
        };
        let now = SystemClock.now();
        let known = {
            let mut peers = self.peers();
            peers.met(false);
            peers.knows(now, &generation, owner, over)
        };
        let Some(address) = known else {
            return Ok(None);
        };
        let record = record::read(&bytes, id)?;
        Ok(Some(Lookup::Owned { record, address }))
    }

    /// What a script said of an owned session, and of the lease that it is owned under.
    fn owned(
        &self,
        id: &SessionId,
        asked: Timestamp,
        reply: &mut Reply,
    ) -> Result<Lookup, StoreError> {
        let record = record::read(&reply.bytes()?, id)?;
        let address = address(&reply.text()?);
        let (left, clock) = (reply.number()?, reply.number()?);
        let mut peers = self.peers();
        peers.met(false);
        peers.learn(Sample {
            generation: &reply.bytes()?,
            owner: record.owner.epoch().as_u128(),
            address: address.clone(),
            left,
            clock,
            asked,
        });
        Ok(Lookup::Owned { record, address })
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        let peers = self.shared.peers.lock();
        peers.unwrap_or_else(PoisonError::into_inner)
    }

    fn of_session(&self, script: &'static Script, id: &SessionId) -> Call {
        let call = Call::new(script, &keys::hash(id), &self.keys().directory([id]));
        self.entering(call)
    }

    fn of_instance(&self, script: &'static Script, who: &InstanceId, keys: &[String]) -> Call {
        let epoch = who.epoch().to_string();
        self.entering(Call::new(script, &epoch, keys)).arg(epoch)
    }

    /// What each script of the directory is told, should it find that the memory may have been lost.
    fn entering(&self, call: Call) -> Call {
        call.arg(record::millis(self.config().max_lease))
            .arg(format!("{:016x}", self.nonce()))
    }
}

/// The label of an instance, cut to what a record has room for.
fn label(instance: &InstanceId) -> &str {
    let name = instance.name();
    let ends = (0..=name.len().min(1024)).rev();
    let end = ends.into_iter().find(|at| name.is_char_boundary(*at));
    name.get(..end.unwrap_or_default()).unwrap_or_default()
}

fn address(lease: &str) -> Option<Arc<str>> {
    let (_, address) = lease.split_once(' ')?;
    (!address.is_empty()).then(|| address.into())
}

fn expect(reply: &mut Reply, word: &str) -> Result<(), StoreError> {
    let said = reply.text()?;
    match said == word {
        true => Ok(()),
        false => Err(unsaid(&said)),
    }
}

/// A reply that is no answer of the verb.
fn unsaid(word: &str) -> StoreError {
    match word {
        "recovering" => StoreErrorKind::Recovering.into(),
        _ => Fault::Misread("a word that is no answer").into(),
    }
}
