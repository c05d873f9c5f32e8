//! What the slow path does in the directory for one session, all of it within one deadline.

use std::{future::Future, sync::Arc};

use http::Method;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, timeout_at},
};

use super::{
    decide::{Directory, Local, Offered},
    layer::Config,
    service::{local, running},
};
use crate::{
    instance::{Admission, Lost, OwnedSession, Shared},
    session::{InstanceId, SessionId, SessionRecord},
    store::{Bury, Lookup, SessionDirectory, StoreError, StoreErrorKind, TakeOver, Terminated},
};

/// Serializes take-overs of one session within this process, in a memory that does not grow with the ids that
/// clients make up.
#[derive(Debug, Clone)]
pub(super) struct Stripes(Arc<[Mutex<()>]>);

impl Stripes {
    pub(super) fn new() -> Self {
        Self((0..64).map(|_| Mutex::new(())).collect())
    }

    async fn lock(&self, id: &SessionId) -> MutexGuard<'_, ()> {
        let sum = id.as_str().bytes().fold(0u32, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u32::from(byte))
        });
        self.0[sum as usize % self.0.len()].lock().await
    }
}

pub(super) struct Steps {
    config: Arc<Config>,
    shared: Arc<Shared>,
    id: Option<SessionId>,
    method: Method,
    deadline: Option<Instant>,
    record: Option<SessionRecord>,
    /// Where the directory says that its owner can be reached.
    address: Option<Arc<str>>,
    /// What a step taught about the own table.
    pub(super) learned: Option<Local>,
}

impl Steps {
    pub(super) fn new(config: &Arc<Config>, id: Option<SessionId>, method: &Method) -> Self {
        Self {
            config: Arc::clone(config),
            shared: Arc::clone(config.instance.shared()),
            id,
            method: method.clone(),
            deadline: None,
            record: None,
            address: None,
            learned: None,
        }
    }

    pub(super) fn id(&self) -> Option<&SessionId> {
        self.id.as_ref()
    }

    /// What the directory said last.
    pub(super) fn record(&self) -> Option<&SessionRecord> {
        self.record.as_ref()
    }

    /// The owner that the directory named, and its address.
    pub(super) fn owner(&self) -> Option<(&InstanceId, &Arc<str>)> {
        Some((&self.record.as_ref()?.owner, self.address.as_ref()?))
    }

    /// Looks in the own table again, and forgets what the directory said.
    pub(super) fn look(&mut self, subject: Option<&str>) -> Local {
        (self.deadline, self.record, self.address) = (None, None, None);
        let Some(id) = &self.id else {
            return Local::Unknown;
        };
        let admission = self
            .shared
            .admit(id.as_str().as_bytes(), running(&self.method));
        local(&self.config, admission, subject).0
    }

    /// The clock of a request's deadline starts with its first step.
    fn deadline(&mut self) -> Instant {
        let limit = self.config.store_deadline;
        *self.deadline.get_or_insert_with(|| Instant::now() + limit)
    }

