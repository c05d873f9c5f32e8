//! `rehash`: two of six instances crash, their sessions move along the ring, and the edge loses some other pins at
//! the same time. Every session goes on and finds out what became of its notebook.

mod session;
mod tally;

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::session::Session;
use crate::{
    Error,
    client::Client,
    edge::Edge,
    pod::Pod,
    report::{Report, Variant},
    store,
};

const PODS: usize = 6;
const CRASHES: usize = 2;
const SESSIONS: usize = 600;
/// One in four of these finds the right one of the four living instances by chance, so some 3 % of all sessions go
/// to a wrong one though their own is alive.
const FORGOTTEN_PINS: usize = 24;
/// Between two calls of a session.
const PACE: Duration = Duration::from_millis(500);

pub(crate) async fn run(variant: Variant) -> Result<Report, Error> {
    let progress = |what: &str| eprintln!("rehash {variant}: {what}");
    let store = store::open().await?.directory;
    let mut pods = Vec::new();
    for number in 1..=PODS {
        let name = Arc::from(format!("pod-{number}"));
        pods.push(Pod::start(name, variant, store.clone()).await?);
    }
    let edge = Edge::start(&pods).await?;
    let client = Arc::new(Client::new(&format!("http://{}/mcp", edge.address))?);

    progress(&format!("opening {SESSIONS} sessions at {PODS} instances"));
    let sessions =
        all((0..SESSIONS).map(|number| Session::open(Arc::clone(&client), number))).await?;

    progress(&format!("crashing {CRASHES} instances"));
    let crash = Instant::now();
    let mut crashed = HashSet::new();
    for pod in pods.drain(..CRASHES) {
        edge.remove(&pod.name);
        crashed.insert(pod.name.to_string());
        pod.crash().await?;
    }
    edge.forget_pins(FORGOTTEN_PINS);

    progress("every session goes on");
    let crashed = Arc::new(crashed);
    let resume = Instant::now();
    let stories = all(sessions.into_iter().enumerate().map(|(number, session)| {
        // Spread over one pace, as clients are that know nothing of each other.
        let begin = resume + PACE.mul_f64(number as f64 / SESSIONS as f64);
        let crashed = Arc::clone(&crashed);
        async move {
            sleep_until(begin).await;
            session.go_on(&crashed).await
        }
    }))
    .await?;

    drop(edge);
    for pod in pods {
        pod.crash().await?;
    }
    Ok(tally::report(variant, &stories, crash.into_std()))
}

/// Runs them all at once.
async fn all<T: Send + 'static>(
    tasks: impl Iterator<Item = impl Future<Output = Result<T, Error>> + Send + 'static>,
) -> Result<Vec<T>, Error> {
    let mut running: JoinSet<_> = tasks.collect();
    let mut done = Vec::with_capacity(running.len());
    while let Some(joined) = running.join_next().await {
        done.push(joined??);
    }
    Ok(done)
}
