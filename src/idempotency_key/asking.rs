//! Before a call is dispatched: its body is read, its key is claimed, and what is known of the key is told.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use bytes::Bytes;
use event_listener::EventListener;
use http::{HeaderMap, Request, Response, header, request::Parts};
use http_body::Body;
use tokio::time::{Instant, timeout};
use tower::ServiceExt;
use tower_service::Service;

use super::{
    answer::{refuse, refuse_unread, replay},
    body::{BoxError, Lesson, ResponseBody},
    claim::{Asked, Claimed, ask},
    claims::Waiting as Place,
    decide::{Facts, Key, Ledger, Request as Kind, Verdict, Waiting, decide},
    downstream::DownstreamKey,
    fingerprint::{Scope, origin, request_key},
    future::{Detached, Run, Step},
    key::Found,
    layer::Config,
    request::{Call, Read, may_be_keyed},
    run::{is_json_type, run},
};
use crate::{
    body::{Finding, ReadBody, Replay, read, read_past},
    mcp::{Era, Marks, Presented},
    session::Head,
    store::{Begun, KeyClaim, Reply},
};

/// The waits between two looks at a call that runs elsewhere.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// A POST on its way.
pub(super) struct Asking<S> {
    pub(super) config: Arc<Config>,
    pub(super) inner: S,
    pub(super) era: Era,
    pub(super) parts: Parts,
}

/// What the body of a POST is, and whose key it has.
struct Seen {
    kind: Kind,
    key: Key,
    keyed: Option<Keyed>,
}

/// A call with a key that belongs to somebody.
struct Keyed {
    claim: KeyClaim,
    id: Box<str>,
    session_free: bool,
    detaches: bool,
}

impl Seen {
    fn nothing(kind: Kind, key: Key) -> Self {
        Self {
            kind,
            key,
            keyed: None,
        }
    }
}

impl<S> Asking<S> {
    pub(super) async fn run<B, R>(self, body: B) -> Result<Step<R, S::Error>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let config = Arc::clone(&self.config);
        let (read, seen) = look(&config, self.era, &self.parts, body).await;
        let Seen { kind, key, keyed } = seen;
        let mut facts = Facts {
            request: kind,
            key,
            required: config.required,
            ledger: Ledger::NotAsked,
            waiting: Waiting::No,
        };
        let mut asked = Conversation::new(&config);
        loop {
            let refused = match decide(&facts) {
                Verdict::Pass => return self.pass(read).await,
                Verdict::Refuse(reason, detail) => (reason, detail, None),
                Verdict::RefuseWithOutcome(reason, detail) => (reason, detail, asked.reply.take()),
                verdict => {
                    // The rest is about a call with a key.
                    let Some(keyed) = &keyed else {
                        return self.pass(read).await;
                    };
                    match (verdict, asked.claimed.take(), &asked.reply) {
                        (Verdict::Run, Some(claimed), _) => {
                            let id = keyed.id.clone();
                            return self.dispatch(read, claimed, id, keyed.detaches).await;
                        }
                        (Verdict::Replay, _, Some(reply)) => {
                            let response = replay(&self.parts.headers, &keyed.id, reply);
                            return Ok(Step::Answered(response));
                        }
                        (Verdict::Wait, ..) => asked.wait().await,
                        _ => {}
                    }
                    facts.ledger = asked.ask(&config, keyed).await;
                    facts.waiting = asked.waiting();
                    continue;
                }
            };
            let (reason, detail, outcome) = refused;
            if kind == Kind::TooLarge {
                let deadline = Instant::now() + config.body_deadline;
                let id = read_past(read.replay, config.body_limit, deadline).await;
                let response = refuse_unread(&config, id.as_ref(), reason, detail);
                return Ok(Step::Answered(response));
            }
            let response = refuse(&config, &read.bytes, reason, detail, outcome.as_ref());
            return Ok(Step::Answered(response));
        }
    }

    async fn pass<B, R>(self, read: ReadBody<B>) -> Result<Step<R, S::Error>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>>,
        B: Body<Data = Bytes>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let lists = || memchr::memmem::find(&read.bytes, b"tools/list").is_some();
        let lesson = (self.config.learns && lists()).then(|| Lesson::new(&self.config.effects));
        let request = Request::from_parts(self.parts, read.replay);
        let response = self.inner.oneshot(request).await?;
        Ok(Step::Answered(ResponseBody::pass(response, lesson)))
    }

    async fn dispatch<B, R>(
        mut self,
        read: ReadBody<B>,
        claimed: Claimed,
        id: Box<str>,
        detaches: bool,
    ) -> Result<Step<R, S::Error>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        // Dropped here, or refused, nothing has run, and the claim is given back.
        self.inner.ready().await?;
        let Parts {
            headers,
            extensions,
            ..
        } = &mut self.parts;
        extensions.insert(DownstreamKey::new(claimed.claim()));
        // What is encoded cannot be recorded.
        headers.remove(header::ACCEPT_ENCODING);
        let runtime = claimed.runtime().cloned();
        let detached = runtime.filter(|_| detaches).map(|runtime| Detached {
            runtime,
            config: self.config,
        });
        let request = Request::from_parts(self.parts, read.replay);
        let future = Box::pin(run(self.inner, request, claimed, id, detaches));
        Ok(Step::Runs(Run { future, detached }))
    }
}

