//! The server process: HTTP+SSE (MCP 2024-11-05) in front of rmcp, unguarded or behind the drain layer.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{StatusCode, header},
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::ListenerExt,
};
use futures_util::stream;
use http_body::Frame;
use mcp_session_guard::drain_credit::DrainCreditLayer;
use rmcp::ServiceExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{
    queue::Session,
    tool::{Operations, Runs},
};
use crate::{Error, report::Variant};

#[derive(Clone, Default)]
struct Server {
    sessions: Arc<Mutex<HashMap<String, Arc<Session>>>>,
    /// Those whose stream is gone, for the figures.
    gone: Arc<Mutex<HashMap<String, Arc<Session>>>>,
    opened: Arc<AtomicUsize>,
    runs: Runs,
    layer: Option<DrainCreditLayer>,
}

#[derive(serde::Deserialize)]
struct Named {
    #[serde(rename = "sessionId")]
    session: String,
}

/// Serves until it is killed; its address is the first line that it prints.
pub(crate) async fn serve(variant: Variant) -> Result<(), Error> {
    let layer = (variant == Variant::Guarded).then(|| {
        DrainCreditLayer::new()
            .with_credit(16, 2 << 20)
            .with_high_water(2)
            .with_drain_window(Duration::from_millis(500))
            .with_liveness(Duration::from_secs(2), 256 * 1024)
            .with_wire_buffer(1 << 20)
            .with_session_extractor(|uri, _| {
                let mut pairs = uri.query()?.split('&');
                let id = pairs.find_map(|pair| pair.strip_prefix("sessionId="))?;
                Some(id.into())
            })
    });
    let server = Server {
        layer: layer.clone(),
        ..Server::default()
    };
    let mut router = Router::new()
        .route("/sse", get(open))
        .route("/messages", post(receive))
        .with_state(server.clone());
    if let Some(layer) = layer.clone() {
        router = router.layer(layer);
    }
    let router = router
        .layer(map_response(count))
        .route("/figures", get(figures).with_state(server));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let options = layer.map(|layer| layer.socket_options());
    let listener = listener.tap_io(move |socket| {
        let bounded = match &options {
            Some(options) => options.apply(socket),
            None => socket.set_nodelay(true),
        };
        if let Err(error) = bounded {
            eprintln!("an accepted socket keeps its defaults: {error}");
        }
    });
    axum::serve(listener, router).await?;
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stream of a session is its life.
struct Open {
    id: String,
    session: Arc<Session>,
    server: Server,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.session.dropped();
        lock(&self.server.sessions).remove(&self.id);
        lock(&self.server.gone).insert(self.id.clone(), Arc::clone(&self.session));
    }
}

async fn open(State(server): State<Server>) -> Response {
    let id = format!("session-{}", server.opened.fetch_add(1, Ordering::Relaxed));
    let (session, pipe) = Session::open();
    lock(&server.sessions).insert(id.clone(), Arc::clone(&session));
    let operations = Operations {
        session: id.clone(),
        runs: server.runs.clone(),
    };
    tokio::spawn(async move {
        if let Ok(running) = operations.serve(pipe).await {
            let _ = running.waiting().await;
        }
    });
    let endpoint = format!("event: endpoint\ndata: /messages?sessionId={id}\n\n");
    let open = Open {
        id,
        session: Arc::clone(&session),
        server,
    };
    let events = stream::unfold((Some(endpoint), open), async |(first, open)| {
        let event = match first {
            Some(first) => first,
            None => open.session.pop().await,
        };
        Some((Ok::<_, std::convert::Infallible>(event), (None, open)))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    let mut response = (kind, Body::from_stream(events)).into_response();
    response.extensions_mut().insert(Metered(session));
    response
}

async fn receive(
    State(server): State<Server>,
    Query(Named { session }): Query<Named>,
    Json(message): Json<Value>,
) -> StatusCode {
    // Is the session active? That is all that is asked.
    let Some(session) = lock(&server.sessions).get(&session).cloned() else {
        return StatusCode::NOT_FOUND;
    };
    let Some(queued) = session.receive(&message) else {
        return StatusCode::BAD_REQUEST;
    };
    // Accepted once the answer is in the queue.
    match queued.await {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::NOT_FOUND,
    }
}

async fn figures(
    State(server): State<Server>,
    Query(Named { session }): Query<Named>,
) -> Json<Value> {
    let known = lock(&server.sessions).get(&session).cloned();
    let known = known.or_else(|| lock(&server.gone).get(&session).cloned());
    let meter = known.map(|session| session.meter()).unwrap_or_default();
    let (runs, duplicates) = server.runs.totals();
    let (events, bytes) = server
        .layer
        .as_ref()
        .map_or((0, 0), DrainCreditLayer::high_water_mark);
    let allowance = server
        .layer
        .as_ref()
        .map(|layer| layer.liveness_allowance(meter.handed));
    let millis = |time: Option<Duration>| time.map_or(0, |time| time.as_millis() as u64);
    Json(json!({
        "peak_events": meter.peak_events,
        "peak_bytes": meter.peak_bytes,
        "high_water_events": events,
        "high_water_bytes": bytes,
        "runs": runs,
        "duplicates": duplicates,
        "torn_down": meter.torn_down.is_some(),
        "stood_still_ms": millis(meter.stood_still()),
        "allowance_ms": millis(allowance),
    }))
}

/// In the extensions of a stream's response: whose queue it empties.
#[derive(Clone)]
struct Metered(Arc<Session>);

/// Counts what the HTTP server takes, outside of everything.
async fn count(mut response: Response) -> Response {
    match response.extensions_mut().remove::<Metered>() {
        Some(Metered(session)) => response.map(|body| {
            Body::new(Counted {
                body,
                session,
                first: true,
                line_feed: false,
            })
        }),
        None => response,
    }
}

struct Counted {
    body: Body,
    session: Arc<Session>,
    /// The endpoint was never queued.
    first: bool,
    line_feed: bool,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && !std::mem::take(&mut self.first)
        {
            let mut events = 0;
            for byte in data {
                // An event ends with an empty line.
                events += usize::from(*byte == b'\n' && self.line_feed);
                self.line_feed = *byte == b'\n';
            }
            self.session.taken(data.len(), events);
        }
        polled
    }
}
