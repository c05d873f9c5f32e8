//! The resume guard, inside an affinity guard and around an inner service that streams what it is told, under paused
//! time.

#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../support/mod.rs"]
mod support;

mod early_close;
mod ends;
mod field_reports;
mod lapse;
mod live;
mod log;
mod quadrants;
mod reader;
mod refusals;
mod resumes;
mod standalone;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderValue, Method, Request, StatusCode};
use mcp_session_guard::{
    affinity_guard::{AffinityGuard, AffinityGuardLayer},
    instance::{Instance, InstanceBuilder},
    resume_guard::{ResumeGuard, ResumeGuardLayer},
    store::{EventStore, MemoryStore},
};
use tower::{Layer, ServiceExt};

use reader::Reader;
use support::{
    Answer, INITIALIZE, Sent, Stage, get,
    inner::{Asked, Inner, Tap, opening, respond, stream},
    post,
};

pub(crate) type Guarded = AffinityGuard<ResumeGuard<Inner>>;

/// One instance with both layers around a service that streams.
pub(crate) struct Pod {
    pub(crate) guard: Guarded,
    pub(crate) inner: Inner,
    pub(crate) instance: Instance,
    taps: Taps,
}

type Taps = Arc<Mutex<VecDeque<(Asked, Tap)>>>;

impl Pod {
    pub(crate) async fn start(stage: &Stage, name: &'static str) -> Self {
        Self::with(
            stage,
            name,
            stage.store.clone(),
            |layer| layer,
            |layer| layer,
        )
        .await
    }

    pub(crate) async fn with(
        stage: &Stage,
        name: &'static str,
        events: impl EventStore,
        affinity: impl FnOnce(AffinityGuardLayer) -> AffinityGuardLayer,
        resume: impl FnOnce(ResumeGuardLayer) -> ResumeGuardLayer,
    ) -> Self {
        let builder = stage.builder(name);
        Self::join(stage, builder, name, events, affinity, resume).await
    }

    pub(crate) async fn join(
        stage: &Stage,
        builder: InstanceBuilder,
        name: &'static str,
        events: impl EventStore,
        affinity: impl FnOnce(AffinityGuardLayer) -> AffinityGuardLayer,
        resume: impl FnOnce(ResumeGuardLayer) -> ResumeGuardLayer,
    ) -> Self {
        let instance = stage.join(builder, stage.store.clone()).await;
        let inner = Inner::new(name);
        let taps = streaming(&inner, name);
        let layer = resume(ResumeGuardLayer::new(instance.clone(), events));
        let guard =
            affinity(AffinityGuardLayer::new(instance.clone())).layer(layer.layer(inner.clone()));
        Self {
            guard,
            inner,
            instance,
            taps,
        }
    }

    /// Opens a session.
    pub(crate) async fn open(&self) -> String {
        let response = self.send(post(None, INITIALIZE)).await;
        assert_eq!(response.status(), StatusCode::OK);
        Answer::read(response).await.session().to_owned()
    }

    pub(crate) async fn send(&self, request: Request<Sent>) -> http::Response<Body> {
        self.guard.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn answer(&self, request: Request<Sent>) -> Answer {
        Answer::read(self.send(request).await).await
    }

    /// Sends a call whose answer is a stream.
    pub(crate) async fn call(&self, session: &str, id: &str) -> (Tap, Reader) {
        let reader = self.stream(post(Some(session), call(id))).await;
        (self.tap(), reader)
    }

    /// Asks for the session's own stream.
    pub(crate) async fn listen(&self, session: &str) -> Reader {
        self.stream(get(session)).await
    }

    /// Comes back to a stream.
    pub(crate) async fn resume(&self, session: &str, cursor: &str) -> Reader {
        self.stream(from(session, cursor)).await
    }

    /// A request that is answered by a stream.
    pub(crate) async fn stream(&self, mut request: Request<Sent>) -> Reader {
        let version = HeaderValue::from_static("2025-11-25");
        request
            .headers_mut()
            .entry("mcp-protocol-version")
            .or_insert(version);
        let response = self.send(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{response:?}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Reader::new(response)
    }

    /// The inner end of the stream that was opened next.
    pub(crate) fn tap(&self) -> Tap {
        self.taps
            .lock()
            .unwrap()
            .pop_front()
            .expect("the inner service was asked")
            .1
    }

    /// How many streams the inner service has opened and nobody looked at.
    pub(crate) fn untapped(&self) -> usize {
        self.taps.lock().unwrap().len()
    }
}

pub(crate) type Body = mcp_session_guard::affinity_guard::ResponseBody<
    mcp_session_guard::resume_guard::ResponseBody<support::inner::InnerBody>,
>;

/// Has the service answer calls and GETs with streams, and the rest as it does.
fn streaming(inner: &Inner, name: &'static str) -> Taps {
    let taps = Taps::default();
    let kept = Arc::clone(&taps);
    let opened = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    inner.script(move |asked| {
        let streams = asked.method == Method::GET || asked.body.contains("tools/call");
        let response = if streams {
            let (tap, response) = stream();
            kept.lock().unwrap().push_back((asked.clone(), tap));
            response
        } else if asked.body.contains(r#""initialize""#) {
            let number = opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            opening(&format!("{name}-{number}"))
        } else if asked.method == Method::DELETE {
            respond(StatusCode::NO_CONTENT, "")
        } else if asked.body.contains(r#""method""#) && asked.body.contains(r#""id""#) {
            respond(StatusCode::OK, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)
        } else {
            respond(StatusCode::ACCEPTED, "")
        };
        async move { response }
    });
    taps
}

pub(crate) fn call(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{}}}}}}"#
    )
}

pub(crate) fn result(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#)
}

pub(crate) fn note(text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{text}"}}}}"#)
}

pub(crate) fn from(session: &str, cursor: &str) -> Request<Sent> {
    let mut request = get(session);
    request
        .headers_mut()
        .insert("last-event-id", cursor.parse().unwrap());
    request
}

/// Lets every task run until it waits for something that is not coming.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(crate) fn shared() -> (MemoryStore, impl Fn(ResumeGuardLayer) -> ResumeGuardLayer) {
    let reach = mcp_session_guard::resume_guard::LogReach::Shared;
    (MemoryStore::new(), move |layer: ResumeGuardLayer| {
        layer.with_log_reach(reach)
    })
}