/// Reads the body as far as that is needed to tell what it is.
async fn look<B: Body<Data = Bytes>>(
    config: &Config,
    era: Era,
    parts: &Parts,
    body: B,
) -> (ReadBody<B>, Seen) {
    let in_headers = Found::in_headers(&parts.headers);
    let coded = is_coded(&parts.headers);
    // Of what is encoded nothing can be read.
    let limit = if coded { 0 } else { config.body_limit };
    let deadline = Instant::now() + config.body_deadline;
    let read = read(body, limit, deadline, |_| ControlFlow::Continue(())).await;
    let header_key = match &in_headers {
        Found::Nothing => Key::Missing,
        Found::Malformed => Key::Malformed,
        Found::Differing => Key::Differing,
        Found::Key(_) => Key::Valid,
    };
    if coded && !(read.bytes.is_empty() && read.finding == Finding::Ended) {
        return (read, Seen::nothing(Kind::Coded, header_key));
    }
    match read.finding {
        Finding::Ended => {}
        Finding::TooLarge => return (read, Seen::nothing(Kind::TooLarge, header_key)),
        Finding::Enough | Finding::Failed | Finding::TooSlow => {
            return (read, Seen::nothing(Kind::CutOff, header_key));
        }
    }
    let glance = in_headers != Found::Nothing || may_be_keyed(&read.bytes);
    if !glance && !config.required && !config.derived {
        return (read, Seen::nothing(Kind::Other, Key::Missing));
    }
    let seen = match Read::of(&read.bytes) {
        Read::Other | Read::Batch { calls: false, .. } => Seen::nothing(Kind::Other, header_key),
        Read::Notification => Seen::nothing(Kind::Notification, header_key),
        Read::NullId => Seen::nothing(Kind::NullId, hidden(header_key, glance)),
        Read::Unreadable => Seen::nothing(Kind::Unreadable, hidden(header_key, glance)),
        Read::Batch { keyed: true, .. } if header_key == Key::Missing => {
            Seen::nothing(Kind::Batch, Key::Valid)
        }
        Read::Batch { .. } => Seen::nothing(Kind::Batch, header_key),
        Read::Call(call) => keyed(config, era, parts, call, in_headers),
    };
    (read, seen)
}

