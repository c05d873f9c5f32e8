//! What carrying a stream costs: an event, an answered call, a replay, and an idle stream, each beside the same without
//! the guard in one run. Fails above what is promised.

use std::{
    convert::Infallible,
    pin::Pin,
    process::ExitCode,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{
    HeaderName, HeaderValue, Method, Request, Response, Uri,
    header::{self, CONTENT_TYPE},
};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer,
    instance::Instance,
    resume_guard::ResumeGuardLayer,
    store::{MemoryConfig, MemoryStore},
};
use tokio::sync::mpsc;
use tower::{Layer, Service, ServiceExt};

/// An event of 200 bytes, as rmcp writes it.
const EVENT: &str = "id: 12/3\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567\"}}\n\n";
const ANSWER: &str = "id: 13/3\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}}\n\n";
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"b","version":"1"}}}"#;

/// What is promised: nanoseconds for an event, for an answered call, bytes for an idle stream.
const PER_EVENT: f64 = 500.0;
const PER_CALL: f64 = 1500.0;
const PER_IDLE: usize = 4000;

/// A stream of so many events, all ready at once or each from a task that then gives way, and an answer.
#[derive(Clone, Copy)]
struct Script {
    events: usize,
    apart: bool,
    idle: bool,
}

enum Streamed {
    Idle,
    Ready { left: usize },
    Sent(mpsc::Receiver<Bytes>),
}

fn message(left: usize) -> Bytes {
    let text = if left == 1 { ANSWER } else { EVENT };
    Bytes::from_static(text.as_bytes())
}

impl Script {
    fn stream(self) -> Streamed {
        let left = self.events + 1;
        if self.idle {
            return Streamed::Idle;
        }
        if !self.apart {
            return Streamed::Ready { left };
        }
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            for left in (1..=left).rev() {
                if sender.send(message(left)).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        });
        Streamed::Sent(receiver)
    }
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut *self {
            Streamed::Idle => return Poll::Pending,
            Streamed::Ready { left: 0 } => None,
            Streamed::Ready { left } => {
                *left -= 1;
                Some(message(*left + 1))
            }
            Streamed::Sent(receiver) => ready!(receiver.poll_recv(cx)),
        };
        Poll::Ready(next.map(|data| Ok(Frame::data(data))))
    }
}

#[derive(Clone)]
struct Inner(Script);

type InnerBody = http_body_util::Either<Full<Bytes>, Streamed>;

impl<B: Send + 'static> Service<Request<B>> for Inner {
    type Response = Response<InnerBody>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut response;
        if let Some(id) = request.headers().get("x-mint") {
            let body = Full::new(Bytes::from_static(INITIALIZED.as_bytes()));
            response = Response::new(InnerBody::Left(body));
            response.headers_mut().insert("mcp-session-id", id.clone());
            response
                .headers_mut()
                .insert(CONTENT_TYPE, "application/json".parse().expect("a value"));
        } else {
            response = Response::new(InnerBody::Right(self.0.stream()));
            response
                .headers_mut()
                .insert(CONTENT_TYPE, "text/event-stream".parse().expect("a value"));
        }
        std::future::ready(Ok(response))
    }
}

fn request(method: Method, session: &str, body: &'static str) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(Bytes::from_static(body.as_bytes())));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from_static("/mcp");
    // Parts of one piece of memory, as a server's parser makes them.
    let lines = [
        (header::HOST, "mcp.example"),
        (header::ACCEPT, "application/json, text/event-stream"),
        (CONTENT_TYPE, "application/json"),
        (
            HeaderName::from_static("mcp-protocol-version"),
            "2025-11-25",
        ),
        (HeaderName::from_static("mcp-session-id"), session),
    ];
    let read = Bytes::from(lines.each_ref().map(|(_, value)| *value).concat());
    let mut at = 0;
    for (name, value) in lines {
        let value = read.slice(at..at + value.len());
        at += value.len();
        let value = HeaderValue::from_maybe_shared(value).expect("a value");
        request.headers_mut().insert(name, value);
    }
    request
}

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}"#;

