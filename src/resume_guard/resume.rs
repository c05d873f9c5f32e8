//! One attempt to resume: gathers the facts, all of the stream's from one snapshot, and holds the client while what
//! has to be known is not known.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    authorize::{Facts, Logged, Ownership, Plan, Refusal, authorize},
    carry::seal,
    layer::{Config, LogReach},
};
use crate::{
    instance::{Admission, Running, Serving},
    outbox::{Cursor, Stream, Streams, within},
    session::SessionId,
    store::{EventStore, Lookup, SessionDirectory, Snapshot, StoreErrorKind},
};

/// How long to wait before what was not known is asked for again.
const WAIT: Duration = Duration::from_millis(100);

pub(super) struct Attempt<'a> {
    config: &'a Config,
    id: &'a SessionId,
    cursor: &'a Cursor,
    streams: Streams,
}

/// A resume that was authorized.
pub(super) struct Proven {
    pub(super) plan: Plan,
    pub(super) serving: Serving,
    pub(super) snapshot: Snapshot,
    /// The stream, if its producer is still at work here.
    pub(super) live: Option<Arc<Stream>>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(config: &'a Config, id: &'a SessionId, cursor: &'a Cursor) -> Self {
        Self {
            config,
            id,
            cursor,
            streams: config.outbox.sessions.enter(id),
        }
    }

    pub(super) async fn run(self) -> Result<Proven, Refusal> {
        let deadline = Instant::now() + self.config.resume_deadline;
        loop {
            match self.once().await {
                Err(Refusal::Unconfirmed) if Instant::now() < deadline => sleep(WAIT).await,
                outcome => return outcome,
            }
        }
    }

    async fn once(&self) -> Result<Proven, Refusal> {
        let shared = &self.config.outbox.shared;
        let (ownership, serving) = match shared.admit(self.id.as_str().as_bytes(), Running::Stream)
        {
            Admission::Proven(serving) | Admission::Unrestored(serving) => {
                (Ownership::Proven, Some(serving))
            }
            Admission::Unproven => {
                shared.poke();
                (Ownership::Unconfirmed, None)
            }
            Admission::Over(_) => (Ownership::Unknown, None),
            Admission::Unknown => (self.elsewhere().await, None),
        };
        // Found before the log is read: what is published after the snapshot is in its window.
        let live = self.live();
        let read = match &serving {
            Some(serving) if !self.cursor.terminal => self.read(serving).await,
            _ => Ok(None),
        };
        let terms = serving.as_ref().map(|serving| &serving.session().terms);
        let plan = authorize(&Facts {
            cursor: self.cursor,
            ownership,
            residency: terms.map(|terms| terms.residency).unwrap_or_default(),
            negotiated: terms.and_then(|terms| terms.capabilities),
            offer: shared.offer(),
            epoch: shared.id().epoch(),
            shared_log: self.config.reach == LogReach::Shared,
            log: match &read {
                Ok(Some(snapshot)) => Logged::Stream(snapshot),
                Ok(None) => Logged::Absent,
                Err(kind) => {
                    tracing::warn!(why = kind.as_str(), "the log could not be read");
                    Logged::Unknown
                }
            },
            live: live.is_some(),
            waited_for: &|question| self.streams.is_awaited(question),
        })?;
        match (serving, read) {
            (Some(serving), Ok(Some(snapshot))) => Ok(Proven {
                plan,
                serving,
                snapshot,
                live,
            }),
            // Nothing is authorized without either.
            _ => Err(Refusal::Unconfirmed),
        }
    }

    /// A session that this instance does not have is not therefore absent.
    async fn elsewhere(&self) -> Ownership {
        let outbox = &self.config.outbox;
        let lookup = outbox.shared.directory().lookup(self.id);
        match within(outbox.settings.store_deadline, lookup).await {
            Ok(Lookup::Absent | Lookup::Terminated) => Ownership::Unknown,
            Ok(Lookup::Owned { .. } | Lookup::Orphaned(_)) => Ownership::Foreign,
            Err(_) => Ownership::Unconfirmed,
        }
    }

    fn live(&self) -> Option<Arc<Stream>> {
        let own = self.cursor.epoch == self.config.outbox.shared.id().epoch();
        self.streams.find(self.cursor.stream).filter(|_| own)
    }

    async fn read(&self, serving: &Serving) -> Result<Option<Snapshot>, StoreErrorKind> {
        seal(self.config, serving, self.id).await?;
        let outbox = &self.config.outbox;
        let key = self.cursor.key(self.id);
        let read = outbox
            .events
            .read_after(&key, self.cursor.seq, outbox.settings.page);
        within(outbox.settings.store_deadline, read)
            .await
            .map_err(|error| error.kind())
    }
}