    async fn within<T>(
        deadline: Instant,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreErrorKind> {
        match timeout_at(deadline, call).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the directory did not say");
                Err(error.kind())
            }
            Err(_) => Err(StoreErrorKind::TimedOut),
        }
    }

    /// Whose is it?
    pub(super) async fn ask(&mut self, subject: Option<&str>) -> Directory {
        let deadline = self.deadline();
        let Some(id) = &self.id else {
            return Directory::Unknown(StoreErrorKind::Corrupt);
        };
        let lookup = Self::within(deadline, self.shared.directory().lookup(id)).await;
        self.address = None;
        let (record, live) = match lookup {
            Err(kind) => return Directory::Unknown(kind),
            Ok(Lookup::Terminated) => return Directory::Terminated,
            Ok(Lookup::Absent) => return Directory::Absent,
            Ok(Lookup::Owned { record, address }) => {
                self.address = address;
                (record, true)
            }
            Ok(Lookup::Orphaned(record)) => (record, false),
        };
        let directory = if self.config.is_bound_to_another(&record.terms, subject) {
            Directory::Foreign
        } else if live && record.owner != *self.shared.id() {
            Directory::Elsewhere
        } else {
            let offered = match (self.shared.offer(), record.terms.capabilities) {
                (_, None) => Offered::Different,
                (None, _) => Offered::Unknown,
                (Some(offer), Some(negotiated)) if negotiated.matches(&offer) => Offered::Same,
                _ => Offered::Different,
            };
            if live {
                Directory::Named(record.terms.residency, offered)
            } else {
                Directory::Orphaned(record.terms.residency, offered)
            }
        };
        self.record = Some(record);
        directory
    }

    /// Becomes the owner. Whoever comes second finds the session in the table.
    pub(super) async fn take_over(&mut self) -> Directory {
        let deadline = self.deadline();
        let (Some(id), Some(record)) = (self.id.clone(), self.record.take()) else {
            return Directory::NotAsked;
        };
        let lock = timeout_at(deadline, self.config.stripes.lock(&id)).await;
        let Ok(_lock) = lock else {
            return Directory::Unknown(StoreErrorKind::TimedOut);
        };
        if self.shared.knows(&id) {
            self.learned = Some(Local::Proven);
            return Directory::NotAsked;
        }
        let Some(generation) = self.shared.tenancy() else {
            return Directory::Unknown(StoreErrorKind::Fenced);
        };
        let shared = Arc::clone(&self.shared);
        let call = shared.directory().take_over(&id, record.fence, shared.id());
        match Self::within(deadline, call).await {
            Err(kind) => Directory::Unknown(kind),
            Ok(TakeOver::Lost) => Directory::NotAsked,
            // The lease was not unbroken: whatever was granted is granted again when it is asked for again.
            Ok(TakeOver::NoLease) => Directory::Unknown(StoreErrorKind::Fenced),
            Ok(TakeOver::Taken(_)) if shared.tenancy() != Some(generation) => {
                Directory::Unknown(StoreErrorKind::Fenced)
            }
            Ok(TakeOver::Taken(fence)) => {
                tracing::info!(session = ?id, %fence, "took a session over");
                let now = shared.now();
                let terms = record.terms;
                shared.adopt(Arc::new(OwnedSession::new(
                    id, terms, fence, generation, now, false,
                )));
                self.learned = Some(Local::Proven);
                Directory::NotAsked
            }
        }
    }

    /// Makes a 404 true before it is said.
    pub(super) async fn bury(&mut self) -> Directory {
        let deadline = self.deadline();
        let (Some(id), Some(record)) = (&self.id, self.record.take()) else {
            return Directory::NotAsked;
        };
        match Self::within(deadline, self.shared.directory().bury(id, record.fence)).await {
            Err(kind) => Directory::Unknown(kind),
            Ok(Bury::Lost) => Directory::NotAsked,
            Ok(Bury::Buried) => {
                self.shared.remember_tombstone(id.clone());
                Directory::Terminated
            }
        }
    }

    /// Ends what is over here, or what the directory says is here and is not.
    pub(super) async fn end(&mut self) -> Directory {
        let deadline = self.deadline();
        let Some(id) = self.id.clone() else {
            return Directory::NotAsked;
        };
        let shared = Arc::clone(&self.shared);
        match shared.admit(id.as_str().as_bytes(), running(&self.method)) {
            Admission::Over(session) => {
                if !session.is_ended() && !session.end_if_quiet() {
                    self.learned = Some(Local::Over);
                    return Directory::NotAsked;
                }
                let end = shared.end(&session, Some(session.fence()), Lost::Idle);
                match Self::within(deadline, end).await {
                    Ok(()) => Directory::Terminated,
                    // Not this instance's to end; the session has left the table, and is somebody else's to tell of.
                    Err(StoreErrorKind::Fenced) => {
                        self.learned = Some(Local::Unknown);
                        Directory::NotAsked
                    }
                    Err(kind) => Directory::Unknown(kind),
                }
            }
            Admission::Unknown => {
                let Some(record) = self.record.take() else {
                    return Directory::NotAsked;
                };
                let call = shared.directory().terminate(&id, Some(record.fence));
                match Self::within(deadline, call).await {
                    Err(kind) => Directory::Unknown(kind),
                    Ok(Terminated::Fenced) => Directory::NotAsked,
                    Ok(Terminated::Absent) => Directory::Absent,
                    Ok(Terminated::Ended) => {
                        shared.remember_tombstone(id);
                        Directory::Terminated
                    }
                }
            }
            admission => {
                self.learned = Some(local(&self.config, admission, None).0);
                Directory::NotAsked
            }
        }
    }

    /// Admits the request to the own table. Of those that come while a session waits to be rehydrated, one gets
    /// a [`Restorer`], and the others wait for it.
    pub(super) async fn admit(&mut self) -> Result<(Admission, Option<Restorer>), &'static str> {
        let deadline = self.deadline();
        let Some(id) = &self.id else {
            return Ok((Admission::Unknown, None));
        };
        loop {
            let serving = match self
                .shared
                .admit(id.as_str().as_bytes(), running(&self.method))
            {
                Admission::Unrestored(serving) => serving,
                admission => return Ok((admission, None)),
            };
            let session = Arc::clone(serving.session());
            let changed = session.listen();
            if session.begin_restore() {
                let restorer = Restorer {
                    session: Some(session),
                };
                return Ok((Admission::Proven(serving), Some(restorer)));
            }
            drop(serving);
            if session.is_unrestored() && timeout_at(deadline, changed).await.is_err() {
                return Err("another request is still rehydrating the session");
            }
        }
    }
}

/// The one request that has the inner service rehydrate a session. Dropped before it succeeds, the next is the one.
pub(super) struct Restorer {
    session: Option<Arc<OwnedSession>>,
}

impl Restorer {
    pub(super) fn finish(mut self, restored: bool) {
        if let Some(session) = self.session.take() {
            session.end_restore(restored);
        }
    }
}

impl Drop for Restorer {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.end_restore(false);
        }
    }
}
