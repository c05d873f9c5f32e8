//! One of 400 clients stops reading its stream, behind a proxy that buffers, and goes on calling; a gateway gives each
//! call up after a while and sends it again.
//!
//! The server is a process of its own, so that what its memory grows by is its own doing: rmcp behind HTTP+SSE (MCP
//! 2024-11-05), where all answers of a session come on one stream, with an outbound queue for each session. It asks
//! whether a session exists, and never whether its stream drains.

mod client;
mod gateway;
mod process;
mod proxy;
mod queue;
pub(crate) mod server;
mod tool;

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use self::{
    client::{Frozen, Reader},
    gateway::{Gateway, Outcome},
    process::Server,
};
use crate::{
    Error,
    report::{Figure, Report, Variant},
};

const SESSIONS: usize = 400;
/// How often the client calls that does not read. Their answers are more than the server's queue takes.
const CALLS: usize = 1600;
/// How many of them at once.
const AT_ONCE: usize = 8;
const PACE: Duration = Duration::from_millis(12);
/// How long the rest is watched afterwards.
const PATIENCE: Duration = Duration::from_secs(15);
/// What the memory of a guarded server may grow by.
const MAX_GROWTH: usize = 8 << 20;

/// Whether this program is to be the server of the incident, and which one.
pub(crate) fn server_variant(mut args: impl Iterator<Item = String>) -> Option<Variant> {
    (args.next()? == process::OPTION).then_some(())?;
    let variant = args.next()?;
    [Variant::Unguarded, Variant::Guarded]
        .into_iter()
        .find(|known| known.to_string() == variant)
}

pub(crate) async fn run(variant: Variant) -> Result<Report, Error> {
    let server = Server::start(variant).await?;
    let gateway = Arc::new(Gateway::new(&server.url)?);
    let readers = others(&server.url, &gateway).await?;
    let address = proxy::start(server.address).await?;
    let frozen = Frozen::open(address, &gateway).await?;
    // What a first large answer takes is not what a queue takes.
    for number in 0..16 {
        readers[0].call("large", &format!("warm-{number}")).await?;
    }
    let growth = server.watch_memory()?;

    let steady = tokio::spawn(steadily(readers));
    let outcome = calls(&gateway, &frozen).await?;
    let torn_down = torn_down(&server, &gateway, &frozen, variant).await?;
    let figures = server.figures(frozen.session()).await?;
    let others_refused = steady.await??;
    let grown = growth.most().await?;
    let late = figures.stood_still.saturating_sub(figures.allowance);

    let mut broken = Vec::new();
    let mut must = |kept: bool, what: &str| {
        if !kept {
            broken.push(what.to_owned());
        }
    };
    match variant {
        Variant::Guarded => {
            must(
                figures.peak_events <= figures.high_water_events
                    && figures.peak_bytes <= figures.high_water_bytes,
                "the queue stays below the high-water mark",
            );
            must(grown <= MAX_GROWTH, "memory grows by no more than 8 MiB");
            must(outcome.refused > 0, "the session is refused");
            must(figures.duplicates == 0, "no tool runs twice");
            must(others_refused == 0, "no other session is refused");
            must(torn_down, "the stream is torn down");
            must(
                late <= Duration::from_secs(1),
                "the stream is torn down within a second after its allowance",
            );
        }
        Variant::Unguarded => {
            must(grown > 10 * MAX_GROWTH, "memory grows with the queue");
            must(figures.duplicates > 0, "retries run tools twice");
            must(!torn_down, "nobody tears the stream down");
        }
    }
    Ok(Report {
        variant,
        figures: vec![
            ("sessions", Figure::Count(SESSIONS)),
            ("calls", Figure::Count(CALLS)),
            ("peak_queued_events", Figure::Count(figures.peak_events)),
            (
                "high_water_events",
                Figure::Count(figures.high_water_events),
            ),
            ("peak_queued_bytes", Figure::Count(figures.peak_bytes)),
            ("high_water_bytes", Figure::Count(figures.high_water_bytes)),
            ("rss_growth_bytes", Figure::Count(grown)),
            ("refused", Figure::Count(outcome.refused)),
            ("other_sessions_refused", Figure::Count(others_refused)),
            ("gateway_retries", Figure::Count(outcome.retries)),
            ("tool_runs", Figure::Count(figures.runs)),
            ("duplicate_tool_runs", Figure::Count(figures.duplicates)),
            ("torn_down", Figure::Count(usize::from(torn_down))),
            (
                "torn_down_after_ms",
                Figure::Millis(torn_down.then_some(figures.stood_still)),
            ),
            (
                "liveness_allowance_ms",
                Figure::Millis(torn_down.then_some(figures.allowance)),
            ),
        ],
        broken,
    })
}

/// Sessions whose clients read.
async fn others(url: &str, gateway: &Arc<Gateway>) -> Result<Vec<Reader>, Error> {
    let gate = Semaphore::new(16);
    let opening = (1..SESSIONS).map(async |_| {
        let _permit = gate.acquire().await?;
        let reader = Reader::open(url, Arc::clone(gateway)).await?;
        reader.call("append", "first").await?;
        Ok::<_, Error>(reader)
    });
    try_join_all(opening).await
}

/// Each of them calls once a second or so; how many were refused or got no answer.
async fn steadily(readers: Vec<Reader>) -> Result<usize, Error> {
    let gate = Semaphore::new(16);
    let mut refused = 0;
    for round in 0..4 {
        let calls = readers.iter().map(async |reader| {
            let _permit = gate.acquire().await?;
            Ok::<_, Error>(reader.call("append", &round.to_string()).await.is_err())
        });
        refused += try_join_all(calls)
            .await?
            .into_iter()
            .filter(|refused| *refused)
            .count();
        sleep(Duration::from_secs(1)).await;
    }
    Ok(refused)
}

/// The calls of the client that does not read, in order and a few at once.
async fn calls(gateway: &Arc<Gateway>, frozen: &Frozen) -> Result<Outcome, Error> {
    let workers = (0..AT_ONCE).map(async |worker| {
        let mut outcome = Outcome::default();
        for number in (worker..CALLS).step_by(AT_ONCE) {
            let call = client::call(number + 1000, "large", &format!("frozen-{number}"));
            outcome.add(&gateway.post(frozen.session(), &call).await?);
            sleep(PACE).await;
        }
        Ok::<_, Error>(outcome)
    });
    let outcomes = try_join_all(workers).await?;
    let mut total = Outcome::default();
    outcomes.iter().for_each(|outcome| total.add(outcome));
    Ok(total)
}

/// It goes on calling now and then. Whether its stream is torn down.
async fn torn_down(
    server: &Server,
    gateway: &Gateway,
    frozen: &Frozen,
    variant: Variant,
) -> Result<bool, Error> {
    let patience = match variant {
        Variant::Guarded => PATIENCE,
        // Nothing will come of it.
        Variant::Unguarded => Duration::from_secs(3),
    };
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if server.figures(frozen.session()).await?.torn_down {
            return Ok(true);
        }
        let ping = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        gateway.once(frozen.session(), &ping).await?;
        sleep(Duration::from_millis(100)).await;
    }
    Ok(false)
}
