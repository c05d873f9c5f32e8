//! A service that serves sessions with one service and what is stateless with another.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::Request;
use pin_project_lite::pin_project;
use tower::util::Oneshot;
use tower_service::Service;

use super::Disposition;

/// Routes on the [`Disposition`]: [`Stateless`](Disposition::Stateless) to one service, everything else to the
/// other.
///
/// With rmcp, two `StreamableHttpService`s that differ in `legacy_session_mode`. Readiness is that of the stateful
/// service; the stateless one is made ready when it is called, so that no permit of it is held for requests that
/// never come.
///
/// ```
/// use std::convert::Infallible;
///
/// use http::{Request, Response};
/// use mcp_session_guard::affinity_guard::{Disposition, Switch};
/// use tower::{ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stateful = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new("stateful")) });
/// let stateless = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new("stateless")) });
/// let service = Switch::new(stateful, stateless);
///
/// let request = Request::post("/mcp").extension(Disposition::Stateless).body(())?;
/// assert_eq!(service.clone().oneshot(request).await?.into_body(), "stateless");
/// assert_eq!(service.oneshot(Request::new(())).await?.into_body(), "stateful");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Switch<A, B> {
    stateful: A,
    stateless: B,
}

impl<A, B> Switch<A, B> {
    /// A switch between these two.
    pub fn new(stateful: A, stateless: B) -> Self {
        Self {
            stateful,
            stateless,
        }
    }
}

impl<A, B, ReqB> Service<Request<ReqB>> for Switch<A, B>
where
    A: Service<Request<ReqB>>,
    B: Service<Request<ReqB>, Response = A::Response, Error = A::Error> + Clone,
{
    type Response = A::Response;
    type Error = A::Error;
    type Future = SwitchFuture<A::Future, Oneshot<B, Request<ReqB>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.stateful.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        if Disposition::of(&request) == Some(Disposition::Stateless) {
            SwitchFuture::Stateless {
                future: Oneshot::new(self.stateless.clone(), request),
            }
        } else {
            SwitchFuture::Stateful {
                future: self.stateful.call(request),
            }
        }
    }
}

pin_project! {
    /// Future of a [`Switch`].
    #[project = SwitchProjection]
    #[derive(Debug)]
    pub enum SwitchFuture<F, G> {
        #[doc(hidden)]
        Stateful { #[pin] future: F },
        #[doc(hidden)]
        Stateless { #[pin] future: G },
    }
}

impl<F: Future, G: Future<Output = F::Output>> Future for SwitchFuture<F, G> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project() {
            SwitchProjection::Stateful { future } => future.poll(cx),
            SwitchProjection::Stateless { future } => future.poll(cx),
        }
    }
}