/// One call, and the claim that its key asks for.
fn keyed(config: &Config, era: Era, parts: &Parts, call: Call<'_>, in_headers: Found<'_>) -> Seen {
    let nothing = |key| Seen::nothing(Kind::Call, key);
    let modern = era == Era::Modern || call.modern;
    let marks = Marks::of(&parts.headers);
    let session = match marks.session(config.max_id_len) {
        Presented::Id(id) if !modern => Some(id),
        _ => None,
    };
    let derived: String;
    let (key, own) = match (in_headers.and(call.key), session) {
        (Found::Malformed, _) => return nothing(Key::Malformed),
        (Found::Differing, _) => return nothing(Key::Differing),
        (Found::Nothing, Some(_)) if config.derived => {
            // No client can choose it, for it has a character that no key has.
            derived = format!("\0{}", call.id);
            (derived.into(), false)
        }
        (Found::Nothing, _) => return nothing(Key::Missing),
        (Found::Key(key), _) => (key, true),
    };
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    if content_type.is_some_and(|value| !is_json_type(value.as_bytes())) {
        return Seen::nothing(Kind::NotJson, Key::Valid);
    }
    let principal = match &config.principal {
        // A JSON-RPC id is a session's.
        Some(of) if own => of(Head::of_parts(parts)),
        _ => None,
    };
    let scope = match (&principal, session) {
        (Some(subject), _) => Scope::Principal(subject),
        (None, Some(id)) => Scope::Session(id),
        (None, None) => return nothing(Key::Unscoped),
    };
    let namespace = &config.namespace;
    let origin = match (scope, session) {
        (Scope::Principal(_), Some(id)) => Some(origin(namespace, id)),
        // A session's own key is never asked for from another.
        _ => None,
    };
    let tool = call.tool.as_deref().unwrap_or_default();
    let claim = KeyClaim::new(
        request_key(namespace, scope, key.as_bytes(), call.leg),
        call.fingerprint,
        config.claims.token(),
        config.lease,
    )
    .with_origin(origin)
    .with_may_run_again(config.effects.of(tool).may_run_again());
    Seen {
        kind: Kind::Call,
        key: Key::Valid,
        keyed: Some(Keyed {
            claim,
            id: call.id.into(),
            session_free: config.session_free.contains(tool),
            detaches: !modern || config.detaches_modern,
        }),
    }
}

/// What the ledger has said so far.
struct Conversation {
    until: Option<Instant>,
    look: Duration,
    changed: Option<EventListener>,
    place: Option<Place>,
    claimed: Option<Claimed>,
    reply: Option<Reply>,
}

impl Conversation {
    fn new(config: &Config) -> Self {
        Self {
            until: config.wait.map(|at_most| Instant::now() + at_most),
            look: FIRST_LOOK,
            changed: None,
            place: None,
            claimed: None,
            reply: None,
        }
    }

    async fn ask(&mut self, config: &Arc<Config>, keyed: &Keyed) -> Ledger {
        // Before it is asked, or an end between the two would not be heard of.
        self.changed = self.until.map(|_| config.claims.listen());
        let begun = match ask(config, keyed.claim).await {
            Asked::Mine(claimed) => {
                self.claimed = Some(claimed);
                return Ledger::Fresh;
            }
            Asked::Unknown(kind) => return Ledger::Unknown(kind),
            Asked::Told(begun) => begun,
        };
        match begun {
            Begun::Fresh { .. } | Begun::OutcomeUnknown => Ledger::OutcomeUnknown,
            Begun::Conflict => Ledger::Conflict,
            Begun::InFlight => {
                if self.until.is_some() && self.place.is_none() {
                    self.place = config.claims.wait(config.max_waiting);
                }
                Ledger::InFlight
            }
            Begun::Completed { reply: None, .. } => Ledger::CompletedUnkept,
            Begun::Completed {
                origin,
                reply: Some(reply),
            } => {
                self.reply = Some(reply);
                let here = origin.is_none() || origin == keyed.claim.origin;
                match here || keyed.session_free {
                    true => Ledger::Completed,
                    false => Ledger::CompletedElsewhere,
                }
            }
        }
    }

    fn waiting(&self) -> Waiting {
        match (self.until, &self.place) {
            (Some(until), Some(_)) if Instant::now() < until => Waiting::Yes,
            (Some(_), Some(_)) => Waiting::Over,
            _ => Waiting::No,
        }
    }

    /// Until a call has ended here, or for a little while: it may run elsewhere.
    async fn wait(&mut self) {
        let left = self.until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        if let Some(changed) = self.changed.take() {
            let _ = timeout(self.look.min(left), changed).await;
        }
        self.look = (self.look * 2).min(LONGEST_LOOK);
    }
}

fn hidden(key: Key, glance: bool) -> Key {
    match key {
        Key::Missing if glance => Key::Hidden,
        key => key,
    }
}

fn is_coded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    codings.any(|coding| {
        !coding
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"identity")
    })
}
