//! `stateless_resume`: a balancer without affinity drops the connections of sessions that negotiated more than the
//! default, in the middle of a stream. They come back to an instance that shares the log of events, and only that.

mod forgetful;
mod front;

use std::sync::Arc;

use mcp_session_guard::resume_guard::LogReach;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::forgetful::Forgetful;
use crate::{
    Error,
    balancer::Balancer,
    caller::{Caller, PATIENCE},
    counter::Runs,
    guarded::{self, Shared},
    naive::Log,
    report::{Figure::Count, Report, Variant},
    store,
    stream::Heard,
};

const INSTANCES: usize = 3;
const SESSIONS: usize = 12;
/// How many numbers a call tells, and how many of them its client hears before it loses its connection.
const NUMBERS: u32 = 12;
const HEARD: usize = 3;
/// Calls that depend on what came before.
const FOLLOW_UPS: usize = 3;

#[derive(Default)]
struct Tally {
    wrong_capability_calls: usize,
    right_capability_calls: usize,
    replays_without_context: usize,
    resumes_refused: usize,
    sent_on: usize,
    errors: usize,
}

pub(crate) async fn run(variant: Variant) -> Result<Report, Error> {
    eprintln!("stateless_resume {variant}: {SESSIONS} sessions at {INSTANCES} instances");
    let runs = Runs::default();
    let mut pods = Vec::new();
    // Dropped last: an instance lives as long as somebody holds it.
    let mut instances = Vec::new();
    let log = Arc::new(Log::default());
    let stores = store::open().await?;
    let shared = Shared {
        directory: stores.directory,
        handshakes: Arc::default(),
        runs: runs.clone(),
    };
    let events = Forgetful(stores.events);
    for number in 1..=INSTANCES {
        let name = format!("pod-{number}");
        pods.push(match variant {
            Variant::Unguarded => front::start(&name, &log, &runs).await?,
            Variant::Guarded => {
                let events = events.clone();
                let (pod, instance) =
                    guarded::start(&name, &shared, LogReach::Shared, events).await?;
                instances.push(instance);
                pod
            }
        });
    }
    let balancer = Balancer::start(&pods).await?;
    let mut tally = Tally::default();
    // One after the other: the balancer then drops the connections of one session only.
    for number in 0..SESSIONS {
        session(&balancer, &runs, variant, number, &mut tally).await?;
    }
    drop(balancer);
    for pod in pods {
        pod.crash().await?;
    }
    Ok(report(variant, &tally))
}

/// What the client can do, and says so in the handshake: more than a session has by default.
fn declared() -> Value {
    json!({"sampling": {}, "roots": {"listChanged": true}})
}

async fn session(
    balancer: &Balancer,
    runs: &Runs,
    variant: Variant,
    number: usize,
    tally: &mut Tally,
) -> Result<(), Error> {
    let mut caller = Caller::open(&balancer.address, &declared()).await?;
    let run = format!("session-{number}");
    let range = json!({"run": run, "after": 0, "to": NUMBERS});
    let mut stream = caller.call(1, "count", &range).await?;
    let dispatched_to = stream.served_by.clone();
    for _ in 0..HEARD {
        let Heard::Message(_) = stream.next().await? else {
            return Err("a stream ended before its time".into());
        };
    }
    balancer.drop_connections();
    while let Heard::Message(_) = stream.next().await? {}
    let mut last_id = stream.last_id;
    // The tool ends while its client is away.
    runs.reach(&run, NUMBERS + 1).await?;

    let deadline = Instant::now() + PATIENCE;
    let mut over = false;
    while !over {
        if Instant::now() > deadline {
            return Err(format!("{run} never heard what became of its call").into());
        }
        caller.reconnect().await?;
        let mut resumed = caller.resume(&last_id).await?;
        while let Heard::Message(message) = resumed.next().await? {
            if message.get("result").is_some() {
                // Neither log keeps requests. At most the instance that ran the call knows of it by itself, and the
                // guarded one is not given credit for that.
                let context = variant == Variant::Unguarded && resumed.served_by == dispatched_to;
                tally.replays_without_context += usize::from(!context);
                over = true;
            } else if let Some(error) = message.get("error") {
                if error["data"]["reason"] != "session_resume_rejected" {
                    return Err(format!("a resume was refused otherwise: {error}").into());
                }
                tally.resumes_refused += 1;
                tally.errors += 1;
                over = true;
                // As the refusal says: what was agreed and asked is agreed and asked anew.
                tally.sent_on += caller.sent_on;
                caller = Caller::open(&balancer.address, &declared()).await?;
            }
        }
        last_id = resumed.last_id;
    }

    for id in 0..FOLLOW_UPS {
        // The balancer's idle time-out strikes between any two calls.
        caller.reconnect().await?;
        let mut stream = caller.call(10 + id as u64, "agreed", &json!({})).await?;
        while let Heard::Message(message) = stream.next().await? {
            let text = message["result"]["content"][0]["text"].as_str();
            let acted_by = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
            match acted_by {
                Some(acted_by) if acted_by == declared() => tally.right_capability_calls += 1,
                Some(_) => tally.wrong_capability_calls += 1,
                None => tally.errors += 1,
            }
        }
    }
    tally.sent_on += caller.sent_on;
    Ok(())
}

fn report(variant: Variant, tally: &Tally) -> Report {
    let silent = tally
        .wrong_capability_calls
        .min(tally.replays_without_context);
    let broken = match variant {
        Variant::Unguarded if silent == 0 => {
            vec!["no call ran under a wrong agreement, or no replay was out of context".into()]
        }
        Variant::Guarded
            if tally.wrong_capability_calls + tally.replays_without_context > 0
                || tally.resumes_refused == 0
                || tally.right_capability_calls != SESSIONS * FOLLOW_UPS =>
        {
            vec!["something was replayed or called that could not be proven, or not served".into()]
        }
        _ => Vec::new(),
    };
    Report {
        variant,
        figures: vec![
            ("sessions", Count(SESSIONS)),
            (
                "wrong_capability_calls",
                Count(tally.wrong_capability_calls),
            ),
            (
                "right_capability_calls",
                Count(tally.right_capability_calls),
            ),
            (
                "replays_without_context",
                Count(tally.replays_without_context),
            ),
            ("resumes_refused", Count(tally.resumes_refused)),
            ("sent_on", Count(tally.sent_on)),
            ("errors_told", Count(tally.errors)),
        ],
        broken,
    }
}
