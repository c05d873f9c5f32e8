//! How a request of the slow path reaches the inner service, once the verdict is that it may.

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body::Body;
use tower::ServiceExt;
use tower_service::Service;

use super::{
    Disposition,
    after::After,
    body::{BoxError, ResponseBody},
    decide::{Facts, Verdict, decide},
    opening::{Opening, closer, opens},
    slow::{RequestBody, Slow},
    steps::Restorer,
};
use crate::{
    body::{AnsweredInFront, Replay},
    instance::Serving,
    mcp::Envelope,
    session::Residency,
};

impl<S> Slow<S> {
    pub(super) async fn pass<B, R>(
        self,
        parts: Parts,
        body: RequestBody<B>,
    ) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>>,
        B: Body<Data = Bytes>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let mut after = After::new(&self.config, &parts.method, None);
        after.remember(self.principal, body.bytes());
        let request = Request::from_parts(parts, body.replay());
        let response = self.inner.oneshot(request).await?;
        Ok(after.settle(response).await)
    }

    pub(super) async fn pass_opening<B, R>(
        self,
        parts: Parts,
        body: RequestBody<B>,
    ) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let mut ready = self.inner.clone();
        ready.ready().await?;
        let opening = Opening {
            request: body.bytes(),
            principal: self.principal,
            generation: self.config.instance.shared().tenancy(),
            config: self.config,
        };
        let shared = opening.config.instance.shared();
        // Making it ready may have taken long.
        let facts = Facts {
            retiring: shared.is_retiring(),
            lease: opening.generation.is_some(),
            ..self.facts
        };
        if let Verdict::Refuse(reason, detail) = decide(&facts) {
            let envelope = Envelope::parse(&opening.request).ok();
            let rejection = opening.config.reject(reason, detail);
            return Ok(rejection
                .answer(envelope.as_ref())
                .map(ResponseBody::refusal));
        }
        let close = closer(self.inner, parts.clone());
        let response = ready
            .call(Request::from_parts(parts, body.replay()))
            .await?;
        if opens(&response, None) {
            return Ok(opening.open(response, Some(close)).await);
        }
        // No session after all: an error, or a service without sessions.
        Ok(response.map(|body| ResponseBody::inner(Replay::live(body), None)))
    }

    pub(super) async fn pass_owned<B, R>(
        self,
        mut ready: S,
        mut parts: Parts,
        body: RequestBody<B>,
        serving: Serving,
        restorer: Option<Restorer>,
    ) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>>,
        B: Body<Data = Bytes>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let fence = serving.fence();
        if restorer.is_some() {
            parts.extensions.insert(Disposition::Rehydrate { fence });
        } else if self.config.residency == Residency::Externalized {
            parts.extensions.insert(Disposition::Owned { fence });
        }
        let mut after = After::new(&self.config, &parts.method, Some(serving));
        after.remember(None, body.bytes());
        let response = ready
            .call(Request::from_parts(parts, body.replay()))
            .await?;
        if let Some(restorer) = restorer {
            // An answer from before the inner service has restored nothing.
            let reached = response.extensions().get::<AnsweredInFront>().is_none();
            restorer.finish(response.status().is_success() && reached);
        }
        Ok(after.settle(response).await)
    }
}
