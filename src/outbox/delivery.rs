//! The client's side of a stream: a body that gives each event once, in order, from memory or from the log, for as
//! long as the session is provably this instance's.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http_body::{Body, Frame};
use tokio::time::sleep;

use super::{
    Cursor, Settings,
    batch::{MAX_FRAME, bare_event, comment, last_event, priming, retry},
    drain::Delivered,
    driver::Driver,
    pump::within,
    stream::Stream,
    window::Taken,
};
use crate::{
    instance::{Guard, Outlet},
    mcp::{RequestIds, Subject},
    rejection::{Reason, Rejection},
    store::{Ending, Event, EventStore, Seq, SharedEvents, Snapshot, StoreErrorKind},
};

/// How often a log that cannot be read is tried again for a client that is behind.
const TRIES: u32 = 10;
const WAIT: Duration = Duration::from_millis(500);

/// Body of a stream that an outbox carries.
pub(crate) struct Delivery {
    stream: Arc<Stream>,
    generation: u64,
    /// Of the stream's pump, if the stream began with this client.
    driver: Option<Arc<Driver>>,
    /// Given back at the end, which a client's connection may be slow to notice.
    hold: Option<(Guard, Outlet)>,
    events: SharedEvents,
    settings: Settings,
    greeting: Option<Greeting>,
    next: Seq,
    /// The requests that this client still waits for.
    unanswered: RequestIds,
    out: Bytes,
    /// Whether what is to be sent was made sure to be this instance's to send.
    cleared: bool,
    /// How much of it the stream knows to be in hand yet: all that comes after the first frame of an event.
    in_hand: usize,
    /// Whether the client was kept waiting for the proof.
    held: bool,
    page: VecDeque<Event>,
    reading: Option<BoxFuture<'static, Result<Option<Snapshot>, StoreErrorKind>>>,
    done: bool,
}

/// The first thing that a client hears, so that a proxy on the way lets the headers out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// An event with an id and no data, where there are ids (MCP 2025-11-25); a comment else.
    Priming,
    /// A comment.
    Comment,
    /// The position that the client came with, for a client that comes back and has missed nothing so far.
    Position(Cursor),
}

/// Where and for whom a delivery begins.
pub(crate) struct Start {
    /// The first event, or what comes next.
    pub(crate) next: Option<Seq>,
    pub(crate) greeting: Option<Greeting>,
    pub(crate) unanswered: RequestIds,
    /// What was read of the log already.
    pub(crate) page: Vec<Event>,
}

impl Delivery {
    /// Attaches to the stream; whoever was attached before is told.
    pub(super) fn new(
        stream: Arc<Stream>,
        guard: Guard,
        events: SharedEvents,
        settings: Settings,
        start: Start,
        outlet: Outlet,
    ) -> Self {
        let generation = stream.attach(start.next);
        let next = start.next.unwrap_or(stream.head().next());
        let mut page = start.page;
        // What is in the log and not published yet will be published.
        let published = stream.head().get().saturating_sub(next.get() - 1);
        page.truncate(usize::try_from(published).unwrap_or(usize::MAX));
        Self {
            stream,
            generation,
            driver: None,
            hold: Some((guard, outlet)),
            events,
            settings,
            greeting: start.greeting,
            next,
            unanswered: start.unanswered,
            out: Bytes::new(),
            cleared: false,
            in_hand: 0,
            held: false,
            page: page.into(),
            reading: None,
            done: false,
        }
    }

    /// Has the stream's pump polled with this from now on.
    pub(super) fn drive(&mut self, driver: Arc<Driver>) {
        self.driver = Some(driver);
    }

    /// The stream, for the extensions of the response.
    pub(crate) fn delivered(&self) -> Delivered {
        Delivered(Arc::clone(&self.stream))
    }

    fn next_frame(&mut self) -> Bytes {
        let part = self.out.len() <= self.in_hand;
        let frame = self.out.split_to(self.out.len().min(MAX_FRAME));
        let handed = if part { frame.len() } else { 0 };
        if part || std::mem::take(&mut self.held) {
            self.in_hand -= handed;
            self.stream.handed(self.generation, handed);
        }
        frame
    }

    fn cursor(&self) -> Cursor {
        let before = Seq::new(self.next.get() - 1);
        Cursor::new(&self.stream.header().key, before)
    }

    fn greet(&self, greeting: Greeting, numbered: bool) -> Bytes {
        match greeting {
            Greeting::Position(cursor) => bare_event(&cursor),
            Greeting::Priming if numbered && let Some(numbering) = self.stream.numbering() => {
                let before = Seq::new(self.next.get() - 1);
                priming(numbering, before, !self.unanswered.is_empty())
            }
            Greeting::Priming | Greeting::Comment => comment(b""),
        }
    }

    fn answered(&mut self, subject: &Subject) {
        if !self.unanswered.is_empty() {
            subject.visit(&mut |part| {
                if let Subject::Answer(id) = part {
                    self.unanswered.retain(|waiting| waiting != id);
                }
            });
        }
    }

    /// As many events of the page as fit into a frame.
    fn turn(&mut self) {
        let mut sent = 0;
        let mut joined = BytesMut::new();
        while let Some(event) = self.page.front() {
            if sent > 0 && joined.len() + event.bytes.len() > MAX_FRAME {
                break;
            }
            joined.extend_from_slice(&event.bytes);
            sent += 1;
            let Some(event) = self.page.pop_front() else {
                break;
            };
            self.answered(&event.subject);
            self.next = self.next.next();
            self.stream.advance(
                self.generation,
                self.next,
                std::iter::once(event.bytes.len()),
            );
        }
        self.out = joined.freeze();
        self.in_hand = self.out.len().saturating_sub(MAX_FRAME);
    }

