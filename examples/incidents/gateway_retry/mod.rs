//! `gateway_retry`: payments go through a gateway that times out and sends them again, one of them to two branches at
//! the same moment, and one branch is killed in the middle of its payments.

mod bank;
mod branch;
mod gateway;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

pub(crate) use self::branch::serve as serve_branch;
use self::{
    bank::Bank,
    branch::Branch,
    gateway::{Call, End, Gateway, Heard, TIMEOUT},
};
use crate::{
    Error,
    caller::PATIENCE,
    report::{Figure::Count, Report, Variant},
};

/// The argument that makes the program a branch.
pub(crate) const BRANCH: &str = "--branch";

/// How many payments each part makes.
const CALLS: usize = 25;
/// Longer than the gateway waits.
const SLOW: Duration = Duration::from_millis(400);

pub(crate) async fn run(variant: Variant) -> Result<Report, Error> {
    eprintln!(
        "gateway_retry {variant}: {} payments at 2 branches",
        4 * CALLS
    );
    let bank = Bank::open().await?;
    let stays = Branch::open(variant, bank.address).await?;
    let dies = Branch::open(variant, bank.address).await?;
    let gateway = Arc::new(Gateway::before([stays.address, dies.address])?);
    let mut ends = Vec::new();

    // Both branches are well, and slow.
    let late = calls("late", SLOW);
    let sent = late.iter().enumerate();
    ends.extend(join_all(sent.map(|(first, call)| gateway.send(call, first))).await);

    // The same key arrives at two branches at once.
    let twins = calls("twin", Duration::from_millis(20));
    ends.extend(join_all(twins.iter().map(|call| both(&gateway, call))).await);

    // The client leaves in the middle, and asks again much later.
    let left = calls("left", SLOW);
    let given_up = left.iter().map(|call| gateway.attempt(call, 0));
    for heard in join_all(given_up).await {
        if !matches!(heard, Heard::TimedOut) {
            return Err("a payment was made before its client had left".into());
        }
    }
    sleep(SLOW).await;
    ends.extend(join_all(left.iter().map(|call| gateway.send(call, 1))).await);

    // A branch is killed when it has moved the money and not said so.
    let cut = calls("cut", SLOW);
    let sending = cut.iter().map(|call| gateway.send(call, 1));
    let killing = async {
        reached(&bank, &cut).await?;
        dies.kill().await
    };
    let (sent, killed) = tokio::join!(join_all(sending), killing);
    killed?;
    ends.extend(sent);

    // What still runs for nobody counts too.
    sleep(SLOW + TIMEOUT).await;
    stays.kill().await?;
    Ok(report(variant, &gateway, &bank, &ends))
}

fn calls(part: &str, takes: Duration) -> Vec<Call> {
    let order = |number| format!("{part}-{number}");
    (0..CALLS)
        .map(|number| Call {
            order: order(number),
            takes,
        })
        .collect()
}

/// A call that two branches get; whoever is refused asks again.
async fn both(gateway: &Gateway, call: &Call) -> End {
    let (one, other) = tokio::join!(gateway.send(call, 0), gateway.send(call, 1));
    if one == other { one } else { End::Refused }
}

/// Waits until all of the payments have been made once.
async fn reached(bank: &Bank, calls: &[Call]) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let payments = bank.payments();
        if calls.iter().all(|call| payments.contains_key(&call.order)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err("not every payment was begun".into());
        }
        sleep(Duration::from_millis(1)).await;
    }
}

fn report(variant: Variant, gateway: &Gateway, bank: &Bank, ends: &[End]) -> Report {
    let payments = bank.payments();
    let runs: usize = payments.values().sum();
    let duplicates = runs - payments.len();
    let ended = |as_: End| ends.iter().filter(|end| **end == as_).count();
    let (paid, unknown, refused) = (ended(End::Paid), ended(End::Unknown), ended(End::Refused));
    let broken = match variant {
        Variant::Unguarded if duplicates == 0 => vec!["nothing was paid twice".into()],
        Variant::Guarded if duplicates > 0 => vec!["something was paid twice".into()],
        Variant::Guarded if refused > 0 || unknown == 0 => {
            vec!["a call ended in neither its outcome nor the truth that it is not known".into()]
        }
        _ => Vec::new(),
    };
    Report {
        variant,
        figures: vec![
            ("calls", Count(ends.len())),
            ("attempts", Count(gateway.attempts())),
            ("tool_runs", Count(runs)),
            ("duplicate_tool_runs", Count(duplicates)),
            ("answered", Count(paid)),
            ("outcome_unknown", Count(unknown)),
            ("otherwise", Count(refused)),
        ],
        broken,
    }
}
