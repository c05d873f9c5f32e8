//! A forwarder over plain HTTP/1.1, on hyper-util's pooled client.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Response, Uri, header, uri::PathAndQuery};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connect, HttpConnector},
    },
    rt::{TokioExecutor, TokioTimer},
};
use tower_service::Service;

use super::{
    Head,
    forward::{Forward, ForwardBody, ForwardError, ForwardErrorKind},
};

type TargetOf = dyn for<'a> Fn(Head<'a>) -> Option<PathAndQuery> + Send + Sync;

/// Hands requests over by HTTP/1.1, streaming both ways, on pooled connections.
///
/// An address is what the owner gave to
/// [`InstanceBuilder::with_address`](crate::instance::InstanceBuilder::with_address): `http://10.1.2.3:8080`, with a path
/// in front of the request's own if there is one in it. Behind TLS, build it [with a client](Self::with_client) of your own.
///
/// ```
/// use mcp_session_guard::{
///     affinity_guard::{AffinityGuardLayer, HttpForwarder},
///     instance::Instance,
///     store::MemoryStore,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let instance = Instance::builder("pod-7")
///     .with_address("http://10.1.2.3:8080")
///     .join(MemoryStore::new())?;
/// let layer = AffinityGuardLayer::new(instance).with_forwarder(HttpForwarder::new());
/// # Ok(())
/// # }
/// ```
///
/// The `Host` header is the client's own, as reverse proxies keep it. A request is tried once: only one that provably never
/// left on a pooled connection is sent on a fresh one.
#[derive(Clone)]
pub struct HttpForwarder<C = HttpConnector> {
    client: Client<C, ForwardBody>,
    target: Option<Arc<TargetOf>>,
}

impl HttpForwarder {
    /// A forwarder with a client of its own: one second to connect, and connections that are kept for ten seconds, which is
    /// less than servers do.
    #[must_use]
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(1)));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(10))
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self::with_client(client)
    }
}

impl Default for HttpForwarder {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> HttpForwarder<C> {
    /// A forwarder that uses this client, for TLS between instances for example.
    #[must_use]
    pub fn with_client(client: Client<C, ForwardBody>) -> Self {
        Self {
            client,
            target: None,
        }
    }

    /// Where a request's path is read from when a router has cut it; `None` for the path that is there.
    ///
    /// Under a nested axum router, `|head| head.extensions.get::<OriginalUri>()?.path_and_query().cloned()`.
    #[must_use]
    pub fn with_target(
        mut self,
        target: impl for<'a> Fn(Head<'a>) -> Option<PathAndQuery> + Send + Sync + 'static,
    ) -> Self {
        self.target = Some(Arc::new(target));
        self
    }

    fn uri(&self, forward: &Forward) -> Result<Uri, ForwardError> {
        let not_sent = |error: http::Error| ForwardError::new(ForwardErrorKind::NotSent, error);
        let address: Uri = forward
            .address
            .parse()
            .map_err(|error: http::uri::InvalidUri| not_sent(error.into()))?;
        let request = &forward.request;
        let original = self.target.as_ref().and_then(|of| of(Head::of(request)));
        let target = original.or_else(|| request.uri().path_and_query().cloned());
        let target = target.as_ref().map_or("/", PathAndQuery::as_str);
        let path = format!("{}{target}", address.path().trim_end_matches('/'));
        let mut parts = address.into_parts();
        if parts.scheme.is_none() || parts.authority.is_none() {
            let why = "an address is a scheme and a host";
            return Err(ForwardError::new(ForwardErrorKind::NotSent, why));
        }
        parts.path_and_query = Some(
            path.parse()
                .map_err(|error: http::uri::InvalidUri| not_sent(error.into()))?,
        );
        Uri::from_parts(parts).map_err(|error| not_sent(error.into()))
    }
}

impl<C> Service<Forward> for HttpForwarder<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<Incoming>;
    type Error = ForwardError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, ForwardError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ForwardError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, forward: Forward) -> Self::Future {
        let uri = match self.uri(&forward) {
            Ok(uri) => uri,
            Err(error) => return std::future::ready(Err(error)).boxed(),
        };
        let mut request = forward.request;
        // HTTP/2 names the host in the target.
        if !request.headers().contains_key(header::HOST)
            && let Some(host) = request.uri().authority()
            && let Ok(host) = HeaderValue::from_str(host.as_str())
        {
            request.headers_mut().insert(header::HOST, host);
        }
        *request.uri_mut() = uri;
        *request.version_mut() = http::Version::HTTP_11;
        let answer = self.client.request(request);
        async move {
            answer.await.map_err(|error| {
                let kind = match error.is_connect() {
                    true => ForwardErrorKind::NotSent,
                    false => ForwardErrorKind::Lost,
                };
                ForwardError::new(kind, error)
            })
        }
        .boxed()
    }
}

impl<C> fmt::Debug for HttpForwarder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpForwarder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http_body_util::{BodyExt, Empty};

    use super::*;
    use crate::session::{Epoch, InstanceId};

    fn forward(address: &str, target: &str) -> Forward {
        let body = Empty::<Bytes>::new().map_err(|never| match never {});
        Forward {
            request: Request::get(target).body(body.boxed_unsync()).unwrap(),
            owner: InstanceId::new("a", Epoch::from_u128(1)),
            address: address.into(),
        }
    }

    #[tokio::test]
    async fn the_target_is_the_request_s_own_at_the_owner_s_address() {
        let forwarder = HttpForwarder::new();
        for (address, target, uri) in [
            (
                "http://10.1.2.3:8080",
                "/mcp?a=1",
                "http://10.1.2.3:8080/mcp?a=1",
            ),
            ("http://h:1/", "http://edge.example/mcp", "http://h:1/mcp"),
            ("http://h:1/pre/", "/mcp", "http://h:1/pre/mcp"),
        ] {
            assert_eq!(forwarder.uri(&forward(address, target)).unwrap(), uri);
        }
        for odd in ["", "not an address", "/path"] {
            let error = HttpForwarder::new().call(forward(odd, "/mcp")).await;
            assert_eq!(
                error.unwrap_err().kind(),
                ForwardErrorKind::NotSent,
                "{odd}"
            );
        }
        let outside = HttpForwarder::new()
            .with_target(|head| format!("/out{}", head.uri.path()).parse().ok());
        let uri = outside.uri(&forward("http://h:1", "/mcp")).unwrap();
        assert_eq!(uri, "http://h:1/out/mcp");
    }
}
