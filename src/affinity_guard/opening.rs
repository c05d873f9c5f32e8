//! How a session is opened: registered after the inner service minted its id, and before the client sees it.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response, header, request::Parts};
use http_body::Body;
use serde_json::Value;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tower::ServiceExt;
use tower_service::Service;

use super::{
    answer::{Answer, read_answer},
    body::ResponseBody,
    layer::Config,
};
use crate::{
    body::Replay,
    instance::{Lost, OwnedSession},
    mcp::{Envelope, header::SESSION_ID},
    rejection::Reason,
    session::{CapabilityHash, Principal, SessionId, SessionTerms},
    store::{Registered, SessionDirectory},
};

/// What is kept of a request that may open a session, until its answer is there.
pub(super) struct Opening {
    pub(super) config: Arc<Config>,
    /// The body, for what the client can do and for the id of a refusal; empty when it was not read.
    pub(super) request: Bytes,
    pub(super) principal: Option<Principal>,
    /// The lease under which it was dispatched, if there was one.
    pub(super) generation: Option<u64>,
}

/// Tells the inner service to close a session that could not be registered, as its client would. Returns whether it
/// answered.
pub(super) type Close = Box<dyn FnOnce(&SessionId) -> BoxFuture<'static, bool> + Send>;

/// A [`Close`] that sends a DELETE with the head of the request that opened the session.
pub(super) fn closer<S, B>(inner: S, mut parts: Parts) -> Close
where
    S: Service<Request<Replay<B>>> + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Error: Send,
{
    Box::new(move |id| {
        parts.method = Method::DELETE;
        for name in [
            header::CONTENT_LENGTH,
            header::CONTENT_TYPE,
            header::TRANSFER_ENCODING,
        ] {
            parts.headers.remove(name);
        }
        // Every character of a session id may stand in a header.
        if let Ok(value) = id.as_str().parse() {
            parts.headers.insert(SESSION_ID, value);
        }
        let request = Request::from_parts(parts, Replay::empty());
        inner.oneshot(request).map(|closed| closed.is_ok()).boxed()
    })
}

/// Whether the response to a request that presented `presented` opens a session.
#[inline]
pub(super) fn opens<R>(response: &Response<R>, presented: Option<&[u8]>) -> bool {
    // Compared, not hashed: an answer has few headers.
    response.headers().iter().any(|(name, id)| {
        name == SESSION_ID && presented.is_none_or(|presented| id.as_bytes() != presented)
    })
}

impl Opening {
    /// Registers the session that `response` opens and gives the response back, or a refusal.
    ///
    /// # Cancel safety
    ///
    /// Runs to its end on a task of its own. If the caller is dropped, nobody will see the id, and the session is
    /// ended in the directory and closed in the inner service.
    pub(super) async fn open<R>(
        self,
        response: Response<R>,
        close: Option<Close>,
    ) -> Response<ResponseBody<R>>
    where
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Send,
    {
        let refusal = self.refuse("the session could not be opened");
        let (done, opened) = oneshot::channel();
        tokio::spawn(async move {
            let config = Arc::clone(&self.config);
            let attempt = self.attempt(response).await;
            let leftover = match attempt {
                Attempt::None(response) => return drop(done.send(response)),
                Attempt::Opened(response, session) => match done.send(response) {
                    Ok(()) => return,
                    Err(_) => {
                        let shared = config.instance.shared();
                        let fence = Some(session.fence());
                        // Ended here whatever comes of it; the heartbeat repeats what fails.
                        let _ = shared.end(&session, fence, Lost::Deleted).await;
                        session.id()
                    }
                },
                Attempt::Refused(response, id) => {
                    let _ = done.send(response);
                    match id {
                        Some(id) => id,
                        None => return,
                    }
                }
            };
            if let Some(close) = close {
                let closing = timeout(config.answer_deadline, close(&leftover));
                if !closing.await.unwrap_or(false) {
                    tracing::warn!(session = ?leftover, "the inner service kept a session that nobody has");
                }
            }
        });
        opened.await.unwrap_or(refusal)
    }

