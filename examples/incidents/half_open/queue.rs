//! The outbound queue of one session, as such servers have it: as long as its flow control allows, which asks how long
//! the queue is and not whether anybody reads it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rmcp::{
    RoleServer,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};

/// Where its flow control lies.
const LIMIT: usize = 90 << 20;

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    state: Mutex<State>,
    changed: Notify,
    inbound: mpsc::UnboundedSender<RxJsonRpcMessage<RoleServer>>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<String>,
    bytes: usize,
    /// Requests whose answers are to be queued before their POSTs are accepted.
    waiting: HashMap<String, oneshot::Sender<()>>,
    meter: Meter,
}

/// What was queued and what the HTTP server took, measured outside everything.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    pub(super) events: usize,
    pub(super) bytes: usize,
    pub(super) peak_events: usize,
    pub(super) peak_bytes: usize,
    pub(super) handed: u64,
    pub(super) last_taken: Option<Instant>,
    pub(super) torn_down: Option<Instant>,
}

impl Meter {
    pub(super) fn stood_still(&self) -> Option<Duration> {
        Some(self.torn_down?.duration_since(self.last_taken?))
    }
}

impl Session {
    pub(super) fn open() -> (Arc<Self>, Pipe) {
        let (inbound, received) = mpsc::unbounded_channel();
        let session = Arc::new(Self {
            state: Mutex::default(),
            changed: Notify::new(),
            inbound,
        });
        let pipe = Pipe {
            session: Arc::clone(&session),
            received,
        };
        (session, pipe)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn meter(&self) -> Meter {
        self.state().meter
    }

    /// Hands a message to rmcp; the receiver hears when its answer was queued.
    pub(super) fn receive(&self, message: &Value) -> Option<oneshot::Receiver<()>> {
        let parsed = serde_json::from_value(message.clone()).ok()?;
        let (queued, waits) = oneshot::channel();
        if message["method"].is_string() && !message["id"].is_null() {
            let id = message["id"].to_string();
            self.state().waiting.insert(id, queued);
        } else {
            let _ = queued.send(());
        }
        self.inbound.send(parsed).ok()?;
        Some(waits)
    }

    async fn push(&self, mut event: String, answers: Option<String>) {
        loop {
            let changed = self.changed.notified();
            match self.try_push(event, answers.as_deref()) {
                Ok(()) => return self.changed.notify_waiters(),
                Err(full) => event = full,
            }
            changed.await;
        }
    }

    /// Gives the event back while the queue is as long as it may be.
    fn try_push(&self, event: String, answers: Option<&str>) -> Result<(), String> {
        let mut state = self.state();
        if state.bytes >= LIMIT {
            return Err(event);
        }
        state.bytes += event.len();
        let meter = &mut state.meter;
        meter.events += 1;
        meter.bytes += event.len();
        meter.peak_events = meter.peak_events.max(meter.events);
        meter.peak_bytes = meter.peak_bytes.max(meter.bytes);
        state.queue.push_back(event);
        if let Some(waiting) = answers.and_then(|id| state.waiting.remove(id)) {
            let _ = waiting.send(());
        }
        Ok(())
    }

    /// What comes next on the stream.
    pub(super) async fn pop(&self) -> String {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let popped = {
                let mut state = self.state();
                let popped = state.queue.pop_front();
                state.bytes -= popped.as_ref().map_or(0, String::len);
                popped
            };
            if let Some(event) = popped {
                self.changed.notify_waiters();
                return event;
            }
            changed.await;
        }
    }

    /// The HTTP server took something.
    pub(super) fn taken(&self, bytes: usize, events: usize) {
        let mut state = self.state();
        let meter = &mut state.meter;
        meter.events = meter.events.saturating_sub(events);
        meter.bytes = meter.bytes.saturating_sub(bytes);
        meter.handed += bytes as u64;
        meter.last_taken = Some(Instant::now());
    }

    /// The stream was dropped.
    pub(super) fn dropped(&self) {
        self.state().meter.torn_down = Some(Instant::now());
    }
}

/// rmcp's end.
pub(super) struct Pipe {
    session: Arc<Session>,
    received: mpsc::UnboundedReceiver<RxJsonRpcMessage<RoleServer>>,
}

impl Transport<RoleServer> for Pipe {
    type Error = serde_json::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let session = Arc::clone(&self.session);
        async move {
            let text = serde_json::to_string(&message)?;
            let answers = id_of(&text);
            let event = format!("event: message\ndata: {text}\n\n");
            drop(text);
            session.push(event, answers).await;
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.received.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Without a copy of a large answer.
fn id_of(text: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Answer {
        id: Option<Value>,
    }
    let answer: Answer = serde_json::from_str(text).ok()?;
    answer.id.map(|id| id.to_string())
}
