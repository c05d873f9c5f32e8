//! The producer's side of a stream: pulls the inner body, numbers each event, has it logged, and publishes it. It goes
//! on when the client has left.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use event_listener::EventListener;
use futures_util::FutureExt;
use http_body::Body;
use tokio::{
    task::yield_now,
    time::{Sleep, error::Elapsed, sleep, timeout},
};

use super::{
    Settings,
    batch::{Batch, Events, comment, retry},
    driver::Pumping,
    sessions::Streams,
    source::{Aside, Dry, Source},
    stream::{Demand, Stream},
    window::Chunk,
};
use crate::{
    instance::{Outlet, Serving, Shared},
    mcp::{RequestIds, Subject, sse},
    rejection::{Reason, Rejection},
    store::{Append, Ending, EventStore, Seq, SharedEvents, StoreError, StoreErrorKind},
};

/// How often the rest of a stream that was closed early is asked for in vain before it is given up.
const TRIES: u32 = 3;
/// The longest wait before it is asked for, whatever the inner service would like, and the wait between two tries.
const MAX_WAIT: Duration = Duration::from_secs(5);
const MIN_WAIT: Duration = Duration::from_millis(50);

pub(crate) struct Pump<R> {
    pub(super) stream: Arc<Stream>,
    pub(super) streams: Streams,
    pub(super) serving: Serving,
    pub(super) shared: Arc<Shared>,
    pub(super) events: SharedEvents,
    pub(super) settings: Settings,
    pub(super) source: Source<R>,
    /// The requests whose answers have not come yet.
    pub(super) owed: RequestIds,
    pub(super) state: State,
    pub(super) _outlet: Outlet,
}

/// What the pump makes for itself.
#[derive(Default)]
pub(super) struct State {
    /// Whether the log was opened, and so whether events carry ids.
    numbered: bool,
    last: Seq,
    batch: Batch,
    /// Whether everything that there was to read was read in this very poll, so that to ask again would be in vain.
    read_up: bool,
    /// The last batch as the log takes it.
    log: Events,
    changed: Option<EventListener>,
    absent: Option<Pin<Box<Sleep>>>,
}

/// Why the pump stopped pulling.
enum Stop {
    Dry(Dry),
    Over(Ending),
}

impl<R: Body<Data = Bytes>> Pump<R> {
    /// A block and no `async fn`: that would hold what it is given twice over.
    pub(super) fn run(mut self) -> Pumping
    where
        R: Send + 'static,
    {
        Box::pin(async move {
            self.open().await;
            let ending = self.pull().await;
            self.finish(ending).await;
        })
    }

    async fn open(&mut self) {
        let header = self.stream.header();
        let opened = within(self.settings.store_deadline, self.events.open(header)).await;
        if let Err(error) = &opened {
            tracing::warn!(%error, "a stream is not recorded, and cannot be resumed");
        }
        self.state.numbered = opened.is_ok();
        self.stream.opened(self.state.numbered);
    }

    async fn pull(&mut self) -> Ending {
        let mut tries = 0;
        loop {
            let step = poll_fn(|cx| self.poll_step(cx)).await;
            if !self.state.batch.is_empty() {
                tries = 0;
                let more = self.state.batch.is_full();
                if self.flush().await || more {
                    self.state.read_up = false;
                    yield_now().await;
                }
            }
            match step {
                Ok(()) => {}
                Err(Stop::Over(ending)) => return ending,
                Err(Stop::Dry(dry)) => {
                    let owes = !self.owed.is_empty();
                    match (dry, self.source.may_go_on()) {
                        (Dry::Ended, _) if !owes => {
                            return match self.stream.header().requests.is_empty() {
                                true => Ending::ProducerClosed,
                                false => Ending::Answered,
                            };
                        }
                        (_, Some(wait)) if owes && tries < TRIES => {
                            tries += 1;
                            if let Some(ending) = self.go_on(wait).await {
                                return ending;
                            }
                        }
                        _ => return Ending::Failed,
                    }
                }
            }
        }
    }