fn call(session: &str) -> Request<Full<Bytes>> {
    request(Method::POST, session, CALL)
}

async fn open<S, R>(guard: &S, id: &str)
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>, Error = Infallible> + Clone,
{
    let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}"#;
    let mut initialize = request(Method::POST, id, body);
    let minted = initialize
        .headers_mut()
        .remove("mcp-session-id")
        .expect("it is there");
    initialize.headers_mut().insert("x-mint", minted);
    let opened = guard.clone().oneshot(initialize).await;
    assert!(opened.is_ok_and(|opened| opened.headers().contains_key("mcp-session-id")));
}

/// Sends a request and reads its answer to the end. Gives the time from the first poll on.
async fn read<S, R>(service: &S, request: Request<Full<Bytes>>) -> (Duration, usize)
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>, Error = Infallible> + Clone,
    R: Body<Data = Bytes> + Unpin,
    R::Error: std::fmt::Debug,
{
    let begun = Instant::now();
    let response = service.clone().oneshot(request).await;
    let mut body = response.unwrap_or_else(|never| match never {}).into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame.expect("no break").data_ref().map_or(0, Bytes::len);
    }
    (begun.elapsed(), bytes)
}

async fn instance() -> (Instance, MemoryStore) {
    let config = MemoryConfig::default()
        .with_max_lease(Duration::from_secs(3600))
        .with_max_events_per_session(20_000)
        .with_max_event_bytes_per_session(64 << 20)
        .with_max_event_bytes(1 << 30);
    let store = MemoryStore::with_config(config);
    let instance = Instance::builder("bench")
        .with_lease(Duration::from_secs(3600))
        .join(store.clone())
        .expect("joins");
    instance.ready().await;
    (instance, store)
}

/// Both layers, and the outer one alone.
macro_rules! guards {
    ($instance:expr, $store:expr, $script:expr) => {{
        let affinity = AffinityGuardLayer::new($instance.clone());
        let resume = ResumeGuardLayer::new($instance.clone(), $store.clone());
        (
            affinity.layer(resume.layer(Inner($script))),
            affinity.layer(Inner($script)),
        )
    }};
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Nanoseconds that carrying adds to each of `events`, and what it was without, as medians of interleaved rounds.
async fn per_event(script: Script, rounds: usize) -> (f64, f64) {
    let (instance, store) = instance().await;
    let (carried, bare) = guards!(instance, store, script);
    open(&carried, "s").await;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let each = |time: Duration| time.as_nanos() as f64 / (script.events + 1) as f64;
        without.push(each(read(&bare, call("s")).await.0));
        with.push(each(read(&carried, call("s")).await.0));
    }
    let without = median(without);
    (median(with) - without, without)
}

async fn thousand(script: Script) -> (f64, f64) {
    const STREAMS: usize = 1000;
    let (instance, store) = instance().await;
    let (carried, bare) = guards!(instance, store, script);
    let ids: Vec<_> = (0..STREAMS).map(|n| format!("s{n}")).collect();
    for id in &ids {
        open(&carried, id).await;
    }
    let events = ((script.events + 1) * STREAMS) as f64;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let begun = Instant::now();
        join_all(ids.iter().map(|id| read(&bare, call(id)))).await;
        without.push(begun.elapsed().as_nanos() as f64 / events);
        let begun = Instant::now();
        join_all(ids.iter().map(|id| read(&carried, call(id)))).await;
        with.push(begun.elapsed().as_nanos() as f64 / events);
    }
    let without = median(without);
    (median(with) - without, without)
}

