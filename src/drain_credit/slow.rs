//! A POST of a session that is close to its credit, or whose answers come elsewhere: its body is read before anything is
//! decided.

use std::{ops::ControlFlow, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::Body;
use tokio::time::Instant;
use tower::ServiceExt;
use tower_service::Service;

use super::{
    account::{Refusal, Wants},
    after::{After, Answers, hash},
    body::{BoxError, ResponseBody},
    layer::Shared,
    probe::ping_of,
    ticket::{Admission, Core},
};
use crate::{
    body::{AnsweredInFront, Finding, Replay, read, read_past},
    mcp::{Envelope, MessageKind, RequestId, header::REASON, sse},
    rejection::{Reason, Rejection},
};

pub(super) struct Slow<S> {
    pub(super) core: Arc<Core>,
    pub(super) inner: S,
    pub(super) session: Vec<u8>,
    /// Whether the answers come on another stream.
    pub(super) carried: bool,
}

/// What a body asks for.
struct Asked {
    wants: Wants,
    /// The requests of which it consists, if it could be read.
    requests: Option<Vec<RequestId>>,
    /// Probes that it answers, and whether there is nothing else in it.
    pings: Vec<u64>,
    only_pings: bool,
}

impl Asked {
    fn of(envelope: Option<&Envelope<'_>>) -> Self {
        let mut asked = Self {
            // What cannot be read may be a request all the same.
            wants: Wants::Answer,
            requests: None,
            pings: Vec::new(),
            only_pings: false,
        };
        let Some(envelope) = envelope else {
            return asked;
        };
        let mut requests = Vec::new();
        let (mut refusable, mut others) = (false, false);
        for message in envelope.messages() {
            match message.kind() {
                MessageKind::Request { id, method } => {
                    refusable |= !is_exempt(method);
                    requests.push(RequestId::from(*id));
                }
                MessageKind::Response { id, .. } => match ping_of(&RequestId::from(*id)) {
                    Some(ping) => asked.pings.push(ping),
                    None => others = true,
                },
                MessageKind::Notification { .. } => others = true,
            }
        }
        if !refusable || envelope.is_modern() {
            asked.wants = Wants::Nothing;
        }
        asked.only_pings = !asked.pings.is_empty() && requests.is_empty() && !others;
        asked.requests = Some(requests);
        asked
    }

    fn places(&self) -> u32 {
        match (&self.requests, self.wants) {
            (_, Wants::Nothing) => 0,
            (Some(requests), _) => requests.len() as u32,
            (None, _) => 1,
        }
    }
}

/// Requests that make a session or lighten it.
fn is_exempt(method: &str) -> bool {
    matches!(
        method,
        "initialize" | "resources/unsubscribe" | "logging/setLevel"
    )
}

impl<S> Slow<S> {
    pub(super) async fn run<B, R>(
        self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let Self {
            core,
            mut inner,
            session,
            carried,
        } = self;
        let (parts, body) = request.into_parts();
        let shared = &core.shared;
        let settings = &shared.settings;
        let deadline = Instant::now() + settings.body_deadline;
        let read = read(body, settings.body_limit, deadline, |_| {
            ControlFlow::Continue(())
        })
        .await;
        let envelope = match read.finding {
            Finding::Ended => Envelope::parse(&read.bytes).ok(),
            // Cut off, or too slow: the inner service sees the same. Or too long to be read.
            _ => None,
        };
        let asked = Asked::of(envelope.as_ref());
        let answered = asked.pings.iter();
        let ours = answered.filter(|ping| shared.accounts.answered_probe(&session, **ping));
        if ours.count() == asked.pings.len() && asked.only_pings {
            let mut accepted = in_front(Response::new(Bytes::new()));
            *accepted.status_mut() = StatusCode::ACCEPTED;
            return Ok(accepted);
        }
        inner.ready().await?;
        let ticket = match core.admit(&session, asked.wants, asked.places()) {
            Admission::Admitted(ticket) => ticket,
            Admission::Read | Admission::Refused(_) if read.finding == Finding::TooLarge => {
                let id = read_past(read.replay, settings.body_limit, deadline).await;
                let detail = "the session has used up its credit, and the body is too long to be looked into";
                let rejection = Rejection::new(Reason::RequestTooLarge, detail);
                let answer = rejection.with_style(settings.style).answer_id(id.as_ref());
                return Ok(in_front(answer));
            }
            // Only of what was not read is it asked for.
            Admission::Read => {
                let refusal = Refusal::HalfOpen;
                return Ok(refuse(
                    shared,
                    &session,
                    refusal,
                    envelope.as_ref(),
                    carried,
                ));
            }
            Admission::Refused(refusal) => {
                return Ok(refuse(
                    shared,
                    &session,
                    refusal,
                    envelope.as_ref(),
                    carried,
                ));
            }
        };
        let answers = match carried {
            true => {
                let requests = asked.requests.as_deref().unwrap_or_default();
                Answers::Elsewhere(ticket, requests.iter().map(hash).collect())
            }
            false => Answers::Places(ticket, asked.requests),
        };
        let on_shared = parts.version == Version::HTTP_2;
        let after = After::new(answers, on_shared);
        let response = inner.call(Request::from_parts(parts, read.replay)).await?;
        Ok(after.settle(response))
    }
}

fn refuse<R>(
    shared: &Shared,
    session: &[u8],
    refusal: Refusal,
    refused: Option<&Envelope<'_>>,
    carried: bool,
) -> Response<ResponseBody<R>> {
    let settings = &shared.settings;
    tracing::debug!(?refusal, "a request was refused");
    let rejection = settings.reject(refusal);
    let answer = rejection.answer(refused);
    if !settings.error_frames || refusal != Refusal::HighWater || refused.is_none() {
        return in_front(answer);
    }
    let mut event = BytesMut::new();
    sse::encode(&mut event, b"", answer.body());
    let event = event.freeze();
    let mut framed = match carried {
        true => {
            // After everything that was said before; where that is not possible, by status.
            let carrier = shared.accounts.carrier(session);
            let said = carrier.and_then(|carrier| carrier.upgrade());
            if !said.is_some_and(|carrier| carrier.ask(event)) {
                return in_front(answer);
            }
            let mut accepted = Response::new(Bytes::new());
            *accepted.status_mut() = StatusCode::ACCEPTED;
            accepted
        }
        false => {
            let mut stream = Response::new(event);
            let kind = HeaderValue::from_static("text/event-stream");
            stream.headers_mut().insert(header::CONTENT_TYPE, kind);
            stream
        }
    };
    let reason = HeaderValue::from_static(Reason::StreamHalfOpen.as_str());
    framed.headers_mut().insert(REASON, reason);
    framed.extensions_mut().insert(Reason::StreamHalfOpen);
    in_front(framed)
}

fn in_front<R>(response: Response<Bytes>) -> Response<ResponseBody<R>> {
    let mut response = response.map(ResponseBody::refusal);
    response.extensions_mut().insert(AnsweredInFront);
    response
}
