//! The slow path: whatever has to wait for a body, for the directory, or for another request.

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, request::Parts};
use http_body::Body;
use tokio::time::Instant;
use tower::ServiceExt;
use tower_service::Service;

use super::{
    Disposition,
    body::{BoxError, ResponseBody},
    decide::{Directory, Facts, Local, Request as Kind, Verdict, decide},
    hand_over::HandOver,
    layer::Config,
    resume::Resume,
    service::local,
    steps::Steps,
};
use crate::{
    body::{Finding, ReadBody, Replay, read, read_past},
    instance::Proof,
    mcp::{
        Envelope, Era,
        header::{OWNER, SESSION_ID},
    },
    rejection::Reason,
    session::{Principal, SessionId},
};

/// How often the facts may change under one request before it is refused.
const MAX_STEPS: usize = 16;

/// A request on the slow path.
pub(super) struct Slow<S> {
    pub(super) config: Arc<Config>,
    pub(super) inner: S,
    pub(super) facts: Facts,
    pub(super) id: Option<SessionId>,
    pub(super) principal: Option<Principal>,
    /// Whether another instance has handed it on.
    pub(super) forwarded: bool,
}

/// The body of a request, read or not.
pub(super) enum RequestBody<B: Body> {
    Unread(B),
    Read(ReadBody<B>),
}

impl<B: Body> RequestBody<B> {
    pub(super) fn bytes(&self) -> Bytes {
        match self {
            Self::Unread(_) => Bytes::new(),
            Self::Read(read) => read.bytes.clone(),
        }
    }

    /// The body itself; what was read of it stays known. Only a GET, which has none, may be sent again after that.
    fn send(&mut self) -> Replay<B> {
        let spent = Self::Read(ReadBody {
            bytes: self.bytes(),
            finding: Finding::Ended,
            replay: Replay::empty(),
        });
        std::mem::replace(self, spent).replay()
    }

    pub(super) fn replay(self) -> Replay<B> {
        match self {
            Self::Unread(body) => Replay::live(body),
            Self::Read(read) => read.replay,
        }
    }
}

