//! The edge: a reverse proxy that sends a session to the instance where it was opened, and to its place on a
//! consistent-hash ring when that instance, or the edge's memory of it, is gone.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    serve::ListenerExt,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{Error, pod::Pod, ring::Ring};

/// Names the instance that answered, for the incidents to measure by.
pub(crate) const SERVED_BY: &str = "x-served-by";

pub(crate) struct Edge {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    client: Client<HttpConnector, Body>,
    routes: Mutex<Routes>,
}

#[derive(Default)]
struct Routes {
    living: BTreeMap<Arc<str>, SocketAddr>,
    ring: Ring,
    pins: HashMap<String, Arc<str>>,
    turn: usize,
}

impl Edge {
    pub(crate) async fn start(pods: &[Pod]) -> Result<Self, Error> {
        let mut routes = Routes::default();
        for pod in pods {
            routes.living.insert(Arc::clone(&pod.name), pod.address);
            routes.ring.insert(&pod.name);
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let shared = Arc::new(Shared {
            client: Client::builder(TokioExecutor::new()).build(connector),
            routes: Mutex::new(routes),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .fallback(forward)
            .with_state(Arc::clone(&shared));
        let listener = listener.tap_io(|socket| {
            let _ = socket.set_nodelay(true);
        });
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            address,
            shared,
            server,
        })
    }

    /// The health check found an instance gone.
    pub(crate) fn remove(&self, pod: &str) {
        let mut routes = self.shared.routes();
        routes.living.remove(pod);
        routes.ring.remove(pod);
    }

    /// Loses `count` of the pins to living instances, as when one of an edge's own replicas is replaced along with
    /// the change of the pool.
    pub(crate) fn forget_pins(&self, count: usize) {
        let Routes { pins, living, .. } = &mut *self.shared.routes();
        let mut left = count;
        pins.retain(|_, pod| {
            let forgotten = left > 0 && living.contains_key(pod);
            left -= usize::from(forgotten);
            !forgotten
        });
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Shared {
    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Routes {
    fn choose(&mut self, session: Option<&str>) -> Option<(Arc<str>, SocketAddr)> {
        let pod = match session {
            Some(session) => {
                let pin = self.pins.get(session);
                pin.filter(|pod| self.living.contains_key(*pod))
                    .or_else(|| self.ring.find(session))?
            }
            None => {
                self.turn += 1;
                self.living
                    .keys()
                    .nth(self.turn % self.living.len().max(1))?
            }
        };
        Some((Arc::clone(pod), *self.living.get(pod)?))
    }

    /// Pins a session where its id was minted, or where the guard says that its owner is.
    fn learn(&mut self, session: Option<&str>, pod: &Arc<str>, response: &Response) {
        let said = |name| response.headers().get(name)?.to_str().ok();
        let pin = match session {
            None => said("mcp-session-id").map(|id| (id, Arc::clone(pod))),
            Some(id) if said("mcp-guard-reason") == Some("session_reassigned") => {
                said("mcp-guard-owner").map(|owner| (id, owner.into()))
            }
            Some(_) => None,
        };
        if let Some((id, owner)) = pin {
            self.pins.insert(id.into(), owner);
        }
    }
}

async fn forward(State(shared): State<Arc<Shared>>, mut request: Request) -> Response {
    let session = request.headers().get("mcp-session-id");
    let session = session.and_then(|id| Some(id.to_str().ok()?.to_owned()));
    let Some((pod, address)) = shared.routes().choose(session.as_deref()) else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let Ok(uri) = Uri::try_from(format!("http://{address}{path}")) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    *request.uri_mut() = uri;
    request.headers_mut().remove(header::CONNECTION);
    match shared.client.request(request).await {
        Ok(response) => {
            let mut response = response.map(Body::new);
            shared.routes().learn(session.as_deref(), &pod, &response);
            let headers = response.headers_mut();
            headers.remove(header::CONNECTION);
            if let Ok(name) = HeaderValue::from_str(&pod) {
                headers.insert(SERVED_BY, name);
            }
            response
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}
