//! Ends a session that is broken: in the directory, with the fence of its owner, and at the inner service.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body::Body;
use tokio::time::timeout;
use tower::ServiceExt;
use tower_service::Service;

use super::{layer::Shared, watchdog::Ender};
use crate::{
    body::Replay,
    instance::{Admission, Instance, Lost, Running},
    mcp::header::SESSION_ID,
    session::SessionId,
};

/// How long an inner service may take to end a session.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn ender<S, B, R>(inner: S, uri: Uri, shared: &Shared) -> Ender
where
    S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
    R: Send + 'static,
{
    let inner = Mutex::new(inner);
    let instance = shared.settings.instance.clone();
    Arc::new(move |session: SessionId| {
        let inner = inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (uri, instance) = (uri.clone(), instance.clone());
        Box::pin(async move {
            if let Some(instance) = instance {
                end(&instance, &session).await;
            }
            let mut request = Request::new(Replay::empty());
            *request.method_mut() = Method::DELETE;
            *request.uri_mut() = uri;
            if let Ok(id) = HeaderValue::from_str(session.as_str()) {
                request.headers_mut().insert(SESSION_ID, id);
            }
            if timeout(PATIENCE, inner.oneshot(request)).await.is_err() {
                tracing::warn!(
                    ?session,
                    "the inner service did not end a broken session in time"
                );
            }
        })
    })
}

async fn end(instance: &Instance, session: &SessionId) {
    let shared = instance.shared();
    let serving = match shared.admit(session.as_str().as_bytes(), Running::Stream) {
        Admission::Proven(serving) | Admission::Unrestored(serving) => serving,
        // Somebody else's, or nobody's any more.
        Admission::Unproven | Admission::Over(_) | Admission::Unknown => return,
    };
    let fence = Some(serving.fence());
    let session = Arc::clone(serving.session());
    drop(serving);
    if let Err(error) = shared.end(&session, fence, Lost::TornDown).await {
        // It serves nothing any more, and the instance goes on trying.
        tracing::warn!(%error, "a broken session was not ended in the directory");
    }
}
