//! The server behind, by HTTP, as the service that the guards are around.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header},
};
use futures_util::{FutureExt, future::BoxFuture};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Incoming};
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::timeout;
use tower::Service;

use crate::{
    failure::Failure,
    serve::BoxError,
    unread::{Traced, Unread, trace},
};

/// How long a client may take to say the rest of a request that cannot be delivered, so that its id is known.
const REST_WITHIN: Duration = Duration::from_secs(5);

/// Streams both ways. A request is tried once: only one that provably never left on a pooled connection is sent on a fresh one.
#[derive(Clone)]
pub(crate) struct Upstream {
    client: Client<HttpConnector, Traced>,
    server: Arc<Uri>,
    answer_within: Duration,
}

impl Upstream {
    pub(crate) fn new(server: Uri, answer_within: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(2)));
        let client = Client::builder(TokioExecutor::new())
            // Node.js closes idle connections after five seconds.
            .pool_idle_timeout(Duration::from_secs(4))
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self {
            client,
            server: Arc::new(server),
            answer_within,
        }
    }

    /// The server's own path, with the query of the request.
    fn target(&self, asked: &Uri) -> Result<Uri, BoxError> {
        let mut parts = Uri::clone(&self.server).into_parts();
        if let Some(query) = asked.query() {
            let target = format!("{}?{query}", self.server.path());
            parts.path_and_query = Some(target.parse()?);
        }
        Ok(Uri::from_parts(parts)?)
    }
}

impl<B> Service<Request<B>> for Upstream
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Either<Incoming, Full<Bytes>>>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let method = parts.method.clone();
        let (body, unread) = trace(body.map_err(Into::into).boxed_unsync());
        let mut outgoing = Request::new(body);
        *outgoing.method_mut() = parts.method;
        *outgoing.headers_mut() = toward_server(parts.headers);
        let answer = self.target(&parts.uri).map(|target| {
            *outgoing.uri_mut() = target;
            self.client.request(outgoing)
        });
        let answer_within = self.answer_within;
        async move {
            let failure = match answer {
                Err(_) => Failure::Unreachable,
                Ok(answer) => match timeout(answer_within, answer).await {
                    Ok(Ok(mut response)) => {
                        remove_connection_headers(response.headers_mut());
                        return Ok(response.map(Either::Left));
                    }
                    Ok(Err(error)) => kind(&error),
                    Err(_) => Failure::Silent,
                },
            };
            Ok(refuse(failure, &method, unread).await)
        }
        .boxed()
    }
}

fn kind(error: &Error) -> Failure {
    eprintln!("sidecar: {error}: {:?}", std::error::Error::source(error));
    match error.is_connect() {
        true => Failure::Unreachable,
        false => Failure::Broken,
    }
}

async fn refuse(
    failure: Failure,
    method: &axum::http::Method,
    unread: Unread,
) -> Response<Either<Incoming, Full<Bytes>>> {
    let body = timeout(REST_WITHIN, unread.whole()).await;
    let body = body.ok().flatten().unwrap_or_default();
    failure
        .answer(method, &body)
        .map(|body| Either::Right(Full::new(body)))
}

fn toward_server(mut headers: HeaderMap) -> HeaderMap {
    remove_connection_headers(&mut headers);
    // The server's own, which servers that guard against DNS rebinding know.
    headers.remove(header::HOST);
    // The guards read the answers.
    let plain = HeaderValue::from_static("identity");
    headers.insert(header::ACCEPT_ENCODING, plain);
    headers
}

/// RFC 9110, section 7.6.1.
fn remove_connection_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let known = [
        header::CONNECTION,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    for name in named.iter().chain(&known) {
        headers.remove(name);
    }
}