    async fn attempt<R>(&self, response: Response<R>) -> Attempt<R>
    where
        R: Body<Data = Bytes>,
    {
        let config = &*self.config;
        let shared = config.instance.shared();
        let id = response.headers().get(SESSION_ID).and_then(|value| {
            let presentable = SessionId::is_presentable(value.as_bytes(), config.max_id_len);
            SessionId::parse_with_limit(value, config.max_id_len)
                .ok()
                .filter(|_| presentable)
        });
        let Some(id) = id else {
            tracing::error!("the inner service minted a session id that no request could carry");
            return Attempt::Refused(
                self.refuse("the inner service minted an unusable session id"),
                None,
            );
        };
        let (mut parts, body) = response.into_parts();
        let deadline = Instant::now() + config.answer_deadline;
        let (body, answer) = if parts.status.is_success() {
            read_answer(&parts.headers, body, config.body_limit, deadline).await
        } else {
            (Replay::live(body), None)
        };
        let failed = answer
            .as_ref()
            .is_some_and(|answer| answer.result.is_none());
        if failed || !parts.status.is_success() {
            // The inner service refused. Some clients adopt an id from a refusal, so it must not carry one.
            parts.headers.remove(SESSION_ID);
            let response = Response::from_parts(parts, ResponseBody::inner(body, None));
            return Attempt::None(response);
        }
        match self.register(&id, answer.as_ref()).await {
            Ok(session) => {
                let session = Arc::new(session);
                shared.adopt(Arc::clone(&session));
                let response = Response::from_parts(parts, ResponseBody::inner(body, None));
                Attempt::Opened(response, session)
            }
            Err(detail) => Attempt::Refused(self.refuse(detail), Some(id)),
        }
    }

    async fn register(
        &self,
        id: &SessionId,
        answer: Option<&Answer>,
    ) -> Result<OwnedSession, &'static str> {
        let shared = self.config.instance.shared();
        let generation = self
            .generation
            .ok_or("the instance held no lease when the session was opened")?;
        let capabilities = answer.and_then(|answer| self.negotiated(answer.result.as_ref()?));
        if let Some(capabilities) = &capabilities {
            shared.set_offer(capabilities.offer());
        }
        let mut terms = SessionTerms::new(self.config.residency)
            .with_capabilities(capabilities)
            .with_principal(self.principal.clone())
            .with_retention(shared.retention());
        terms.opened = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis().try_into().unwrap_or(u64::MAX));
        let call = shared.directory().register(id, shared.id(), &terms);
        let fence = match timeout(self.config.store_deadline, call).await {
            Ok(Ok(Registered::Recorded(fence))) => fence,
            Ok(Ok(Registered::Occupied)) => return Err("the directory has a session of that id"),
            Ok(Ok(Registered::NoLease)) => return Err("the instance's lease has lapsed"),
            Ok(Err(error)) => return Err(error.kind().as_str()),
            Err(_) => return Err("the directory did not reply in time"),
        };
        let now = shared.now();
        let session = OwnedSession::new(id.clone(), terms, fence, generation, now, true);
        if shared.tenancy() != Some(generation) {
            // The lease was not unbroken. The record is undone if the directory can be reached, and otherwise
            // orphaned, for nobody has seen the id.
            let undo = shared.directory().terminate(id, Some(fence));
            let _ = timeout(self.config.store_deadline, undo).await;
            return Err("the instance's lease lapsed while the session was opened");
        }
        Ok(session)
    }

    /// What was negotiated, if both halves of the handshake were seen.
    fn negotiated(&self, result: &Value) -> Option<CapabilityHash> {
        let envelope = Envelope::parse(&self.request).ok()?;
        let asked = envelope.find_request("initialize")?.capabilities();
        let client = serde_json::from_str(asked.unwrap_or("{}")).ok()?;
        let version = result.get("protocolVersion")?.as_str()?;
        let nothing = Value::Object(serde_json::Map::new());
        let server = result.get("capabilities").unwrap_or(&nothing);
        CapabilityHash::new(version, &client, server).ok()
    }

    fn refuse<R: Body>(&self, detail: &'static str) -> Response<ResponseBody<R>> {
        let envelope = Envelope::parse(&self.request).ok();
        self.config
            .reject(Reason::SessionUnconfirmed, detail)
            .answer(envelope.as_ref())
            .map(ResponseBody::refusal)
    }
}

enum Attempt<R: Body> {
    /// The inner service opened no session after all.
    None(Response<ResponseBody<R>>),
    /// It is registered.
    Opened(Response<ResponseBody<R>>, Arc<OwnedSession>),
    /// It could not be registered; the inner service still has it, if it can be named.
    Refused(Response<ResponseBody<R>>, Option<SessionId>),
}