    fn read(&mut self) {
        let events = self.events.clone();
        let key = self.stream.header().key.clone();
        let after = Seq::new(self.next.get() - 1);
        let Settings {
            store_deadline,
            page,
            ..
        } = self.settings;
        self.reading = Some(Box::pin(async move {
            let mut tries = 0;
            loop {
                match within(store_deadline, events.read_after(&key, after, page)).await {
                    Ok(snapshot) => return Ok(snapshot),
                    Err(error) if tries == TRIES => return Err(error.kind()),
                    Err(error) => {
                        tracing::debug!(%error, "the log was not read");
                        tries += 1;
                        sleep(WAIT).await;
                    }
                }
            }
        }));
    }

    fn opened_page(&mut self, read: Result<Option<Snapshot>, StoreErrorKind>) {
        match read {
            Ok(Some(snapshot)) if !snapshot.events.is_empty() => {
                self.page = snapshot.events.into();
                let published = self.stream.head().get().saturating_sub(self.next.get() - 1);
                self.page
                    .truncate(usize::try_from(published).unwrap_or(usize::MAX));
            }
            Ok(_) => self.fail(
                Reason::StreamCursorUnrecoverable,
                "events that come next are not in the log",
            ),
            Err(kind) => self.fail(Reason::SessionUnconfirmed, kind.as_str()),
        }
    }

    /// The stream cannot be gone on with for this client: an error for each request it waits for, and an end that it
    /// cannot come back to.
    fn fail(&mut self, reason: Reason, detail: &'static str) {
        let cursor = self.cursor().terminal();
        let rejection = Rejection::new(reason, detail);
        let mut out = BytesMut::new();
        for id in &self.unanswered {
            out.extend_from_slice(&last_event(&cursor, &rejection.message(Some(id))));
        }
        if self.unanswered.is_empty() {
            out.extend_from_slice(&last_event(&cursor, &rejection.message(None)));
        }
        self.say_last(out.freeze());
    }

    /// What is said of the session itself, whoever owns it now.
    fn say_last(&mut self, out: Bytes) {
        self.out = out;
        self.in_hand = 0;
        self.cleared = true;
        self.done = true;
    }

    fn end(&mut self, ending: Ending) {
        // Every other end comes after whatever was owed, as events of the stream; one that was torn down may have had
        // no room for them.
        if matches!(ending, Ending::Lost | Ending::TornDown) && !self.unanswered.is_empty() {
            let detail = "the stream was lost before the answer";
            return self.fail(Reason::OutcomeUnknown, detail);
        }
        if matches!(ending, Ending::Retired | Ending::Lost) {
            return self.say_last(retry(self.settings.retry_millis));
        }
        self.done = true;
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if !self.out.is_empty() {
                if !self.cleared
                    && let Some((guard, _)) = &mut self.hold
                {
                    match guard.poll_proof(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => {
                            self.out = Bytes::new();
                            self.page.clear();
                            self.end(Ending::Lost);
                            continue;
                        }
                        Poll::Pending => {
                            self.held = true;
                            self.stream.held(self.generation);
                            return Poll::Pending;
                        }
                    }
                }
                self.cleared = true;
                return Poll::Ready(Some(self.next_frame()));
            }
            if self.done {
                self.stream.detach(self.generation);
                self.hold = None;
                return Poll::Ready(None);
            }
            self.cleared = false;
            if let Some(driver) = &self.driver {
                driver.drive();
            }
            if let Some(greeting) = self.greeting.take() {
                match self.stream.poll_numbered(cx) {
                    Poll::Ready(numbered) => {
                        let greeting = self.greet(greeting, numbered);
                        // An inner service that primes its stream says when to come back; in one frame with this.
                        self.out = match self.stream.aside(self.generation) {
                            Some(aside) => Bytes::from([greeting, aside].concat()),
                            None => greeting,
                        };
                    }
                    Poll::Pending => {
                        self.greeting = Some(greeting);
                        return Poll::Pending;
                    }
                }
                continue;
            }
            if !self.page.is_empty() {
                self.turn();
                continue;
            }
            if let Some(reading) = &mut self.reading {
                let read = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                self.opened_page(read);
                continue;
            }
            match self.stream.take(self.generation, cx.waker()) {
                Taken::Chunk(chunk) => {
                    self.next = chunk.end();
                    if !chunk.answers.is_empty() {
                        self.unanswered.retain(|id| !chunk.answers.contains(id));
                    }
                    self.out = chunk.bytes;
                    self.in_hand = self.out.len().saturating_sub(MAX_FRAME);
                }
                Taken::Behind => self.read(),
                Taken::Aside(bytes) => self.out = bytes,
                Taken::Ended(ending) => self.end(ending),
                Taken::Superseded => {
                    // Not to come back: the newer one would be ended in its turn, and so on for ever.
                    self.say_last(bare_event(&self.cursor().terminal()));
                }
                Taken::Wait => return Poll::Pending,
            }
        }
    }
}

impl Body for Delivery {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let polled = this.poll_next(cx);
        if let Some(driver) = &this.driver {
            match &polled {
                Poll::Pending if this.out.is_empty() => driver.listen(cx.waker()),
                // While the proof is waited for, the pump is not polled.
                Poll::Pending | Poll::Ready(Some(_)) => driver.away(),
                Poll::Ready(None) => driver.leave(),
            }
        }
        polled.map(|frame| frame.map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.done && self.out.is_empty()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.stream.detach(self.generation);
        if let Some(driver) = &self.driver {
            driver.leave();
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("stream", &self.stream.header().key)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
