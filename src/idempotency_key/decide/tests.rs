//! Both tables in full, and what must hold in every row of them.

use proptest::{prelude::*, sample::select};

use super::*;

const REQUESTS: &[Request] = &[
    Request::Other,
    Request::Call,
    Request::Notification,
    Request::NullId,
    Request::Batch,
    Request::Unreadable,
    Request::TooLarge,
    Request::CutOff,
    Request::Coded,
    Request::NotJson,
];
const KEYS: &[Key] = &[
    Key::Missing,
    Key::Hidden,
    Key::Malformed,
    Key::Differing,
    Key::Unscoped,
    Key::Valid,
];
const LEDGERS: &[Ledger] = &[
    Ledger::NotAsked,
    Ledger::Fresh,
    Ledger::InFlight,
    Ledger::Completed,
    Ledger::CompletedElsewhere,
    Ledger::CompletedUnkept,
    Ledger::Conflict,
    Ledger::OutcomeUnknown,
    Ledger::Unknown(StoreErrorKind::Unavailable),
    Ledger::Unknown(StoreErrorKind::TimedOut),
    Ledger::Unknown(StoreErrorKind::Recovering),
    Ledger::Unknown(StoreErrorKind::Fenced),
    Ledger::Unknown(StoreErrorKind::Corrupt),
    Ledger::Unknown(StoreErrorKind::Full),
];
const WAITINGS: &[Waiting] = &[Waiting::No, Waiting::Yes, Waiting::Over];
const STATUSES: &[Status] = &[
    Status::Success,
    Status::DidNotRun,
    Status::Refused,
    Status::Failed,
];
const SAID: &[Said] = &[
    Said::Nothing,
    Said::Answer,
    Said::TooLarge,
    Said::InputRequired,
];

fn show(verdict: Verdict) -> String {
    match verdict {
        Verdict::Refuse(reason, detail) => format!("{} {reason}: {detail}", reason.status()),
        Verdict::RefuseWithOutcome(reason, detail) => {
            format!("{} {reason} (outcome): {detail}", reason.status())
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn the_verdict_table() {
    let mut table = String::new();
    for request in REQUESTS {
        for key in KEYS {
            for required in [false, true] {
                let facts = Facts {
                    request: *request,
                    key: *key,
                    required,
                    ledger: Ledger::NotAsked,
                    waiting: Waiting::No,
                };
                let required = if required { " required" } else { "" };
                table += &format!("{request:?} {key:?}{required}: {}\n", show(decide(&facts)));
            }
        }
    }
    for ledger in LEDGERS {
        for waiting in WAITINGS {
            let facts = Facts {
                request: Request::Call,
                key: Key::Valid,
                required: false,
                ledger: *ledger,
                waiting: *waiting,
            };
            table += &format!("{ledger:?} {waiting:?}: {}\n", show(decide(&facts)));
        }
    }
    for status in STATUSES {
        for said in SAID {
            let (status, said) = (*status, *said);
            table += &format!(
                "{status:?} {said:?}: {:?}\n",
                settle(Ending { status, said })
            );
        }
    }
    insta::assert_snapshot!(table);
}

prop_compose! {
    fn facts()(
        request in select(REQUESTS),
        key in select(KEYS),
        required: bool,
        ledger in select(LEDGERS),
        waiting in select(WAITINGS),
    ) -> Facts {
        Facts { request, key, required, ledger, waiting }
    }
}

proptest! {
    #[test]
    fn it_runs_only_with_a_claim_of_its_own(facts in facts()) {
        if decide(&facts) == Verdict::Run {
            prop_assert_eq!(
                (facts.request, facts.key, facts.ledger),
                (Request::Call, Key::Valid, Ledger::Fresh)
            );
        }
    }

    #[test]
    fn no_call_with_a_key_passes(facts in facts()) {
        let keyed = !matches!(facts.key, Key::Missing | Key::Hidden);
        let call = !matches!(facts.request, Request::Other | Request::Notification);
        if keyed && call {
            prop_assert_ne!(decide(&facts), Verdict::Pass);
        }
    }

    #[test]
    fn no_call_without_a_key_passes_where_one_is_required(facts in facts()) {
        let call = matches!(facts.request, Request::Call | Request::Batch | Request::NullId);
        if facts.required && call && facts.key == Key::Missing {
            prop_assert!(matches!(decide(&facts), Verdict::Refuse(Reason::IdempotencyKeyRequired, _)));
        }
    }

    #[test]
    fn the_ledger_is_asked_for_one_readable_call_only(facts in facts()) {
        if matches!(decide(&facts), Verdict::Begin | Verdict::Wait | Verdict::Replay | Verdict::RefuseWithOutcome(..)) {
            prop_assert_eq!((facts.request, facts.key), (Request::Call, Key::Valid));
        }
    }

    #[test]
    fn unknown_is_refused(facts in facts(), kind in select(LEDGERS)) {
        let facts = Facts { request: Request::Call, key: Key::Valid, ledger: kind, ..facts };
        if matches!(kind, Ledger::Unknown(_) | Ledger::OutcomeUnknown) {
            prop_assert!(matches!(decide(&facts), Verdict::Refuse(..)));
        }
    }

    #[test]
    fn nobody_waits_who_may_not(facts in facts()) {
        if decide(&facts) == Verdict::Wait {
            prop_assert_eq!((facts.waiting, facts.ledger), (Waiting::Yes, Ledger::InFlight));
        }
    }

    #[test]
    fn a_key_is_free_again_only_if_nothing_ran_to_its_end(status in select(STATUSES), said in select(SAID)) {
        if settle(Ending { status, said }) == Settlement::Release {
            prop_assert!(status == Status::DidNotRun || (said == Said::InputRequired && status != Status::Failed));
        }
    }
}
