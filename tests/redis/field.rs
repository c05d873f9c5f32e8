//! Several guarded instances on one store, clients that ask for their sessions anywhere, and what came of it.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use mcp_session_guard::{
    affinity_guard::{AffinityGuardLayer, Disposition, ResponseBody},
    body::Replay,
    instance::Instance,
    session::{Offer, Residency},
    store::{RedisConfig, RedisStore},
};
use tokio::{runtime::Handle, task::JoinHandle};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::{
    history::{Event, History},
    server::PATIENCE,
    support::{
        Answer, CALL, INITIALIZE, Sent, delete,
        inner::{InnerBody, SERVER, opening, respond},
        post,
    },
};

/// Long enough for a busy machine, short enough to wait for a recovery.
pub const LEASE: Duration = Duration::from_secs(3);
/// No answer takes longer than the guard's own deadline for the store and what the machine makes of it.
const ANSWER: Duration = Duration::from_secs(8);

type Guarded = BoxCloneSyncService<Request<Sent>, Response<ResponseBody<InnerBody>>, Infallible>;

pub struct Pod {
    pub instance: Instance,
    guard: Guarded,
}

pub struct Field {
    pub pods: Vec<Option<Pod>>,
    pub history: Arc<History>,
    pub sessions: Vec<String>,
    residency: Residency,
}

/// How a store is to be used where faults are to be seen soon.
pub fn hasty(config: RedisConfig) -> RedisConfig {
    config
        .with_max_lease(LEASE)
        .with_connect_deadline(Duration::from_millis(300))
        .with_response_deadline(Duration::from_millis(300))
        .with_deadline(Duration::from_millis(600))
}

impl Field {
    /// So many pods, all of which hold a lease, in a directory that is not recovering.
    pub async fn start(config: RedisConfig, pods: usize, residency: Residency) -> Self {
        let store = RedisStore::connect(hasty(config)).await.expect("a store");
        let mut field = Self {
            pods: Vec::new(),
            history: Arc::default(),
            sessions: Vec::new(),
            residency,
        };
        for n in 0..pods {
            field.join(n, &store).await;
        }
        field.settled().await;
        field
    }

    async fn join(&mut self, n: usize, store: &RedisStore) {
        let instance = Instance::builder(format!("pod-{n}"))
            .with_lease(LEASE)
            .join(store.clone())
            .expect("joins");
        instance.ready().await;
        let history = Arc::clone(&self.history);
        let opened = Arc::new(AtomicUsize::new(0));
        let inner = service_fn(move |request: Request<Replay<Sent>>| {
            serve(n, request, Arc::clone(&history), Arc::clone(&opened)).boxed()
        });
        let mut layer = AffinityGuardLayer::new(instance.clone());
        if self.residency == Residency::Externalized {
            let offer = Offer::new(&serde_json::from_str(SERVER).expect("JSON")).expect("an offer");
            layer = layer.externalized().with_offer(offer);
        }
        let guard = layer.layer(inner);
        self.pods.push(Some(Pod {
            instance,
            guard: BoxCloneSyncService::new(guard),
        }));
    }

    /// Until what nobody ever opened is known to be absent: the directory is not recovering.
    pub async fn settled(&self) {
        let living = self.pods.iter().position(Option::is_some).expect("a pod");
        until("the recovery's end", async || {
            self.ask(living, "never-was").await == 404
        })
        .await;
    }

    /// Opens sessions, so many at each pod.
    pub async fn open(&mut self, each: usize) {
        for n in 0..self.pods.len() {
            for _ in 0..each {
                let session = self.try_open(n).await.expect("a session");
                self.sessions.push(session);
            }
        }
    }

    pub async fn try_open(&self, pod: usize) -> Result<String, Answer> {
        let answer = self.send(pod, post(None, INITIALIZE)).await;
        if answer.status != 200 {
            return Err(answer);
        }
        let session = answer.session().to_owned();
        self.history.push(Event::Opened {
            pod,
            session: session.clone(),
        });
        Ok(session)
    }

    pub async fn send(&self, pod: usize, request: Request<Sent>) -> Answer {
        let guard = self.pods[pod].as_ref().expect("a living pod").guard.clone();
        send(guard, request).await
    }

    pub async fn ask(&self, pod: usize, session: &str) -> u16 {
        let guard = self.pods[pod].as_ref().expect("a living pod").guard.clone();
        ask(guard, session, &self.history).await
    }