/// Nanoseconds an event for a replay of 10,000.
async fn replay() -> f64 {
    let script = Script {
        events: 10_000,
        apart: false,
        idle: false,
    };
    let (instance, store) = instance().await;
    let (carried, _) = guards!(instance, store, script);
    open(&carried, "s").await;
    let mut times = Vec::new();
    for _ in 0..7 {
        let response = carried.clone().oneshot(call("s")).await;
        let mut body = response.unwrap_or_else(|never| match never {}).into_body();
        let priming = body.frame().await.expect("a frame").expect("no break");
        let priming = priming.into_data().expect("data");
        let priming = std::str::from_utf8(&priming).expect("text");
        let cursor = priming
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("id: "))
            .expect("an id");
        while body.frame().await.is_some() {}
        let mut resume = request(Method::GET, "s", "");
        resume
            .headers_mut()
            .insert("last-event-id", cursor.parse().expect("a value"));
        let (time, bytes) = read(&carried, resume).await;
        assert!(bytes > 2_000_000, "{bytes}");
        times.push(time.as_nanos() as f64 / 10_001.0);
    }
    median(times)
}

#[cfg(target_os = "linux")]
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(
        line.trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<usize>()
            .ok()?
            * 1024,
    )
}

#[cfg(not(target_os = "linux"))]
fn resident() -> Option<usize> {
    None
}

/// Bytes of resident memory that an idle stream takes with the guard, and without.
async fn idle() -> Option<(usize, usize)> {
    const STREAMS: usize = 10_000;
    let script = Script {
        events: 0,
        apart: false,
        idle: true,
    };
    let (instance, store) = instance().await;
    let (carried, bare) = guards!(instance, store, script);
    let ids: Vec<_> = (0..STREAMS)
        .map(|n| format!("00000000-0000-4000-8000-{n:012}"))
        .collect();
    for id in &ids {
        open(&carried, id).await;
    }
    let get = |id: &String| request(Method::GET, id, "");
    let before = resident()?;
    let mut plain = Vec::with_capacity(STREAMS);
    for id in &ids {
        plain.push(bare.clone().oneshot(get(id)).await.ok()?);
    }
    let between = resident()?;
    let mut kept = Vec::with_capacity(STREAMS);
    for id in &ids {
        let mut response = carried.clone().oneshot(get(id)).await.ok()?;
        // The first byte, and then nothing: as a connection that waits.
        response.body_mut().frame().await?.ok()?;
        kept.push(response);
    }
    let after = resident()?;
    let each = |from: usize, to: usize| to.saturating_sub(from) / STREAMS;
    Some((each(between, after), each(before, between)))
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut kept = true;
    let mut promise = |what: &str, adds: f64, limit: f64| {
        if adds > limit {
            println!("{what}: {adds:.0} is over the limit of {limit:.0}");
            kept = false;
        }
    };
    let one = |events, apart| Script {
        events,
        apart,
        idle: false,
    };
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| filter.as_deref().is_none_or(|filter| name.contains(filter));
    // First, while no memory that was given back can be used again.
    if wanted("idle")
        && let Some((with, without)) = runtime.block_on(idle())
    {
        println!("an idle stream:             {without} bytes bare, {with} bytes with the guard");
        let more = with.saturating_sub(without);
        promise("an idle stream", more as f64, PER_IDLE as f64);
    }
    if wanted("apart") {
        let (adds, bare) = runtime.block_on(per_event(one(1000, true), 201));
        println!("an event, one at a time:    {bare:.0} ns bare, {adds:.0} ns more");
        promise("an event", adds, PER_EVENT);
    }
    if wanted("together") {
        let (adds, bare) = runtime.block_on(per_event(one(1000, false), 201));
        println!("an event, ready together:   {bare:.0} ns bare, {adds:.0} ns more");
        promise("an event", adds, PER_EVENT);
    }
    if wanted("thousand") {
        let (adds, bare) = runtime.block_on(thousand(one(100, true)));
        println!("an event on 1,000 streams:  {bare:.0} ns bare, {adds:.0} ns more");
        promise("an event on one of many streams", adds, 2.0 * PER_EVENT);
    }
    if wanted("call") {
        let (adds, bare) = runtime.block_on(per_event(one(0, false), 5001));
        println!("a call and its answer:      {bare:.0} ns bare, {adds:.0} ns more");
        promise("an answered call", adds, PER_CALL + PER_EVENT);
    }
    if wanted("replay") {
        println!(
            "a replayed event:           {:.0} ns",
            runtime.block_on(replay())
        );
    }
    match kept {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
