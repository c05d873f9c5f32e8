//! What the caller of each client sees of each refusal, how soon, and what is left of the client then.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use mcp_session_guard::{
    rejection::{Reason, RefusalStyle},
    store::StoreErrorKind,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    client::Client,
    driver::Driver,
    edge::Fault,
    log::Loss,
    rig::{BODY_LIMIT, Rig},
    support::{cutter::Cut, directory},
};

/// After this a client is said to hang. Nothing that ends well takes half as long.
const HANGS: Duration = Duration::from_secs(25);

/// How long a client is watched for coming back to what was refused.
const LOOPS: Duration = Duration::from_secs(4);

/// What is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Asked {
    /// The opening of a session.
    Open,
    /// A call.
    Call,
    /// A call that is under way.
    Running,
    /// The resumption of a call's stream.
    Resume,
}

const TRIALS: [(Asked, Reason); 13] = [
    (Asked::Open, Reason::InstanceRetiring),
    (Asked::Call, Reason::SessionNotFound),
    (Asked::Call, Reason::SessionReassigned),
    (Asked::Call, Reason::SessionUnconfirmed),
    (Asked::Call, Reason::SessionMalformed),
    (Asked::Call, Reason::SessionRequired),
    (Asked::Call, Reason::RequestTooLarge),
    (Asked::Running, Reason::OutcomeUnknown),
    (Asked::Resume, Reason::SessionNotFound),
    (Asked::Resume, Reason::SessionReassigned),
    (Asked::Resume, Reason::SessionUnconfirmed),
    (Asked::Resume, Reason::SessionResumeRejected),
    (Asked::Resume, Reason::StreamCursorUnrecoverable),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// Its caller is told nothing.
    Hang,
    /// It comes back to what was refused again and again.
    Loop,
    /// Its caller is told that all is well.
    Lie,
}

/// One line of `results.json`.
#[derive(Debug, Serialize)]
struct Cell {
    client: &'static str,
    version: &'static str,
    reason: &'static str,
    asked: Asked,
    /// `default`, or `in_band` for [`RefusalStyle::InBand`] in both layers.
    style: &'static str,
    /// When the caller was told, after the refusal could be made.
    surfaced_ms: Option<u128>,
    /// What the caller was told: the first words of it.
    surfaced: Option<String>,
    /// Whether that names the reason.
    names_the_reason: bool,
    /// Whether a later call is answered: by a result, or with an error if the session is gone for good. Not asked where
    /// no session was opened.
    transport_survives: Option<bool>,
    reinitialized: bool,
    verdict: Verdict,
}

impl Cell {
    /// No client may hang, loop or be lied to, and where refusals are told in band none may die.
    fn is_bad(&self) -> bool {
        let dies = self.style == "in_band" && self.transport_survives == Some(false);
        dies || self.verdict != Verdict::Ok
    }
}

/// Brings the reason about. What was needed for it is taken back by [`heal`].
async fn provoke(rig: &Rig, asked: Asked, reason: Reason) {
    let lookup = directory::Fault::Fails(StoreErrorKind::Unavailable);
    match (asked, reason) {
        (Asked::Open, Reason::InstanceRetiring) => drop(rig.instance.retire().await),
        (_, Reason::SessionNotFound) | (Asked::Running, Reason::OutcomeUnknown) => {
            rig.end_session().await;
        }
        (_, Reason::SessionReassigned) => rig.edge.set(Fault::Misroutes),
        (_, Reason::SessionUnconfirmed) => {
            rig.directory.set("lookup", lookup);
            rig.edge.set(Fault::Misroutes);
        }
        (_, Reason::SessionMalformed) => rig.edge.set(Fault::Garbles),
        (_, Reason::SessionRequired) => rig.edge.set(Fault::Strips),
        // The call is what is wrong.
        (_, Reason::RequestTooLarge) => {}
        (Asked::Resume, Reason::SessionResumeRejected) => rig.log.lose(Loss::Requests),
        (Asked::Resume, Reason::StreamCursorUnrecoverable) => rig.log.lose(Loss::Streams),
        other => unreachable!("{other:?} is not tried"),
    }
}

fn heal(rig: &Rig) {
    rig.edge.set(Fault::None);
    rig.directory.heal();
    rig.log.lose(Loss::Nothing);
}

