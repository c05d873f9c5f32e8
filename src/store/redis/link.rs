//! Connections: one for each runtime that calls, made when it is needed and made again when it broke.
//!
//! A multiplexed connection is driven by a task of the runtime that made it. An instance beats on a runtime of its own so
//! that request handlers, however they block, do not cost it the lease; on a connection that their runtime drives they
//! would. So each runtime has its own, and within it all calls share one: replies come in the order of calls, a call
//! whose future is dropped leaves nothing behind, and what is called at once travels together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::{
    runtime::{Handle, Id},
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    fault::Fault,
    wire::{Source, Wire},
};

/// How soon after a failed attempt another one is made.
const PAUSE: Duration = Duration::from_millis(100);

/// Which runtime, and whether its calls wait for replicas.
type Place = (Id, bool);

type Attempt = Shared<BoxFuture<'static, Result<Wire, Fault>>>;

/// The connections of one store.
#[derive(Debug)]
pub(super) struct Links {
    source: Arc<Source>,
    links: Arc<Mutex<HashMap<Place, Arc<Link>>>>,
    /// Dropped with the store, which ends the task that watches over each runtime.
    store: watch::Sender<()>,
}

impl Links {
    pub(super) fn new(source: Source) -> Self {
        Self {
            source: Arc::new(source),
            links: Arc::default(),
            store: watch::Sender::new(()),
        }
    }

    /// The link of the runtime that calls; another one for calls that wait for replicas.
    pub(super) fn here(&self, waits: bool) -> Arc<Link> {
        let runtime = Handle::current();
        let place = (runtime.id(), waits);
        let mut links = lock(&self.links);
        if let Some(link) = links.get(&place) {
            return Arc::clone(link);
        }
        let link = Arc::new(Link::new(Arc::clone(&self.source)));
        links.insert(place, Arc::clone(&link));
        drop(links);
        // The task is dropped with its runtime, and the guard with the task.
        let (guard, mut store) = (
            Guard {
                links: Arc::downgrade(&self.links),
                place,
            },
            self.store.subscribe(),
        );
        runtime.spawn(async move {
            let _guard = guard;
            let _ = store.changed().await;
        });
        link
    }
}

/// Takes a runtime's link out when the runtime is gone.
struct Guard {
    links: Weak<Mutex<HashMap<Place, Arc<Link>>>>,
    place: Place,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(links) = self.links.upgrade() {
            let gone = lock(&links).remove(&self.place);
            drop(gone);
        }
    }
}

/// The connection of one runtime, if there is one.
#[derive(Debug)]
pub(super) struct Link {
    source: Arc<Source>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts connections, so that whoever saw one break does not take the next one away.
    serial: u64,
    live: Option<Live>,
    attempt: Option<Attempt>,
    failed: Option<(Instant, Fault)>,
}

#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) wire: Wire,
    serial: u64,
    /// Since when somebody waits for a reply, and none came.
    waiting: Option<Instant>,
}

impl Link {
    fn new(source: Arc<Source>) -> Self {
        Self {
            source,
            state: Mutex::default(),
        }
    }

    /// The connection that there is, or the one that is being made. All who need one wait for the same attempt, which
    /// goes on without them.
    pub(super) async fn live(self: &Arc<Self>) -> Result<Live, Fault> {
        let attempt = {
            let mut state = lock(&self.state);
            if let Some(live) = &mut state.live {
                // Whoever waited may have given up, so the next one sees that nobody may be there any more.
                let since = *live.waiting.get_or_insert_with(Instant::now);
                if since.elapsed() < self.source.response_deadline() {
                    return Ok(live.clone());
                }
                state.live = None;
            }
            if let Some((at, fault)) = &state.failed
                && at.elapsed() < PAUSE
            {
                return Err(fault.clone());
            }
            match &state.attempt {
                Some(attempt) => attempt.clone(),
                None => state.attempt.insert(self.attempt()).clone(),
            }
        };
        let made = attempt.await;
        let mut state = lock(&self.state);
        // One that panicked has not settled anything.
        state.attempt.take_if(|attempt| attempt.peek().is_some());
        made?;
        // It may have broken since.
        let live = state.live.as_mut().ok_or(Fault::Late("connection"))?;
        live.waiting.get_or_insert_with(Instant::now);
        Ok(live.clone())
    }

    fn attempt(self: &Arc<Self>) -> Attempt {
        let link = Arc::clone(self);
        let task = tokio::spawn(async move {
            let limit = link.source.connect_deadline();
            let made = timeout(limit, link.source.connect())
                .await
                .unwrap_or(Err(Fault::Late("connection")));
            link.settle(made)
        });
        let attempt = async move { task.await.unwrap_or(Err(Fault::Late("connection"))) };
        attempt.boxed().shared()
    }

    fn settle(&self, made: Result<Wire, Fault>) -> Result<Wire, Fault> {
        let mut state = lock(&self.state);
        state.attempt = None;
        match &made {
            Ok(wire) => {
                state.serial += 1;
                state.failed = None;
                state.live = Some(Live {
                    wire: wire.clone(),
                    serial: state.serial,
                    waiting: None,
                });
                tracing::debug!("connected to the store");
            }
            Err(fault) => {
                tracing::debug!(%fault, "no connection to the store");
                state.failed = Some((Instant::now(), fault.clone()));
            }
        }
        made
    }

    /// A reply came over this connection.
    pub(super) fn heard(&self, live: &Live) {
        if let Some(now) = lock(&self.state).same(live) {
            now.waiting = None;
        }
    }

    /// This connection is of no use any more.
    pub(super) fn discard(&self, live: &Live) {
        let mut state = lock(&self.state);
        if state.same(live).is_some() {
            state.live = None;
        }
    }
}

impl State {
    fn same(&mut self, live: &Live) -> Option<&mut Live> {
        self.live.as_mut().filter(|now| now.serial == live.serial)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
