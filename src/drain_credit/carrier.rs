//! HTTP+SSE (MCP 2024-11-05): one stream carries all answers of a session, and says by itself which session it is.

use std::{borrow::Cow, fmt, sync::Arc};

use http::{HeaderMap, Uri};

use super::{queue::Queue, ticket::Core};
use crate::outbox::Lever;

/// Finds the session of a request that has no session header.
pub(super) type SessionOf =
    dyn for<'a> Fn(&'a Uri, &'a HeaderMap) -> Option<Cow<'a, str>> + Send + Sync;

/// What is known of a stream before it has said whose it is.
pub(super) struct Carrier {
    pub(super) core: Arc<Core>,
    pub(super) session_of: Arc<SessionOf>,
    pub(super) max_id_len: usize,
    pub(super) shared: bool,
}

impl Carrier {
    /// The stream has said where its session's requests are to be sent.
    pub(super) fn account(&self, queue: &Arc<Queue>, endpoint: &Uri) {
        let headers = HeaderMap::new();
        let Some(session) = (self.session_of)(endpoint, &headers) else {
            return;
        };
        if session.is_empty() || session.len() > self.max_id_len {
            return;
        }
        if let Some(mut ticket) = self.core.enter(session.as_bytes()) {
            let lever = Arc::downgrade(&(Arc::clone(queue) as Arc<dyn Lever>));
            ticket.open(self.shared, lever, true);
            queue.account(ticket);
        }
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier").finish_non_exhaustive()
    }
}