/// Has a client refused. Returns it with the moment at which it could be.
async fn refuse(rig: &Rig, client: Client, asked: Asked, reason: Reason) -> (Driver, Instant) {
    if asked == Asked::Open {
        provoke(rig, asked, reason).await;
        let driver = Driver::start(client, &rig.url());
        // Starting a process takes longer than everything else.
        rig.wire.reached().await;
        return (driver, Instant::now());
    }
    let mut driver = rig.open(client).await;
    rig.log.standalone().await;
    if asked == Asked::Call {
        provoke(rig, asked, reason).await;
        let length = if reason == Reason::RequestTooLarge {
            2 * BODY_LIMIT
        } else {
            1
        };
        let text = "x".repeat(length);
        driver.call("refused", "echo", json!({"text": text})).await;
        return (driver, Instant::now());
    }
    driver.call("refused", "work", json!({"steps": 2})).await;
    assert_eq!(driver.hear_step().await, 1);
    if asked == Asked::Resume {
        rig.cutter.hold();
        rig.cutter.cut(Cut::Close).await;
        rig.wire.quiet(Some(rig.log.standalone().await)).await;
    }
    provoke(rig, asked, reason).await;
    rig.cutter.let_through();
    (driver, Instant::now())
}

async fn attempt(
    client: Client,
    style: Option<RefusalStyle>,
    asked: Asked,
    reason: Reason,
) -> Cell {
    let rig = Rig::with(style).await;
    let (mut driver, began) = refuse(&rig, client, asked, reason).await;
    let key = if asked == Asked::Open {
        "open"
    } else {
        "refused"
    };
    let outcome = driver.outcome(key, HANGS).await;
    let surfaced_ms = outcome.as_ref().map(|_| began.elapsed().as_millis());
    let comes_back = match asked {
        Asked::Running | Asked::Resume => {
            let call = rig.log.call().await;
            let seen = rig.wire.resumes(call).len();
            rig.wire.comes_back(call, seen + 3, LOOPS).await || seen > 8
        }
        Asked::Open | Asked::Call => rig.wire.refusals() > 3,
    };
    heal(&rig);
    let dead = outcome
        .as_ref()
        .is_some_and(|told| told["say"] == "transport_closed");
    let transport_survives = if asked == Asked::Open {
        None
    } else if dead {
        Some(false)
    } else {
        driver.call("later", "echo", json!({"text": "later"})).await;
        let later = driver.outcome("later", HANGS).await;
        Some(later.is_some_and(|told| told["say"] != "transport_closed"))
    };
    let reinitialized = rig.wire.openings() > 1;
    let verdict = match &outcome {
        _ if comes_back => Verdict::Loop,
        None => Verdict::Hang,
        // A session that is gone may be begun anew, and the call sent again.
        Some(told) if told["say"] == "result" && !reinitialized => Verdict::Lie,
        Some(_) => Verdict::Ok,
    };
    let told = outcome.as_ref().map(Value::to_string);
    Cell {
        client: client.name(),
        version: client.version(),
        reason: reason.as_str(),
        asked,
        style: style.map_or("default", |_| "in_band"),
        surfaced_ms,
        names_the_reason: told
            .as_ref()
            .is_some_and(|told| told.contains(reason.as_str())),
        surfaced: outcome.as_ref().map(words),
        transport_survives,
        reinitialized,
        verdict,
    }
}

/// The first words of what a caller was told.
fn words(told: &Value) -> String {
    let words = match told["say"].as_str() {
        Some("result") => told["text"].clone(),
        Some("error") => told["message"].clone(),
        _ => told["errors"][0].clone(),
    };
    words.as_str().unwrap_or("").chars().take(80).collect()
}

/// Writes `tests/interop/results.json`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; scripts/test runs it, without --quick"]
async fn no_client_hangs_loops_or_is_lied_to() {
    let styles = [None, Some(RefusalStyle::InBand)];
    let mut cells = Vec::new();
    for client in Client::ALL {
        for style in styles {
            cells.extend(TRIALS.map(|(asked, reason)| attempt(client, style, asked, reason)));
        }
    }
    let cells: Vec<Cell> = stream::iter(cells).buffered(12).collect().await;
    let lines: Vec<_> = cells
        .iter()
        .map(|cell| serde_json::to_string(cell).expect("JSON"))
        .collect();
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/results.json");
    let written = std::fs::write(results, format!("[\n{}\n]\n", lines.join(",\n")));
    written.expect("a writable folder");
    let bad: Vec<_> = cells.iter().filter(|cell| cell.is_bad()).collect();
    assert!(bad.is_empty(), "{} of {}: {bad:#?}", bad.len(), cells.len());
}
