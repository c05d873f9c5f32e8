//! [`EventStore`] on Redis: each verb is one script and one round trip, a batch of events included.

use std::collections::HashMap;

use redis::Script;

use super::{
    RedisStore, blob,
    call::{Call, Reply},
    fault::Fault,
    record,
    script::{APPEND, END, OPEN, READ, SEAL},
};
use crate::{
    mcp::Subject,
    session::{Fence, SessionId},
    store::{
        Append, Ending, Event, EventStore, Page, Seq, Snapshot, StoreError, StoreErrorKind,
        StreamHeader, StreamKey,
    },
};

impl EventStore for RedisStore {
    async fn open(&self, header: &StreamHeader) -> Result<(), StoreError> {
        let call = self
            .of_stream(&OPEN, &header.key)
            .arg(blob::header(header))
            .arg(record::fence(header.fence))
            .arg(header.key.session.as_str())
            .arg(header.key.stream);
        done(&mut self.ask(call).await?, "opened")
    }

    async fn append(&self, append: &Append<'_>) -> Result<(), StoreError> {
        let last = append.first.plus(append.events.len() as u64);
        if last.get() >= blob::LAST {
            return Err(StoreErrorKind::Full.into());
        }
        let mut call = self
            .of_stream(&APPEND, append.key)
            .arg(append.keep.get().min(blob::LAST));
        for chunk in blob::chunks(append.first, append.events) {
            call = call
                .arg(chunk.first)
                .arg(chunk.last)
                .arg(chunk.bytes)
                .arg(chunk.blob)
                .arg(chunk.about);
        }
        done(&mut self.ask(call).await?, "appended")
    }

    async fn end(&self, key: &StreamKey, last: Seq, ending: Ending) -> Result<(), StoreError> {
        if last.get() >= blob::LAST {
            return Err(StoreErrorKind::Full.into());
        }
        let call = self
            .of_stream(&END, key)
            .arg(last.get())
            .arg(ending.as_str());
        done(&mut self.ask(call).await?, "ended")
    }

    async fn read_after(
        &self,
        key: &StreamKey,
        after: Seq,
        page: Page,
    ) -> Result<Option<Snapshot>, StoreError> {
        // Nothing was ever given a number as high, so whoever names one is ahead all the same.
        let after = Seq::new(after.get().min(blob::LAST));
        let most = usize::try_from(blob::LAST).unwrap_or(usize::MAX);
        let call = self
            .of_stream(&READ, key)
            .arg(after.get())
            .arg(page.events.min(most))
            .arg(page.bytes.min(most));
        let mut reply = self.ask(call).await?;
        match reply.text()?.as_str() {
            "none" => Ok(None),
            "stream" => Ok(Some(snapshot(&mut reply, key, after, page)?)),
            _ => Err(Fault::Misread("a word that is no answer").into()),
        }
    }

    async fn seal(&self, session: &SessionId, below: Fence) -> Result<(), StoreError> {
        let keys = self.keys().log(session);
        let call = self
            .of_log(&SEAL, &keys.tag, &keys.session)
            .arg("")
            .arg(record::fence(below))
            .arg(session.as_str());
        done(&mut self.ask_for_good(call).await?, "sealed")
    }
}

impl RedisStore {
    fn of_stream(&self, script: &'static Script, key: &StreamKey) -> Call {
        let keys = self.keys().stream(key);
        let echo = format!("{}{}", keys.tag, keys.reference);
        self.of_log(script, &echo, &keys.all).arg(keys.reference)
    }

    /// What each script of the logs is told: the clock's skew, and how much is kept.
    fn of_log(&self, script: &'static Script, echo: &str, keys: &[String]) -> Call {
        let config = self.config();
        Call::new(script, echo, keys)
            .arg(self.skew())
            .arg(record::millis(config.max_event_age))
            .arg(record::millis(config.max_silence))
            .arg(config.max_events_per_session)
            .arg(config.max_event_bytes_per_session)
            .arg(config.max_streams_per_session)
    }
}

fn done(reply: &mut Reply, word: &str) -> Result<(), StoreError> {
    match reply.text()?.as_str() {
        said if said == word => Ok(()),
        "fenced" => Err(StoreErrorKind::Fenced.into()),
        "full" => Err(StoreErrorKind::Full.into()),
        "corrupt" => Err(StoreErrorKind::Corrupt.into()),
        _ => Err(Fault::Misread("a word that is no answer").into()),
    }
}

fn snapshot(
    reply: &mut Reply,
    key: &StreamKey,
    after: Seq,
    page: Page,
) -> Result<Snapshot, StoreError> {
    let header = blob::read_header(&reply.bytes()?, key)?;
    let head = Seq::new(reply.number()?);
    let ending = match reply.text()?.as_str() {
        "" => None,
        said => Some(ending(said)?),
    };
    let gap = match reply.text()?.as_str() {
        "" => None,
        number => Some(Seq::new(
            number.parse().map_err(|_| Fault::Misread("no number"))?,
        )),
    };
    let mut about = HashMap::new();
    let mut subjects = Vec::new();
    let mut told = reply.list()?;
    while told.left() > 0 {
        let first = told.number()?;
        for (number, subject) in blob::subjects(&told.text()?)? {
            // What was there already when the rest was added is no part of it.
            if number >= first && number > after.get() {
                about.insert(number, subject.clone());
                subjects.push((Seq::new(number), subject));
            }
        }
    }
    let (mut firsts, mut blobs) = (reply.list()?, reply.list()?);
    let (mut events, mut bytes, mut next) = (Vec::<Event>::new(), 0usize, after.get() + 1);
    'page: while firsts.left() > 0 {
        let first = firsts.number()?;
        for mut event in blob::events(blobs.bytes()?, first.max(next))? {
            bytes = bytes.saturating_add(event.bytes.len());
            let full = events.len() >= page.events || bytes > page.bytes;
            if full && !events.is_empty() {
                break 'page;
            }
            event.subject = about.remove(&next).unwrap_or(Subject::Nothing);
            events.push(event);
            next += 1;
        }
    }
    Ok(Snapshot::new(header, head, ending, gap, events, subjects))
}

fn ending(said: &str) -> Result<Ending, Fault> {
    let word = said.split_once(' ').map(|(_, word)| word);
    let all = Ending::ALL.iter().copied();
    all.into_iter()
        .find(|ending| Some(ending.as_str()) == word)
        .ok_or(Fault::Misread("an ending that is none"))
}
