//! What holds a body back while it is in doubt whose the session is.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use event_listener::EventListener;

use super::{Proof, Serving, Shared};

/// A body's hold on the session that it belongs to.
#[derive(Debug)]
pub(crate) struct Guard {
    serving: Serving,
    shared: Arc<Shared>,
    changed: Option<EventListener>,
}

/// The session is not this instance's any more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotOurs;

impl Guard {
    #[inline]
    pub(crate) fn new(serving: Serving, shared: Arc<Shared>) -> Self {
        Self {
            serving,
            shared,
            changed: None,
        }
    }

    /// Ready when something may be let out: `Ok` while the session is proven, `Err` once it is lost.
    pub(crate) fn poll_proof(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NotOurs>> {
        loop {
            match self.serving.proof(&self.shared) {
                Proof::Good => return Poll::Ready(Ok(())),
                Proof::Lost => return Poll::Ready(Err(NotOurs)),
                Proof::Doubtful => {
                    if self.changed.is_none() {
                        self.changed = Some(self.serving.session().listen());
                        self.shared.poke();
                        // It may have changed before it was listened to.
                        continue;
                    }
                    ready!(self.poll_changed(cx));
                }
            }
        }
    }

    /// Ready when the proof may have changed.
    pub(crate) fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let session = self.serving.session();
        let changed = self.changed.get_or_insert_with(|| session.listen());
        ready!(Pin::new(changed).poll(cx));
        self.changed = None;
        Poll::Ready(())
    }
}
