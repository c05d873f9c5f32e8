//! Around a resume guard, whose outbox carries the streams: the account is that of the outbox.

use std::{pin::Pin, time::Duration};

use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use mcp_session_guard::{
    affinity_guard::{self, AffinityGuard, AffinityGuardLayer},
    drain_credit::{DrainCredit, DrainCreditLayer, ResponseBody},
    instance::Instance,
    resume_guard::{self, ResumeGuard, ResumeGuardLayer},
};
use tower::{Layer, ServiceExt};

use super::{
    TIMEOUT, Taps, WINDOW, call, note, ping, result, settle, streaming,
    support::{
        Answer, INITIALIZE, Sent, Stage, get,
        inner::{Inner, InnerBody, Tap},
        post,
    },
};

type Guarded = AffinityGuard<DrainCredit<ResumeGuard<Inner>>>;
type Body = affinity_guard::ResponseBody<ResponseBody<resume_guard::ResponseBody<InnerBody>>>;

struct Pod {
    guard: Guarded,
    layer: DrainCreditLayer,
    instance: Instance,
    inner: Inner,
    taps: Taps,
    session: String,
}

impl Pod {
    async fn start(stage: &Stage) -> Self {
        Self::with(stage, |layer| layer, |layer| layer).await
    }

    async fn with(
        stage: &Stage,
        drain: impl FnOnce(DrainCreditLayer) -> DrainCreditLayer,
        resume: impl FnOnce(ResumeGuardLayer) -> ResumeGuardLayer,
    ) -> Self {
        let instance = stage.instance("pod").await;
        let inner = Inner::new("inner");
        let taps = streaming(&inner);
        let layer = drain(
            DrainCreditLayer::new()
                .with_credit(4, 100_000)
                .with_high_water(2)
                .with_drain_window(WINDOW)
                .with_liveness(TIMEOUT, 1000)
                .with_instance(instance.clone()),
        );
        let resume = resume(ResumeGuardLayer::new(instance.clone(), stage.store.clone()));
        let guard = AffinityGuardLayer::new(instance.clone())
            .layer(layer.layer(resume.layer(inner.clone())));
        let mut pod = Self {
            guard,
            layer,
            instance,
            inner,
            taps,
            session: String::new(),
        };
        let opened = pod.answer(post(None, INITIALIZE)).await;
        opened.session().clone_into(&mut pod.session);
        pod
    }

    async fn send(&self, mut request: Request<Sent>) -> Response<Body> {
        let version = HeaderValue::from_static("2025-11-25");
        let headers = request.headers_mut();
        headers.insert("mcp-protocol-version", version);
        self.guard.clone().oneshot(request).await.unwrap()
    }

    async fn answer(&self, request: Request<Sent>) -> Answer {
        Answer::read(self.send(request).await).await
    }

    async fn open(&self, request: Request<Sent>) -> Reader {
        let response = self.send(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{response:?}");
        Reader(Box::pin(response.into_body()))
    }

    async fn call(&self, id: &str) -> (Tap, Reader) {
        let reader = self.open(post(Some(&self.session), call(id))).await;
        (self.tap(), reader)
    }

    async fn listen(&self) -> (Tap, Reader) {
        let mut reader = self.open(get(&self.session)).await;
        reader.read().await.unwrap();
        (self.tap(), reader)
    }

    fn tap(&self) -> Tap {
        self.taps.lock().unwrap().pop_front().expect("asked").1
    }

    async fn ping(&self) -> Answer {
        self.answer(post(Some(&self.session), ping("1"))).await
    }

    fn outstanding(&self) -> (usize, usize) {
        let figures = self.layer.figures();
        (figures.reserved, figures.undrained_messages)
    }
}

struct Reader(Pin<Box<Body>>);

impl Reader {
    async fn read(&mut self) -> Option<String> {
        let next = tokio::time::timeout(Duration::from_secs(1), self.0.frame());
        let frame = next.await.expect("something comes")?.expect("no error");
        let data = frame.into_data().expect("data");
        Some(String::from_utf8(data.to_vec()).expect("text"))
    }