    /// Waits as long as the inner service asks, and asks it for the rest.
    async fn go_on(&mut self, wait: Duration) -> Option<Ending> {
        let mut waited = Box::pin(sleep(wait.clamp(MIN_WAIT, MAX_WAIT)));
        let over = poll_fn(|cx| {
            if let Err(ending) = self.over(cx) {
                return Poll::Ready(Some(ending));
            }
            match self.poll_end(cx) {
                Poll::Ready(ending) => Poll::Ready(Some(ending)),
                Poll::Pending => waited.as_mut().poll(cx).map(|()| None),
            }
        });
        if let Some(ending) = over.await {
            return Some(ending);
        }
        // A refusal leaves the body dry, and the next round finds it so.
        let _ = timeout(MAX_WAIT, self.source.go_on()).await;
        None
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        if !std::mem::take(&mut self.state.read_up) {
            let room = match self.over(cx) {
                Err(ending) => return Poll::Ready(Err(Stop::Over(ending))),
                Ok(demand) => demand.room,
            };
            if room > 0
                && let Poll::Ready(read) = self.poll_source(cx, room)
            {
                return Poll::Ready(read.map_err(Stop::Dry));
            }
        }
        self.poll_end(cx).map(|ending| Err(Stop::Over(ending)))
    }

    fn poll_source(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Result<(), Dry>> {
        let Self {
            stream,
            streams,
            source,
            owed,
            state,
            ..
        } = self;
        let State {
            numbered,
            last,
            batch,
            read_up,
            ..
        } = state;
        let numbering = stream.numbering().filter(|_| *numbered);
        let read = source.poll_batch(
            cx,
            batch,
            room,
            |batch, event| {
                let subject = Subject::of(event.data.unwrap_or_default());
                if subject != Subject::Nothing {
                    subject.visit(&mut |part| match part {
                        Subject::Answer(id) => owed.retain(|owed| owed != id),
                        Subject::Question(id) => streams.asked(id),
                        _ => {}
                    });
                }
                let seq = last.plus(batch.len() as u64 + 1);
                batch.push(numbering, seq, !owed.is_empty(), event, subject);
            },
            |aside| {
                stream.say(match aside {
                    Aside::Comment(text) => comment(text),
                    Aside::Retry(millis) => retry(millis),
                });
            },
        );
        read.map_ok(|up| *read_up = up)
    }

    /// Whether the stream ends for a reason that has nothing to do with what the inner service says; and if it does not,
    /// what its client wants.
    fn over(&mut self, cx: &mut Context<'_>) -> Result<Demand, Ending> {
        if let Some(ending) = self.ended() {
            return Err(ending);
        }
        let demand = self.stream.demand(cx.waker());
        if demand.torn {
            return Err(Ending::TornDown);
        }
        if demand.attached {
            self.state.absent = None;
            return Ok(demand);
        }
        let window = self.settings.resume_window;
        let absent = self
            .state
            .absent
            .get_or_insert_with(|| Box::pin(sleep(window)));
        match absent.as_mut().poll(cx) {
            Poll::Ready(()) => Err(Ending::TornDown),
            Poll::Pending => Ok(demand),
        }
    }

    /// Whether the session or the instance is over.
    fn ended(&self) -> Option<Ending> {
        if !self.serving.session().condition().is_alive() {
            return Some(Ending::Lost);
        }
        (self.shared.is_closing() && self.owed.is_empty()).then_some(Ending::Retired)
    }

    /// Ready when they are. Asked before anything is waited for, and not sooner: most of what is said comes without a
    /// wait.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        loop {
            let mut changed = match self.state.changed.take() {
                Some(changed) => changed,
                None => self.serving.session().listen(),
            };
            // A look after listening, or what changes between the two would be missed.
            if let Some(ending) = self.ended() {
                return Poll::Ready(ending);
            }
            if Pin::new(&mut changed).poll(cx).is_pending() {
                self.state.changed = Some(changed);
                return Poll::Pending;
            }
        }
    }

    /// Has the batch logged, then publishes it. Whether the client should get its turn.
    async fn flush(&mut self) -> bool {
        let first = self.state.last.next();
        let mut chunk = self.state.batch.finish(first, &mut self.state.log);
        self.state.last = first.plus(chunk.len() as u64 - 1);
        if self.state.numbered {
            let append = Append {
                key: &self.stream.header().key,
                first,
                events: &self.state.log,
                keep: self.stream.keep(first),
            };
            let mut call = pin!(self.events.append(&append));
            let logged = match call.as_mut().now_or_never() {
                Some(reply) => reply,
                None => {
                    self.state.read_up = false;
                    within(self.settings.store_deadline, call).await
                }
            };
            if let Err(error) = &logged {
                // The number is given, so that whoever resumes from before it is told of the gap.
                tracing::warn!(%error, "events were not recorded");
            }
            chunk.logged = logged.is_ok();
        }
        self.state.log.clear();
        let mut chunk = Some(chunk);
        poll_fn(|cx| self.poll_publish(&mut chunk, cx)).await
    }

    fn poll_publish(&mut self, chunk: &mut Option<Chunk>, cx: &mut Context<'_>) -> Poll<bool> {
        match chunk
            .take()
            .map(|chunk| self.stream.publish(chunk, cx.waker()))
        {
            None => return Poll::Ready(false),
            Some(Ok(filling)) => return Poll::Ready(filling),
            Some(Err(refused)) => *chunk = Some(refused),
        }
        self.state.read_up = false;
        // A client that never reads must not outlive its session, nor the patience with it.
        if !self.serving.session().condition().is_alive() || self.stream.is_torn() {
            return Poll::Ready(false);
        }
        let session = self.serving.session();
        let changed = self.state.changed.get_or_insert_with(|| session.listen());
        if Pin::new(changed).poll(cx).is_ready() {
            self.state.changed = None;
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Answers what is still owed, and says how it ended.
    async fn finish(&mut self, ending: Ending) {
        self.source.close();
        // Under a lost grant nothing more is recorded; whoever still reads is told by the delivery.
        if ending != Ending::Lost && !self.owed.is_empty() {
            for id in std::mem::take(&mut self.owed) {
                let rejection = Rejection::new(Reason::OutcomeUnknown, why(ending));
                let message = rejection.message(Some(&id));
                let seq = self.state.last.plus(self.state.batch.len() as u64 + 1);
                let numbering = self.stream.numbering().filter(|_| self.state.numbered);
                let event = sse::Event::of_data(&message);
                let subject = Subject::Answer(id);
                (self.state.batch).push(numbering, seq, false, event, subject);
            }
            self.flush().await;
        }
        self.stream.end(ending);
        self.streams.remove(&self.stream);
        if self.state.numbered {
            // What is over may be forgotten when there is no more room, so not while somebody still reads it there. For
            // the time that it would be kept for nobody.
            let window = match self.stream.is_torn() {
                true => Duration::ZERO,
                false => self.settings.resume_window,
            };
            let read_up = poll_fn(|cx| self.stream.poll_read_up(cx));
            if let Err(late) = by(window, read_up).await {
                tracing::debug!(%late, "a client has not read a stream that is over");
            }
            let key = &self.stream.header().key;
            let end = self.events.end(key, self.state.last, ending);
            if let Err(error) = within(self.settings.store_deadline, end).await {
                tracing::debug!(%error, "the end of a stream was not recorded");
            }
        }
    }
}

/// Whatever becomes of the task, nobody waits for it in vain.
impl<R> Drop for Pump<R> {
    fn drop(&mut self) {
        self.stream.end(Ending::Lost);
        self.streams.remove(&self.stream);
    }
}

fn why(ending: Ending) -> &'static str {
    match ending {
        Ending::TornDown => "nobody came back for the answer in time, or read what came before it",
        _ => "the stream ended before the answer",
    }
}

/// A future that is ready at once, as a rule, and then costs no timer.
async fn by(limit: Duration, future: impl Future<Output = ()>) -> Result<(), Elapsed> {
    let mut future = std::pin::pin!(future);
    match future.as_mut().now_or_never() {
        Some(()) => Ok(()),
        None => Box::pin(timeout(limit, future)).await,
    }
}

/// The reply of a store, if it comes in time. One that is there at once costs no timer.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut call = std::pin::pin!(call);
    if let Some(reply) = call.as_mut().now_or_never() {
        return reply;
    }
    // Boxed, so that the timer takes no room in a future that hardly ever needs it.
    Box::pin(timeout(limit, call))
        .await
        .unwrap_or_else(|_| Err(StoreErrorKind::TimedOut.into()))
}
