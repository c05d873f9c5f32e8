//! The ownership protocol, explored exhaustively over the crate's own decisions: its directory, its tenure and its
//! verdict table. What stands around them (keeper, steps, table) is followed here without tasks and time-outs.
//!
//! Millions of states: `cargo test --release --test ownership_model`.

#![cfg(not(debug_assertions))]

mod ending;
mod ghost;
mod keeper;
mod model;
mod mutation;
mod node;
mod occurrence;
mod opening;
mod recovering;
mod request;
mod rules;
mod scenario;
mod serve;
mod steps;

use std::time::Instant;

use mcp_session_guard::session::Residency::{Externalized, Pinned};
use stateright::{Checker, Model};

use crate::scenario::{Fault, Scenario};

/// Asserts that every invariant holds in every state, and that what must be able to happen does.
fn holds(scenario: &Scenario) {
    let began = Instant::now();
    let checker = scenario.clone().checker().threads(2).spawn_bfs().join();
    println!(
        "{:?} {:?}: {} states in {:?}",
        scenario.residency,
        scenario.fault,
        checker.unique_state_count(),
        began.elapsed(),
    );
    for (name, path) in checker.discoveries() {
        if name.starts_with('I') {
            println!("{name}: {:?}", path.into_actions());
        }
    }
    checker.assert_properties();
}

#[test]
fn pinned_holds_without_a_fault() {
    holds(&Scenario {
        horizon: 7,
        idles: true,
        deletes: true,
        ..Scenario::new(Pinned, Fault::None)
    });
}

#[test]
fn externalized_holds_without_a_fault() {
    holds(&Scenario {
        horizon: 4,
        grants: 2,
        idles: true,
        deletes: true,
        ..Scenario::new(Externalized, Fault::None)
    });
}

#[test]
fn externalized_holds_when_the_session_is_handed_back() {
    holds(&Scenario {
        idles: true,
        deletes: true,
        slow: false,
        ..Scenario::new(Externalized, Fault::None)
    });
}

#[test]
fn pinned_holds_when_the_directory_restarts_empty() {
    holds(&Scenario {
        idles: true,
        deletes: true,
        ..Scenario::new(Pinned, Fault::EmptyRestart)
    });
}

#[test]
fn externalized_holds_when_the_directory_restarts_empty() {
    holds(&Scenario {
        horizon: 4,
        grants: 2,
        ..Scenario::new(Externalized, Fault::EmptyRestart)
    });
}

#[test]
fn externalized_holds_when_sessions_end_and_the_directory_restarts_empty() {
    holds(&Scenario {
        horizon: 4,
        grants: 2,
        idles: true,
        slow: false,
        ..Scenario::new(Externalized, Fault::EmptyRestart)
    });
}

#[test]
fn pinned_holds_when_a_replica_takes_over() {
    holds(&Scenario {
        idles: true,
        deletes: true,
        ..Scenario::new(Pinned, Fault::FailOver)
    });
}

#[test]
fn externalized_holds_when_a_replica_takes_over() {
    holds(&Scenario {
        horizon: 4,
        grants: 2,
        ..Scenario::new(Externalized, Fault::FailOver)
    });
}

#[test]
fn externalized_holds_when_sessions_end_and_a_replica_takes_over() {
    holds(&Scenario {
        horizon: 4,
        grants: 2,
        deletes: true,
        slow: false,
        ..Scenario::new(Externalized, Fault::FailOver)
    });
}

#[test]
fn holds_while_a_session_is_opened() {
    holds(&Scenario {
        horizon: 4,
        opening: true,
        ..Scenario::new(Pinned, Fault::EmptyRestart)
    });
}

#[test]
fn holds_when_sessions_have_an_idle_limit() {
    holds(&Scenario {
        idle: Some(1),
        idles: true,
        ..Scenario::new(Pinned, Fault::None)
    });
    holds(&Scenario {
        horizon: 4,
        grants: 2,
        idle: Some(2),
        slow: false,
        ..Scenario::new(Externalized, Fault::None)
    });
}

#[test]
fn holds_when_an_instance_leaves() {
    for residency in [Pinned, Externalized] {
        holds(&Scenario {
            horizon: 4,
            grants: 2,
            leaving: true,
            ..Scenario::new(residency, Fault::None)
        });
    }
}

#[test]
fn holds_when_a_clock_runs_slow_within_the_margin() {
    for residency in [Pinned, Externalized] {
        holds(&Scenario {
            lease: 3,
            margin: 1,
            drift: true,
            grants: 2,
            slow: false,
            ..Scenario::new(residency, Fault::None)
        });
    }
}

/// More at once, for longer. Takes minutes and some gigabytes.
#[test]
#[ignore = "takes minutes; for changes to the protocol"]
fn holds_at_length() {
    holds(&Scenario {
        horizon: 6,
        grants: 2,
        idle: Some(2),
        slow: false,
        ..Scenario::new(Externalized, Fault::None)
    });
    for residency in [Pinned, Externalized] {
        for fault in [Fault::EmptyRestart, Fault::FailOver] {
            holds(&Scenario {
                grants: 2,
                horizon: if residency == Pinned { 7 } else { 4 },
                idles: true,
                deletes: true,
                opening: residency == Pinned,
                ..Scenario::new(residency, fault)
            });
        }
    }
}