    async fn rest(&mut self) -> String {
        let mut text = String::new();
        while let Some(more) = self.read().await {
            text += &more;
        }
        text
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_has_not_taken_counts_whether_it_is_in_memory_or_in_the_log() {
    let stage = Stage::set();
    let pod = Pod::with(&stage, |layer| layer, |layer| layer.with_window(200)).await;
    let (tap, mut reader) = pod.listen().await;
    for number in 0..6 {
        tap.event("1", &note(&number.to_string()));
        settle().await;
    }
    assert_eq!(pod.outstanding(), (0, 6));
    assert_eq!(pod.ping().await.status, 200);
    tokio::time::sleep(WINDOW).await;
    assert_eq!(pod.ping().await.refusal(), (429, "stream_half_open"));
    for left in (0..6).rev() {
        let text = reader.read().await.unwrap();
        assert!(pod.outstanding().1 <= left, "{text}");
        if pod.outstanding().1 == 0 {
            break;
        }
    }
    assert_eq!(pod.outstanding(), (0, 0));
    assert_eq!(pod.ping().await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn at_the_high_water_mark_the_inner_stream_is_no_longer_pulled() {
    let stage = Stage::set();
    let pod = Pod::start(&stage).await;
    let (other, mut reads) = pod.call("1").await;
    reads.read().await.unwrap();
    let (tap, mut reader) = pod.listen().await;
    for number in 0..50 {
        tap.event("1", &note(&number.to_string()));
        settle().await;
    }
    assert_eq!(pod.outstanding(), (1, 8));
    assert_eq!(pod.layer.figures().peak_messages, 8);
    // Another stream of the session, whose client reads, goes on.
    for number in 0..5 {
        other.event("1", &note(&number.to_string()));
        let text = reads.read().await.unwrap();
        assert!(text.contains(&format!("\"{number}\"")), "{text}");
    }
    drop(reads);
    let mut text = String::new();
    while !text.contains("\"49\"") {
        text += &reader.read().await.unwrap();
    }
    assert_eq!(pod.outstanding(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn bursts_on_several_streams_stay_below_the_mark_together() {
    let stage = Stage::set();
    let pod = Pod::start(&stage).await;
    let (call, _unread) = pod.call("1").await;
    let (own, mut reader) = pod.listen().await;
    settle().await;
    // All of it is there before anybody looks.
    for number in 0..50 {
        own.event("1", &note(&number.to_string()));
        call.event("1", &note(&number.to_string()));
    }
    settle().await;
    // One more, for the client that had taken all there was.
    assert_eq!(pod.outstanding(), (1, 8 + 1));
    let mut text = String::new();
    while !text.contains("\"49\"") {
        text += &reader.read().await.unwrap();
    }
    assert!(pod.layer.figures().peak_messages <= 8 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_client_has_left_counts_until_it_ends() {
    let stage = Stage::set();
    let pod = Pod::start(&stage).await;
    let (tap, reader) = pod.call("1").await;
    tap.event("1", &note("x"));
    settle().await;
    assert_eq!(pod.outstanding(), (1, 1));
    drop(reader);
    // Nobody is there who could take anything, and the tool runs on.
    assert_eq!(pod.outstanding(), (1, 0));
    tokio::time::sleep(WINDOW * 2).await;
    assert_eq!(pod.outstanding(), (1, 0));
    tap.event("2", &result("1"));
    drop(tap);
    settle().await;
    assert_eq!(pod.outstanding(), (0, 0));
    assert_eq!(pod.layer.figures().sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_counts_again() {
    let stage = Stage::set();
    let pod = Pod::start(&stage).await;
    let (tap, mut reader) = pod.call("1").await;
    let greeting = reader.read().await.unwrap();
    let cursor = greeting.lines().find_map(|line| line.strip_prefix("id: "));
    let cursor = cursor.expect("a position").to_owned();
    drop(reader);
    for number in 0..5 {
        tap.event("1", &note(&number.to_string()));
        settle().await;
    }
    assert_eq!(pod.outstanding(), (1, 0));
    let mut resume = get(&pod.session);
    let headers = resume.headers_mut();
    headers.insert("last-event-id", cursor.parse().unwrap());
    let mut reader = pod.open(resume).await;
    assert_eq!(pod.outstanding(), (1, 5));
    tap.event("2", &result("1"));
    drop(tap);
    settle().await;
    let text = reader.rest().await;
    assert!(text.contains("result"), "{text}");
    assert_eq!(pod.outstanding(), (0, 0));
    drop(reader);
    settle().await;
    assert_eq!(pod.layer.figures().sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_past_its_liveness_drops_the_inner_one_and_answers_what_it_owes() {
    let stage = Stage::set();
    let pod = Pod::start(&stage).await;
    // An idle stream is no evidence against the session.
    let (_idle, _listens) = pod.listen().await;
    let (tap, mut reader) = pod.call("\"a\"").await;
    for number in 0..20 {
        tap.event("1", &note(&number.to_string()));
    }
    tokio::time::sleep(TIMEOUT + WINDOW).await;
    assert!(tap.is_closed());
    assert_eq!(pod.outstanding(), (0, 0));
    assert_eq!(pod.layer.figures().streams_torn_down, 1);
    // A client that comes back to life reads what came before, and the error.
    let text = reader.rest().await;
    assert!(text.contains(r#""0""#), "{text}");
    let last = text
        .lines()
        .rfind(|line| line.starts_with("data: "))
        .unwrap();
    let error: serde_json::Value = serde_json::from_str(&last["data: ".len()..]).unwrap();
    assert_eq!(error["id"], "a");
    assert_eq!(error["error"]["data"]["reason"], "outcome_unknown");
}

#[tokio::test(start_paused = true)]
async fn a_broken_session_is_ended_in_the_directory_with_its_fence() {
    let stage = Stage::set();
    let pod = Pod::start(&stage).await;
    let (tap, _reader) = pod.listen().await;
    tap.event("1", &note("x"));
    pod.inner.take();
    tokio::time::sleep(TIMEOUT + WINDOW).await;
    assert_eq!(pod.layer.figures().sessions_ended, 1);
    assert_eq!(pod.instance.figures().live_sessions, 0);
    assert_eq!(pod.ping().await.refusal(), (404, "session_not_found"));
    let asked = pod.inner.take();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].method, http::Method::DELETE);
}

#[tokio::test(start_paused = true)]
async fn a_large_event_is_progress_frame_by_frame() {
    let stage = Stage::set();
    let pod = Pod::start(&stage).await;
    let (tap, mut reader) = pod.listen().await;
    tap.event("1", &note(&"x".repeat(150_000)));
    settle().await;
    let (mut frames, mut read) = (0, 0);
    while read < 150_000 {
        read += reader.read().await.unwrap().len();
        frames += 1;
        assert_eq!(pod.outstanding().1, usize::from(read < 150_000));
        tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
    }
    assert!(frames > 8);
    assert_eq!(pod.layer.figures().streams_torn_down, 0);
    assert_eq!(pod.layer.figures().undrained_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lapse_of_the_lease_is_not_the_clients_fault() {
    let stage = Stage::set();
    let directory = super::support::directory::Faulty::new(stage.store.clone());
    let instance = stage.join(stage.builder("pod"), directory.clone()).await;
    let inner = Inner::new("inner");
    let taps = streaming(&inner);
    let layer = DrainCreditLayer::new()
        .with_credit(4, 100_000)
        .with_high_water(8)
        .with_liveness(TIMEOUT, 1000)
        .with_wire_buffer(0);
    let resume = ResumeGuardLayer::new(instance.clone(), stage.store.clone());
    let guard =
        AffinityGuardLayer::new(instance.clone()).layer(layer.layer(resume.layer(inner.clone())));
    let response = guard.clone().oneshot(post(None, INITIALIZE)).await.unwrap();
    let session = Answer::read(response).await.session().to_owned();
    let response = guard.clone().oneshot(get(&session)).await.unwrap();
    let mut reader = Reader(Box::pin(response.into_body()));
    reader.read().await.unwrap();
    let tap = taps.lock().unwrap().pop_front().unwrap().1;
    directory.set_all(super::support::directory::Fault::Hangs);
    tokio::time::sleep(super::support::LEASE * 2).await;
    let reading = async { reader.0.frame().await.expect("goes on").expect("no error") };
    let lapsing = async {
        for _ in 0..5 {
            settle().await;
            tap.event("1", &note("held"));
        }
        tokio::time::sleep(TIMEOUT * 3).await;
        let figures = layer.figures();
        directory.heal();
        figures
    };
    let (frame, figures) = tokio::join!(reading, lapsing);
    assert_eq!(figures.streams_torn_down, 0);
    assert!(figures.undrained_messages > 0, "{figures:?}");
    let data = frame.into_data().unwrap();
    assert!(data.windows(4).any(|four| four == b"held"));
}

#[tokio::test(start_paused = true)]
async fn thousands_of_streams_leave_nothing_behind() {
    let stage = Stage::set();
    let pod = Pod::with(
        &stage,
        |layer| layer.with_credit(64, 1 << 20),
        |layer| layer.with_resume_window(Duration::from_secs(1)),
    )
    .await;
    for number in 0..2000 {
        let id = number.to_string();
        let (tap, mut reader) = pod.call(&id).await;
        match number % 4 {
            0 => {}
            1 => tap.send(format!("data: {}\n\n", note("x"))).unwrap(),
            2 => {
                tap.event("1", &result(&id));
                drop(tap);
                reader.rest().await;
            }
            _ => {
                drop(reader);
                tap.event("1", &result(&id));
                drop(tap);
            }
        }
        if number % 50 == 0 {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(pod.outstanding(), (0, 0));
    assert_eq!(pod.layer.figures().sessions, 0);
    assert_eq!(pod.layer.figures().refused, 0);
}
