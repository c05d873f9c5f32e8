//! The streams of each session that are open on this instance, and what the server has asked on them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hashbrown::HashMap;

use super::stream::Stream;
use crate::{mcp::RequestId, session::SessionId};

/// How many questions of a server are remembered while its client has not answered them.
const MAX_QUESTIONS: usize = 1024;

/// Every session that has an open stream here, for as long as it has one.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_id: Mutex<HashMap<SessionId, Arc<Session>>>,
}

#[derive(Debug)]
struct Session {
    id: SessionId,
    live: Mutex<Live>,
    /// Held while a standalone stream is opened, so that the inner service is asked for one only.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Live {
    users: usize,
    streams: Vec<Arc<Stream>>,
    questions: VecDeque<RequestId>,
}

/// One user of a session's streams; the last one to go takes the entry along.
#[derive(Debug)]
pub(crate) struct Streams {
    sessions: Arc<Sessions>,
    session: Arc<Session>,
}

impl Sessions {
    fn by_id(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The streams of a session, as one of their users.
    pub(crate) fn enter(self: &Arc<Self>, id: &SessionId) -> Streams {
        let mut by_id = self.by_id();
        let session = match by_id.get(id) {
            Some(session) => Arc::clone(session),
            None => {
                let session = Arc::new(Session {
                    id: id.clone(),
                    live: Mutex::default(),
                    opening: tokio::sync::Mutex::default(),
                });
                by_id.insert(id.clone(), Arc::clone(&session));
                session
            }
        };
        session.live().users += 1;
        Streams {
            sessions: Arc::clone(self),
            session,
        }
    }

    /// The client has answered a question of the server's.
    pub(crate) fn answered(&self, id: &SessionId, question: &RequestId) {
        let session = self.by_id().get(id).cloned();
        if let Some(session) = session {
            session.live().questions.retain(|asked| asked != question);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id().is_empty()
    }
}

impl Session {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
    pub(crate) fn id(&self) -> &SessionId {
        &self.session.id
    }

    /// How many streams are open.
    pub(crate) fn len(&self) -> usize {
        self.session.live().streams.len()
    }

    pub(crate) fn add(&self, stream: Arc<Stream>) {
        self.session.live().streams.push(stream);
    }

    pub(crate) fn remove(&self, stream: &Arc<Stream>) {
        self.session
            .live()
            .streams
            .retain(|open| !Arc::ptr_eq(open, stream));
    }

    /// The stream with this number, if it is open.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Stream>> {
        self.find_by(|stream| stream.header().key.stream == number)
    }

    /// The session's own stream, if it is open.
    pub(crate) fn standalone(&self) -> Option<Arc<Stream>> {
        self.find_by(|stream| stream.header().requests.is_empty() && !stream.is_over())
    }

    fn find_by(&self, wanted: impl Fn(&Stream) -> bool) -> Option<Arc<Stream>> {
        let live = self.session.live();
        live.streams.iter().find(|stream| wanted(stream)).cloned()
    }

    /// The server has asked its client something.
    pub(crate) fn asked(&self, question: &RequestId) {
        let mut live = self.session.live();
        if live.questions.len() == MAX_QUESTIONS {
            live.questions.pop_front();
        }
        live.questions.push_back(question.clone());
    }

    /// Whether the client has yet to answer this.
    pub(crate) fn is_awaited(&self, question: &RequestId) -> bool {
        self.session.live().questions.contains(question)
    }

    /// Waits until nobody else is opening the standalone stream.
    pub(crate) async fn opening(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.session.opening.lock().await
    }
}

impl Clone for Streams {
    fn clone(&self) -> Self {
        self.session.live().users += 1;
        Self {
            sessions: Arc::clone(&self.sessions),
            session: Arc::clone(&self.session),
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        // In the order of `enter`, so that nobody enters between the look and the removal.
        let mut by_id = self.sessions.by_id();
        let mut live = self.session.live();
        live.users -= 1;
        if live.users == 0 {
            by_id.remove(&self.session.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_lives_as_long_as_its_users() {
        let sessions = Arc::new(Sessions::default());
        let id = SessionId::parse("s").unwrap();
        let first = sessions.enter(&id);
        let second = first.clone();
        drop(first);
        let question = RequestId::from_json("1").unwrap();
        second.asked(&question);
        assert!(second.is_awaited(&question));
        sessions.answered(&id, &question);
        assert!(!second.is_awaited(&question));
        drop(second);
        assert!(sessions.is_empty());
        sessions.answered(&id, &question);
    }
}
