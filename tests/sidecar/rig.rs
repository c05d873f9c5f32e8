//! A sidecar in this process, and streams as a client reads them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use mcp_session_guard::store::{EventStore, MemoryStore, RequestLedger, SessionDirectory};
use serde_json::Value;
use tokio::{net::TcpListener, sync::Notify, task::JoinHandle, time::timeout};

use crate::{DEADLINE, client::Client, options::Options, serve::serve};

pub struct Sidecar {
    address: SocketAddr,
    ends: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Sidecar {
    pub async fn before(upstream: &str) -> Self {
        Self::with(upstream, MemoryStore::new(), |_| {}).await
    }

    pub async fn with(
        upstream: &str,
        store: impl SessionDirectory + EventStore + RequestLedger + Clone,
        choose: impl FnOnce(&mut Options),
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut options = Options::new(upstream).expect("an upstream");
        options.address = Some(format!("http://{address}"));
        choose(&mut options);
        let ends = Arc::new(Notify::new());
        let ended = Arc::clone(&ends);
        let task = tokio::spawn(async move {
            let ends = async move { ended.notified().await };
            let served = serve(listener, &options, store, ends).await;
            served.expect("serves");
        });
        let sidecar = Self {
            address,
            ends,
            task,
        };
        sidecar.ready().await;
        sidecar
    }

    /// As SIGTERM does.
    pub fn end(&self) {
        self.ends.notify_one();
    }

    pub async fn ended(mut self) {
        let ended = timeout(DEADLINE, &mut self.task).await;
        ended.expect("it ends").expect("no panic");
    }

    async fn ready(&self) {
        let probe = async {
            loop {
                if self.probe().await == 200 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(DEADLINE, probe).await.expect("it gets ready");
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn client(&self) -> Client {
        Client::new(self.url())
    }

    pub async fn probe(&self) -> u16 {
        let probed = reqwest::get(format!("http://{}/ready", self.address)).await;
        probed.map_or(0, |answer| answer.status().as_u16())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An event with data.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: String,
    pub message: Value,
}

/// An answer that is read event by event.
pub struct Stream {
    response: reqwest::Response,
    text: String,
    /// The id of the newest event.
    pub last_id: String,
}

impl Stream {
    pub async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = timeout(DEADLINE, request.send()).await;
        let response = response.expect("headers in time").expect("an answer");
        let kind = response.headers()["content-type"].to_str().expect("text");
        assert_eq!(
            (response.status().as_u16(), kind),
            (200, "text/event-stream")
        );
        Self {
            response,
            text: String::new(),
            last_id: String::new(),
        }
    }

    /// The next event with data, or `None` at the end.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let mut lines = event.lines();
                    let value = lines.find_map(|line| line.strip_prefix(name));
                    value.unwrap_or_default().trim().to_owned()
                };
                let (id, data) = (field("id:"), field("data:"));
                self.text = rest.to_owned();
                if !id.is_empty() {
                    self.last_id.clone_from(&id);
                }
                if !data.is_empty() {
                    let message = serde_json::from_str(&data).expect("JSON");
                    return Some(Event { id, message });
                }
            }
            let chunk = timeout(DEADLINE, self.response.chunk()).await;
            let chunk = chunk
                .expect("something in time")
                .expect("no broken answer")?;
            self.text += std::str::from_utf8(&chunk).expect("text");
        }
    }

    /// Everything that is left.
    pub async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}
