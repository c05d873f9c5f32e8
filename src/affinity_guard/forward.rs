//! The way home: a request whose session another live instance owns is handed to that instance.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use http_body::Body;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use tokio::time::timeout;
use tower::{ServiceExt, util::BoxCloneSyncService};
use tower_service::Service;

use super::{
    body::{BoxError, ResponseBody},
    layer::Config,
    route_token::{RouteToken, take_off},
};
use crate::{mcp::header::FORWARDED, session::InstanceId};

/// Body of a request or a response on its way between two instances.
pub type ForwardBody = UnsyncBoxBody<Bytes, BoxError>;

/// A request for the instance that owns its session, as a forwarder gets it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Forward {
    /// The request, without the headers of the connection it came on (RFC 9110, 7.6.1), and marked as handed on.
    pub request: Request<ForwardBody>,
    /// Who owns the session.
    pub owner: InstanceId,
    /// Where the owner can be reached: what it gave to
    /// [`InstanceBuilder::with_address`](crate::instance::InstanceBuilder::with_address), as the directory told it.
    pub address: Arc<str>,
}

/// What became of a request that could not be handed over.
///
/// A forwarder may fail with anything; what is not this error counts as [`Lost`](ForwardErrorKind::Lost).
#[derive(Debug)]
pub struct ForwardError {
    kind: ForwardErrorKind,
    source: Option<BoxError>,
}

/// How far a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForwardErrorKind {
    /// It provably never left: there was no connection. It did not run, and may be sent again.
    NotSent,
    /// It was sent, or may have been, and no answer came. It may have run.
    Lost,
}

impl ForwardError {
    /// An error of this kind.
    pub fn new(kind: ForwardErrorKind, source: impl Into<BoxError>) -> Self {
        Self {
            kind,
            source: Some(source.into()),
        }
    }

    /// How far the request came.
    #[must_use]
    pub fn kind(&self) -> ForwardErrorKind {
        self.kind
    }

    fn of(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => *error,
            Err(source) => Self::new(ForwardErrorKind::Lost, source),
        }
    }
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ForwardErrorKind::NotSent => "the request could not be sent to the session's owner",
            ForwardErrorKind::Lost => "the session's owner did not answer the request",
        })
    }
}

impl Error for ForwardError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// A forwarder of any type, with how long it may take.
#[derive(Debug, Clone)]
pub(super) struct Forwarder(BoxCloneSyncService<Forward, Response<ForwardBody>, BoxError>);

impl Forwarder {
    pub(super) fn new<F, B>(forwarder: F) -> Self
    where
        F: Service<Forward, Response = Response<B>> + Clone + Send + Sync + 'static,
        F::Error: Into<BoxError>,
        F::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let boxed = forwarder
            .map_response(|response: Response<B>| {
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            })
            .map_err(Into::into);
        Self(BoxCloneSyncService::new(boxed))
    }

    /// Hands a request over, and gives the owner's answer once that begins.
    pub(super) async fn forward(
        &self,
        forward: Forward,
        deadline: Duration,
    ) -> Result<Response<ForwardBody>, ForwardError> {
        let answer = self.0.clone().oneshot(forward);
        let mut response = match timeout(deadline, answer).await {
            Ok(answer) => answer.map_err(ForwardError::of)?,
            Err(late) => return Err(ForwardError::new(ForwardErrorKind::Lost, late)),
        };
        remove_connection_headers(response.headers_mut());
        Ok(response)
    }
}

/// Headers that concern one connection and not the message (RFC 9110, 7.6.1): those that are known, and those that
/// `Connection` names.
pub(super) fn remove_connection_headers(headers: &mut HeaderMap) {
    const KNOWN: [HeaderName; 8] = [
        header::CONNECTION,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        header::PROXY_AUTHORIZATION,
        header::PROXY_AUTHENTICATE,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&KNOWN) {
        headers.remove(name);
    }
}

/// What a request that is handed on says of itself, by the epoch of whom; and the owner's answer likewise.
pub(super) fn mark(instance: &InstanceId) -> HeaderValue {
    // Hexadecimal digits.
    HeaderValue::try_from(instance.epoch().to_string())
        .unwrap_or_else(|_| HeaderValue::from_static("peer"))
}

/// Came from the owner, and is passed on as it is.
#[derive(Debug, Clone, Copy)]
struct FromOwner;

/// The owner's answer, if it was the owner who gave it.
pub(super) fn from_owner<R: Body>(
    mut response: Response<ForwardBody>,
    owner: &InstanceId,
) -> Option<Response<ResponseBody<R>>> {
    let by = response.headers_mut().remove(FORWARDED)?;
    if by != mark(owner) {
        return None;
    }
    response.extensions_mut().insert(FromOwner);
    Some(response.map(ResponseBody::forwarded))
}

/// What is left to do with a response on its way out, whichever way it came. Most have nothing of it.
#[derive(Debug)]
pub(super) struct Outward {
    route_token: Option<RouteToken>,
    /// For a peer that handed the request on: who answers.
    by: Option<HeaderValue>,
}

impl Outward {
    #[inline]
    pub(super) fn of(config: &Config, headers: &HeaderMap) -> Option<Self> {
        // Nobody hands anything to an instance without an address.
        let shared = config.instance.shared();
        let forwarded = shared.has_address() && headers.contains_key(FORWARDED);
        (forwarded || config.route_token.is_some()).then(|| Self {
            route_token: config.route_token.clone(),
            by: forwarded.then(|| mark(shared.id())),
        })
    }

    /// Whether another instance has handed the request on.
    pub(super) fn is_for_a_peer(&self) -> bool {
        self.by.is_some()
    }

    /// Takes off what an edge routes on, before anything else looks at the request.
    pub(super) fn prepare(&self, headers: &mut HeaderMap) {
        if self.route_token.is_some() {
            take_off(headers);
        }
    }

    pub(super) fn finished<R>(&self, mut response: Response<R>) -> Response<R> {
        let passed_on = response.extensions().get::<FromOwner>().is_some();
        let headers = response.headers_mut();
        // Another instance's session is under that one's token already.
        if let Some(token) = self.route_token.as_ref().filter(|_| !passed_on) {
            token.put_on(headers);
        }
        if let Some(by) = &self.by {
            headers.insert(FORWARDED, by.clone());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_connection_stay_behind() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Private"),
            ("connection", "mcp-guard-odd ,,"),
            ("x-private", "1"),
            ("mcp-guard-odd", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("authorization", "Bearer t"),
            ("content-length", "3"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        remove_connection_headers(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["authorization", "content-length"]);
    }

    #[test]
    fn an_error_of_unknown_kind_may_have_run() {
        let lost = ForwardError::of("odd".into());
        assert_eq!(lost.kind(), ForwardErrorKind::Lost);
        let not_sent = ForwardError::new(ForwardErrorKind::NotSent, "refused");
        assert_eq!(
            ForwardError::of(not_sent.into()).kind(),
            ForwardErrorKind::NotSent
        );
    }
}