impl<S> Slow<S> {
    pub(super) async fn run<B, R>(
        mut self,
        mut parts: Parts,
        body: B,
    ) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let resume = Resume::of(&parts, &self.config);
        let mut body = RequestBody::Unread(body);
        let mut steps = Steps::new(&self.config, self.id.take(), &parts.method);
        let subject = self.principal.clone();
        let subject = subject.as_ref().map(Principal::subject);
        let mut left = MAX_STEPS;
        loop {
            if let Some(local) = steps.learned.take() {
                self.facts.local = local;
            }
            self.facts.lease = self.config.instance.shared().holds_lease();
            let verdict = match left {
                0 => Verdict::Refuse(
                    Reason::SessionUnconfirmed,
                    "the session changed hands too often while the request waited",
                ),
                _ => decide(&self.facts),
            };
            left = left.saturating_sub(1);
            let (reason, detail) = match verdict {
                Verdict::ReadBody => {
                    body = self.read_body(body).await;
                    continue;
                }
                Verdict::AskDirectory => {
                    self.facts.directory = steps.ask(subject).await;
                    self.facts.forwards = self.config.forwarder.is_some()
                        && !self.forwarded
                        && steps.owner().is_some();
                    continue;
                }
                Verdict::TakeOver => {
                    self.facts.directory = steps.take_over().await;
                    continue;
                }
                Verdict::Bury => {
                    self.facts.directory = steps.bury().await;
                    continue;
                }
                Verdict::End => {
                    self.facts.directory = steps.end().await;
                    continue;
                }
                Verdict::Pass => return self.pass(parts, body).await,
                Verdict::PassBare => {
                    parts.headers.remove(SESSION_ID);
                    return self.pass(parts, body).await;
                }
                Verdict::PassStateless => {
                    parts.headers.remove(SESSION_ID);
                    parts.extensions.insert(Disposition::Stateless);
                    return self.pass(parts, body).await;
                }
                Verdict::PassOpening => {
                    parts.headers.remove(SESSION_ID);
                    return self.pass_opening(parts, body).await;
                }
                Verdict::PassOwned => match steps.admit().await {
                    Err(detail) => (Reason::SessionUnconfirmed, detail),
                    Ok((admission, restorer)) => {
                        self.facts.directory = Directory::NotAsked;
                        let serving;
                        (self.facts.local, serving) = local(&self.config, admission, subject);
                        // The look in the table that let it in here may be long ago.
                        let Some(mut serving) = serving else { continue };
                        let mut ready = self.inner.clone();
                        ready.ready().await?;
                        if serving.proof(self.config.instance.shared()) != Proof::Good {
                            self.facts.local = Local::Unproven;
                            continue;
                        }
                        return self.pass_owned(ready, parts, body, serving, restorer).await;
                    }
                },
                Verdict::Forward => {
                    let handing = HandOver::new(&self.config, &steps, parts.clone());
                    match handing.run(body.send()).await {
                        Ok(response) => return Ok(response),
                        Err(refused) => refused,
                    }
                }
                Verdict::Refuse(reason, detail) => (reason, detail),
            };
            if self.facts.request == Kind::TooLarge {
                let deadline = Instant::now() + self.config.answer_deadline;
                let id = read_past(body.replay(), self.config.body_limit, deadline).await;
                let rejection = self.config.reject(reason, detail);
                let answer = rejection.answer_id(id.as_ref());
                return Ok(answer.map(ResponseBody::refusal));
            }
            if reason != Reason::SessionUnconfirmed || !resume.holds().await {
                return Ok(self.refuse(&steps, &body, &resume, reason, detail));
            }
            // All that is known is asked for anew.
            left = MAX_STEPS;
            self.facts.directory = Directory::NotAsked;
            self.facts.local = steps.look(subject);
        }
    }

    async fn read_body<B>(&mut self, body: RequestBody<B>) -> RequestBody<B>
    where
        B: Body<Data = Bytes>,
    {
        let RequestBody::Unread(body) = body else {
            self.facts.request = Kind::Other;
            return body;
        };
        let deadline = Instant::now() + self.config.answer_deadline;
        let read = read(body, self.config.body_limit, deadline, |_| {
            ControlFlow::Continue(())
        })
        .await;
        let envelope = match read.finding {
            Finding::Ended => Envelope::parse(&read.bytes).ok(),
            _ => None,
        };
        self.facts.request = match &envelope {
            None if read.finding == Finding::TooLarge => Kind::TooLarge,
            // What cannot be read has no session of its own to open; the inner service says what is wrong with it.
            None => Kind::Other,
            Some(envelope) if envelope.find_request("initialize").is_some() => Kind::Initialize,
            Some(envelope) if self.config.self_contained.covers(envelope) => Kind::SelfContained,
            Some(_) => Kind::Other,
        };
        if self.facts.request == Kind::Initialize {
            self.facts.era = Era::Legacy;
        } else if envelope.is_some_and(|envelope| envelope.is_modern()) {
            self.facts.era = Era::Modern;
        }
        RequestBody::Read(read)
    }

    fn refuse<B: Body, R: Body>(
        &self,
        steps: &Steps,
        body: &RequestBody<B>,
        resume: &Resume,
        reason: Reason,
        detail: &'static str,
    ) -> Response<ResponseBody<R>> {
        let bytes = body.bytes();
        let envelope = Envelope::parse(&bytes).ok();
        tracing::debug!(%reason, detail, session = ?steps.id(), "refused");
        if reason == Reason::SessionNotFound {
            self.config.instance.shared().counters().count_not_found();
        }
        let rejection = self.config.reject(reason, detail);
        let mut response = resume
            .refuse(&rejection)
            .unwrap_or_else(|| rejection.answer(envelope.as_ref()))
            .map(ResponseBody::refusal);
        if reason == Reason::SessionReassigned
            && self.config.owner_hint
            && let Some(record) = steps.record()
            && let Ok(owner) = HeaderValue::from_str(record.owner.name())
        {
            response.headers_mut().insert(OWNER, owner);
        }
        response
    }
}
