//! What stands between an inner service's stream and the wire: it numbers, records, bounds and delivers.
//!
//! An inner stream has a *pump*, which pulls it, gives each event a number and a [`Cursor`], has it logged, and
//! publishes it in a bounded *window*. A client's response body is a *delivery*: it takes from the window at the
//! client's pace, and what has left the window it reads from the log again. The two meet only in the window, so what
//! is true of one client that reads is true of the next one that comes back: each event once, in order. A *driver* has
//! the pump polled by the delivery while that asks for more, and by a task when it does not or is gone.
//!
//! - When a client leaves, the pump goes on for the resume window: a disconnect is no cancellation in the eras that
//!   have sessions.
//! - An event is logged before it is published. Where that fails its number stays a gap.
//! - A stream that owes an answer ends with the answer or with an error, never without.

mod batch;
mod cursor;
mod delivery;
mod drain;
mod driver;
mod pump;
#[cfg(test)]
mod races;
mod refusal;
mod sessions;
mod source;
mod stream;
mod sync;
mod window;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use tokio::runtime::Handle;

pub use cursor::{Cursor, NotACursor};
pub(crate) use delivery::{Delivery, Greeting, Start};
pub(crate) use drain::{Delivered, Gauge, Lever, Progress, Relief};
pub(crate) use pump::within;
pub(crate) use refusal::{as_event_stream, refuse_after_the_end, refuse_in_band};
pub(crate) use sessions::{Sessions, Streams};
pub(crate) use source::GoOn;
pub(crate) use stream::Stream;
pub(crate) use window::{Bounds, Chunk};

use self::{
    batch::{Numbering, Prefix},
    driver::Driver,
    pump::Pump,
    source::Source,
};
use crate::{
    instance::{Guard, Outlet, Running, Serving, Shared},
    mcp::{RequestId, RequestIds},
    store::{Ending, Page, SharedEvents, Snapshot, StreamHeader, StreamKey},
};

/// Bounds and times of an outbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) bounds: Bounds,
    /// The largest event that an inner service may send.
    pub(crate) event_limit: usize,
    /// How long a store may take for one call.
    pub(crate) store_deadline: Duration,
    /// How long a stream is recorded for a client that is away.
    pub(crate) resume_window: Duration,
    /// When clients of a retiring instance are to come back.
    pub(crate) retry_millis: u64,
    /// How much of the log is read at once.
    pub(crate) page: Page,
    /// How many streams of one session are recorded at once.
    pub(crate) max_streams: usize,
}

/// Carries the streams of one instance.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    pub(crate) shared: Arc<Shared>,
    pub(crate) events: SharedEvents,
    pub(crate) settings: Settings,
    pub(crate) sessions: Arc<Sessions>,
    prefix: Prefix,
}

/// The stream of an inner service, about to be carried.
pub(crate) struct Inner<R> {
    pub(crate) body: R,
    /// The requests that it answers; none for a standalone stream.
    pub(crate) requests: RequestIds,
    pub(crate) go_on: Option<GoOn<R>>,
}

/// Numbers of streams are drawn here: two layers of one instance never use the same.
static STREAMS: AtomicU64 = AtomicU64::new(1);

impl Outbox {
    pub(crate) fn new(shared: Arc<Shared>, events: SharedEvents, settings: Settings) -> Self {
        Self {
            prefix: Prefix::new(shared.id().epoch()),
            shared,
            events,
            settings,
            sessions: Arc::default(),
        }
    }

    /// Carries an inner stream from its beginning. Gives the stream back when the session has too many.
    pub(crate) fn carry<R>(
        &self,
        streams: Streams,
        serving: Serving,
        inner: Inner<R>,
        greeting: Greeting,
    ) -> Result<Delivery, Inner<R>>
    where
        R: Body<Data = Bytes> + Send + 'static,
    {
        if streams.len() >= self.settings.max_streams {
            return Err(inner);
        }
        let session = serving.session();
        let key = StreamKey {
            session: streams.id().clone(),
            epoch: self.shared.id().epoch(),
            stream: STREAMS.fetch_add(1, Ordering::Relaxed),
        };
        let capabilities = session.terms.capabilities;
        let requests: Arc<[RequestId]> = inner.requests.as_slice().into();
        let header = StreamHeader::new(key, serving.fence(), capabilities, requests);
        // A position can name one request.
        let pending = match &*inner.requests {
            [one] => Some(one),
            _ => None,
        };
        let numbering = Numbering::new(&self.prefix, header.key.stream, pending);
        let stream = Arc::new(Stream::new(header, numbering, self.settings.bounds));
        streams.add(Arc::clone(&stream));
        let running = match inner.requests.is_empty() {
            true => Running::Stream,
            false => Running::Call,
        };
        let start = Start {
            next: None,
            greeting: Some(greeting),
            unanswered: inner.requests.clone(),
            page: Vec::new(),
        };
        let mut delivery = self.deliver(Arc::clone(&stream), serving.also(running), start);
        let pump = Pump {
            stream,
            streams,
            serving,
            shared: Arc::clone(&self.shared),
            events: self.events.clone(),
            settings: self.settings,
            source: Source::new(inner.body, self.settings.event_limit, inner.go_on),
            owed: inner.requests,
            state: Default::default(),
            _outlet: Outlet::new(&self.shared),
        };
        delivery.drive(Driver::start(pump.run(), Handle::current()));
        Ok(delivery)
    }

    /// Attaches a client to a stream that is carried already.
    pub(crate) fn deliver(&self, stream: Arc<Stream>, serving: Serving, start: Start) -> Delivery {
        Delivery::new(
            stream,
            Guard::new(serving, Arc::clone(&self.shared)),
            self.events.clone(),
            self.settings,
            start,
            Outlet::new(&self.shared),
        )
    }

    /// A stream of which only the log is left. Its producer is gone; `ending` says how, if it could.
    pub(crate) fn logged(&self, snapshot: &Snapshot) -> Arc<Stream> {
        Arc::new(Stream::over(
            snapshot.header.clone(),
            self.settings.bounds,
            snapshot.head,
            snapshot.ending.unwrap_or(Ending::Lost),
        ))
    }
}
