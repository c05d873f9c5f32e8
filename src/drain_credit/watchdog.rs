//! The task that looks for streams which have stood still for too long, tears them down, and asks down the rest whether
//! anybody is there.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{runtime::Handle, sync::Notify, time::sleep};

use super::{accounts::Accounts, figures::Stalled, probe::Probes};
use crate::{
    clock::Timestamp,
    outbox::{Lever, Relief},
    session::SessionId,
};

/// Ends a session: in the directory, if there is an instance, and at the inner service.
pub(super) type Ender = Arc<dyn Fn(SessionId) -> BoxFuture<'static, ()> + Send + Sync>;

/// Whether the task runs, and how it is woken.
#[derive(Debug, Default)]
pub(super) struct Watch {
    state: AtomicU8,
    bell: Arc<Notify>,
}

const ABSENT: u8 = 0;
const ASLEEP: u8 = 1;
const AWAKE: u8 = 2;

/// Between two looks, at most and at least.
const LONGEST: Duration = Duration::from_millis(500);
const SHORTEST: Duration = Duration::from_millis(5);

impl Watch {
    /// Something is undrained, so somebody has to look. Without a runtime nobody does, and nothing is torn down.
    #[inline]
    pub(super) fn wake(accounts: &Arc<Accounts>) {
        if accounts.watch.state.load(Ordering::Acquire) != AWAKE {
            Self::rouse(accounts);
        }
    }

    #[cold]
    fn rouse(accounts: &Arc<Accounts>) {
        let watch = &accounts.watch;
        match watch.state.load(Ordering::Acquire) {
            ABSENT => {
                if let Ok(runtime) = Handle::try_current()
                    && watch.state.swap(AWAKE, Ordering::AcqRel) == ABSENT
                {
                    let present = Present(Arc::downgrade(accounts));
                    runtime.spawn(present.run(Arc::clone(&watch.bell)));
                }
            }
            ASLEEP if watch.state.swap(AWAKE, Ordering::AcqRel) == ASLEEP => {
                watch.bell.notify_one();
            }
            _ => {}
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The task waits without holding the accounts; it finds them gone and ends.
        self.bell.notify_one();
    }
}

/// The task; when its runtime goes, another one may take its place.
struct Present(Weak<Accounts>);

impl Drop for Present {
    fn drop(&mut self) {
        if let Some(accounts) = self.0.upgrade() {
            accounts.watch.state.store(ABSENT, Ordering::Release);
        }
    }
}

impl Present {
    async fn run(self, bell: Arc<Notify>) {
        loop {
            // First, since nothing can be overdue that has just begun: so it wakes no more often than it looks, however
            // often answers come and go.
            let Some(wait) = self.0.upgrade().map(|accounts| accounts.patience()) else {
                return;
            };
            sleep(wait).await;
            let Some(accounts) = self.0.upgrade() else {
                return;
            };
            if accounts.sweep() {
                accounts.watch.state.store(ASLEEP, Ordering::Release);
                // What came between the look and this found nobody asleep.
                if accounts.sweep() {
                    drop(accounts);
                    bell.notified().await;
                } else {
                    accounts.watch.state.store(AWAKE, Ordering::Release);
                }
            }
        }
    }
}

/// What is done once no lock is held.
#[derive(Default)]
struct Actions {
    tear: Vec<Weak<dyn Lever>>,
    relief: Vec<Relief>,
    ask: Probes,
    told: Vec<Stalled>,
    end: Vec<(Ender, SessionId)>,
}

impl Accounts {
    /// Until the next look.
    fn patience(&self) -> Duration {
        let longest = (self.terms.liveness.timeout / 4).min(LONGEST);
        let next = self.next.load(Ordering::Relaxed);
        let next = self.until(Timestamp::from_nanos(next));
        next.min(longest).max(SHORTEST)
    }

    /// Looks into each account, and does what is to be done. Whether there was nothing to look for.
    fn sweep(self: &Arc<Self>) -> bool {
        let mut quiet = true;
        let mut next = None;
        let mut actions = Actions::default();
        let now = self.now();
        for mut shard in self.shards() {
            for slot in shard
                .slots
                .iter_mut()
                .filter(|slot| !slot.account.is_quiet())
            {
                quiet = false;
                let mut overdue = Vec::new();
                let check = slot
                    .account
                    .check(&self.terms, now, |flow| overdue.push(flow));
                next = [next, check.next].into_iter().flatten().min();
                if self.terms.proven {
                    actions.ask.collect(slot, now);
                }
                let Some(session) = (!overdue.is_empty())
                    .then(|| SessionId::parse_with_limit(slot.key.as_bytes(), usize::MAX).ok())
                    .flatten()
                else {
                    continue;
                };
                let before = slot.account.undrained();
                for flow in &overdue {
                    slot.account.tear(*flow);
                    slot.asked.retain(|(asked, _)| asked != flow);
                    let lever = slot.levers.get(flow.index()).cloned().flatten();
                    actions.tear.extend(lever);
                }
                let after = slot.account.undrained();
                actions.relief.push(slot.relief());
                if let Some(ender) = slot.ender.as_ref().filter(|_| check.ends) {
                    actions.end.push((Arc::clone(ender), session.clone()));
                }
                actions.told.push(Stalled {
                    session,
                    streams: overdue.len(),
                    messages: before.0 - after.0,
                    bytes: before.1 - after.1,
                    session_ended: check.ends && slot.ender.is_some(),
                    timeout: self.terms.liveness.timeout,
                });
            }
        }
        self.act(actions);
        let next = next.map_or(u64::MAX, Timestamp::as_nanos);
        self.next.store(next, Ordering::Relaxed);
        quiet
    }

    fn act(self: &Arc<Self>, actions: Actions) {
        // First the streams: an inner service that is stuck on one of them cannot end its session.
        let levers = actions.tear.iter().filter_map(Weak::upgrade);
        levers.for_each(|lever| lever.tear_down());
        actions.relief.into_iter().for_each(Relief::wake);
        actions.ask.send();
        for stalled in actions.told {
            let count = |counter: &std::sync::atomic::AtomicU64, by: usize| {
                counter.fetch_add(by as u64, Ordering::Relaxed);
            };
            count(&self.counters.torn_down, stalled.streams);
            count(&self.counters.ended, usize::from(stalled.session_ended));
            tracing::warn!(
                streams = stalled.streams,
                messages = stalled.messages,
                session_ended = stalled.session_ended,
                "streams that did not drain were torn down"
            );
            if let Some(hook) = &self.hook {
                // A hook that panics must not take the task along.
                let told = catch_unwind(AssertUnwindSafe(|| hook(&stalled)));
                if told.is_err() {
                    tracing::error!("the hook for stalled sessions panicked");
                }
            }
        }
        for (ender, session) in actions.end {
            tokio::spawn(ender(session));
        }
    }
}