    pub async fn end(&self, pod: usize, session: &str) -> u16 {
        let session = session.to_owned();
        // Others may be told that it is gone before its client is.
        self.history.push(Event::Ending {
            session: session.clone(),
        });
        let status = self.send(pod, delete(&session)).await.status;
        if status < 300 {
            self.history.push(Event::Ended { session });
        }
        status
    }

    /// A pod dies without a word.
    pub fn kill(&mut self, pod: usize) {
        self.pods[pod] = None;
    }

    /// Until every session is served somewhere.
    pub async fn all_served(&self) {
        for session in &self.sessions {
            self.served(session).await;
        }
    }

    pub async fn served(&self, session: &str) {
        until("service", async || {
            for n in 0..self.pods.len() {
                if self.pods[n].is_some() && self.ask(n, session).await == 200 {
                    return true;
                }
            }
            false
        })
        .await;
    }

    /// Until all leases are over by the pods' own count.
    pub async fn all_lapsed(&self) {
        let ready = |pod: &Pod| pod.instance.is_ready();
        until("the end of the leases", async || {
            !self.pods.iter().flatten().any(ready)
        })
        .await;
    }

    pub async fn all_ready(&self) {
        for pod in self.pods.iter().flatten() {
            let ready = tokio::time::timeout(PATIENCE, pod.instance.ready()).await;
            ready.expect("a lease");
        }
    }

    /// Until clients were served, and were refused, so many times more.
    pub async fn goes_on(&self, served: usize, refused: usize) {
        let before = (self.history.served(), self.history.refused());
        until("traffic", async || {
            self.history.served() >= before.0 + served
                && self.history.refused() >= before.1 + refused
        })
        .await;
    }

    /// Clients that ask for sessions everywhere until they are stopped.
    pub fn traffic(&self) -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..4).map(|client| {
            let guards: Vec<_> = (self.pods.iter().flatten())
                .map(|pod| pod.guard.clone())
                .collect();
            let (sessions, history) = (self.sessions.clone(), Arc::clone(&self.history));
            let stop = Arc::clone(&stop);
            let runtime = Handle::current();
            tokio::task::spawn_blocking(move || {
                runtime.block_on(async move {
                    let mut n = client * 7;
                    while !stop.load(Ordering::Relaxed) {
                        n += 1;
                        let guard = guards[n % guards.len()].clone();
                        ask(guard, &sessions[(n * 31) % sessions.len()], &history).await;
                        // Paced, so that the machine has time for the servers too.
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                });
            })
        });
        Traffic {
            clients: clients.collect(),
            stop,
        }
    }
}

pub struct Traffic {
    clients: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Traffic {
    pub async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.expect("a client that does not panic");
        }
    }
}

async fn send(guard: Guarded, request: Request<Sent>) -> Answer {
    let answer = tokio::time::timeout(ANSWER, async {
        let response = guard.oneshot(request).await.expect("no error");
        Answer::read(response).await
    });
    answer.await.expect("an answer within the deadline")
}

async fn ask(guard: Guarded, session: &str, history: &History) -> u16 {
    let answer = send(guard, post(Some(session), CALL)).await;
    let session = session.to_owned();
    match answer.status {
        200 => {}
        404 => history.push(Event::Gone { session }),
        _ => {
            let reason = answer.refusal().1.to_owned();
            history.push(Event::Refused { session, reason });
        }
    }
    answer.status
}

/// The service behind a guard: opens sessions and writes down what it did for whom.
async fn serve(
    pod: usize,
    request: Request<Replay<Sent>>,
    history: Arc<History>,
    opened: Arc<AtomicUsize>,
) -> Result<Response<InnerBody>, Infallible> {
    let fence = Disposition::of(&request).and_then(|disposition| disposition.fence());
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    if parts.method == Method::DELETE {
        return Ok(respond(http::StatusCode::NO_CONTENT, ""));
    }
    if body.starts_with(INITIALIZE.as_bytes()) {
        let n = opened.fetch_add(1, Ordering::Relaxed);
        return Ok(opening(&format!("session-{pod}-{n}")));
    }
    let session = parts.headers["mcp-session-id"].to_str().expect("text");
    history.push(Event::Served {
        pod,
        session: session.to_owned(),
        fence,
    });
    Ok(respond(
        http::StatusCode::OK,
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
    ))
}

/// Asks again and again until it is so.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE * 2, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited
        .await
        .unwrap_or_else(|_| panic!("{what} did not come"));
}
