//! How an inner stream comes to be carried by the outbox, and what has to be true and known before.

use bytes::Bytes;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version,
    header, request::Parts,
};
use http_body::Body;
use tower::ServiceExt;
use tower_service::Service;

use super::{body::ResponseBody, layer::Config};
use crate::{
    body::{Replay, is_event_stream},
    instance::Serving,
    mcp::{
        RequestIds,
        header::{LAST_EVENT_ID, PROTOCOL_VERSION},
        may_prime,
    },
    outbox::{GoOn, Greeting, Inner, within},
    session::{Residency, SessionId},
    store::{EventStore, StoreErrorKind},
};

/// Has the outbox carry an inner stream; whatever else the inner service says passes as it is.
pub(super) fn carry<R>(
    config: &Config,
    serving: Serving,
    id: &SessionId,
    response: Response<R>,
    requests: RequestIds,
    go_on: Option<GoOn<R>>,
    greeting: Greeting,
) -> Response<ResponseBody<R>>
where
    R: Body<Data = Bytes> + Send + 'static,
{
    let encoded = response.headers().contains_key(header::CONTENT_ENCODING);
    if !response.status().is_success() || encoded || !is_event_stream(response.headers()) {
        return response.map(ResponseBody::inner);
    }
    let (mut parts, body) = response.into_parts();
    let streams = config.outbox.sessions.enter(id);
    let inner = Inner {
        body,
        requests,
        go_on,
    };
    match config.outbox.carry(streams, serving, inner, greeting) {
        Ok(delivery) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.extensions.insert(delivery.delivered());
            Response::from_parts(parts, ResponseBody::stream(delivery))
        }
        Err(inner) => {
            tracing::warn!(session = ?id, "too many streams of one session: this one is not recorded");
            Response::from_parts(parts, ResponseBody::inner(inner.body))
        }
    }
}

/// Before anything of a session that was taken over is served: no older owner adds to its streams any more.
pub(super) async fn seal(
    config: &Config,
    serving: &Serving,
    id: &SessionId,
) -> Result<(), StoreErrorKind> {
    let session = serving.session();
    if !session.is_unsealed() || session.terms.residency != Residency::Externalized {
        return Ok(());
    }
    let outbox = &config.outbox;
    let sealing = outbox.events.seal(id, serving.fence());
    within(outbox.settings.store_deadline, sealing)
        .await
        .map_err(|error| error.kind())?;
    session.sealed();
    Ok(())
}

pub(super) fn greeting(headers: &HeaderMap) -> Greeting {
    let version = headers.get(PROTOCOL_VERSION);
    match version.is_some_and(|version| may_prime(version.as_bytes())) {
        true => Greeting::Priming,
        false => Greeting::Comment,
    }
}

/// What the rest of a stream is asked for with: the head of the request that opened it, in a form that costs little to
/// keep, since hardly any stream needs it.
pub(super) struct Again {
    uri: Uri,
    version: Version,
    headers: Vec<(HeaderName, HeaderValue)>,
    extensions: Extensions,
}

impl Again {
    pub(super) fn of(parts: &Parts) -> Self {
        let headers = parts
            .headers
            .iter()
            .filter(|(name, _)| !is_of_the_post(name));
        let mut kept = Vec::with_capacity(parts.headers.len());
        kept.extend(headers.map(|(name, value)| (name.clone(), value.clone())));
        Self {
            uri: parts.uri.clone(),
            version: parts.version,
            headers: kept,
            extensions: parts.extensions.clone(),
        }
    }

    fn request<B: Body>(&self, last_id: HeaderValue) -> Request<Replay<B>> {
        let mut request = Request::new(Replay::empty());
        *request.method_mut() = Method::GET;
        request.uri_mut().clone_from(&self.uri);
        *request.version_mut() = self.version;
        request.extensions_mut().clone_from(&self.extensions);
        let headers = request.headers_mut();
        for (name, value) in &self.headers {
            headers.append(name, value.clone());
        }
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        headers.insert(LAST_EVENT_ID, last_id);
        request
    }
}

/// Whether a header says something of the POST that a GET in its place does not say.
fn is_of_the_post(name: &HeaderName) -> bool {
    matches!(
        *name,
        header::ACCEPT
            | header::CONTENT_LENGTH
            | header::CONTENT_TYPE
            | header::CONTENT_ENCODING
            | header::TRANSFER_ENCODING
            | header::EXPECT
    )
}

/// Asks the inner service for the rest of a stream that it closed before the answer (MCP 2025-11-25, SEP-1699).
pub(super) fn go_on<S, B, R>(inner: S, again: Again) -> GoOn<R>
where
    S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body + Send + 'static,
    B::Error: Send,
    R: Send + 'static,
{
    Box::new(move |last_id| {
        let inner = inner.clone();
        let request = again.request(last_id);
        Box::pin(async move {
            let response = inner.oneshot(request).await.ok()?;
            let goes_on = response.status().is_success() && is_event_stream(response.headers());
            goes_on.then(|| response.into_body())
        })
    })
}
