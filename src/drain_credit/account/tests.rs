use std::{fmt::Write, time::Duration};

use proptest::prelude::*;

use super::*;

const TERMS: Terms = Terms {
    messages: 8,
    bytes: 1000,
    high_water: 4,
    drain_window: Duration::from_secs(5),
    liveness: Liveness {
        timeout: Duration::from_secs(60),
        slowest: 1000,
        wire: 100_000,
    },
    proven: false,
};

fn at(seconds: u64) -> Timestamp {
    Timestamp::ORIGIN.after(Duration::from_secs(seconds))
}

fn undrained(messages: u32, bytes: u64) -> Step {
    Step {
        reading: Reading {
            messages,
            bytes,
            ..Reading::default()
        },
        ..Step::default()
    }
}

fn taken(messages: u32, bytes: u64, taken: u32, handed: u64) -> Step {
    Step {
        taken,
        handed,
        ..undrained(messages, bytes)
    }
}

impl Account {
    fn take_step(&mut self, flow: FlowId, step: Step, seconds: u64) {
        self.step(flow, &step, &TERMS, Some(at(seconds)));
    }

    fn overdue(&mut self, seconds: u64) -> (Vec<FlowId>, bool) {
        let mut overdue = Vec::new();
        let check = self.check(&TERMS, at(seconds), |flow| overdue.push(flow));
        (overdue, check.ends)
    }
}

#[test]
fn the_table() {
    let mut table = String::new();
    for wants in [Wants::Unread, Wants::Answer, Wants::Nothing] {
        for level in [Level::Far, Level::Near, Level::AtCredit, Level::AtHighWater] {
            for drain in [Drain::Moves, Drain::Stuck] {
                let verdict = decide(wants, level, drain, false);
                let asked = decide(wants, level, drain, true);
                let _ = writeln!(
                    table,
                    "{wants:?} {level:?} {drain:?} -> {verdict:?}, asked {asked:?}"
                );
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn levels_are_of_messages_or_bytes() {
    let mut account = Account::default();
    let mut levels = Vec::new();
    for _ in 0..=32 {
        levels.push(account.level(&TERMS));
        account.reserve(1);
    }
    assert_eq!(levels[..6], [Level::Far; 6]);
    assert_eq!(levels[6..8], [Level::Near; 2]);
    assert_eq!(levels[8..32], [Level::AtCredit; 24]);
    assert_eq!(levels[32], Level::AtHighWater);

    let mut account = Account::default();
    let flow = account.open(0, false);
    for (bytes, level) in [
        (700, Level::Far),
        (800, Level::Near),
        (1000, Level::AtCredit),
        (4000, Level::AtHighWater),
    ] {
        account.take_step(flow, undrained(2, bytes), 0);
        assert_eq!(account.level(&TERMS), level);
    }
}

#[test]
fn a_lone_event_larger_than_the_credit_stops_nobody() {
    let mut account = Account::default();
    let flow = account.open(0, false);
    account.take_step(flow, undrained(1, 1 << 30), 0);
    assert_eq!(account.level(&TERMS), Level::Far);
    let other = account.open(0, false);
    assert!(account.room(other, &TERMS) > 0);
    assert!(account.room(flow, &TERMS) > 0);
}

#[test]
fn an_answer_takes_the_place_that_its_request_reserved() {
    let mut account = Account::default();
    account.reserve(1);
    let flow = account.open(1, false);
    assert_eq!(account.occupied(), 1);
    let mut step = undrained(3, 30);
    step.reading.answers = 1;
    account.take_step(flow, step, 0);
    assert_eq!(account.occupied(), 3, "two notifications and the answer");
    let drained = Step {
        answered: 1,
        ..taken(0, 0, 3, 30)
    };
    account.take_step(flow, drained, 1);
    assert_eq!(account.occupied(), 0);
    account.close(flow, &TERMS);
    assert!(account.is_blank());
}

#[test]
fn a_silent_tool_is_never_stuck() {
    let mut account = Account::default();
    account.reserve(8);
    account.open(8, false);
    assert_eq!(account.level(&TERMS), Level::AtCredit);
    assert_eq!(account.drain(&TERMS, at(100_000)), Drain::Moves);
    assert_eq!(account.overdue(100_000), (vec![], false));
}

#[test]
fn a_slow_store_is_not_a_slow_client() {
    let mut account = Account::default();
    let flow = account.open(0, false);
    let mut held = undrained(9, 90);
    held.reading.held = true;
    account.take_step(flow, undrained(9, 90), 0);
    account.take_step(flow, held, 4);
    assert_eq!(account.drain(&TERMS, at(1000)), Drain::Moves);
    account.take_step(flow, undrained(9, 90), 1000);
    assert_eq!(account.drain(&TERMS, at(1004)), Drain::Moves);
    assert_eq!(account.drain(&TERMS, at(1005)), Drain::Stuck);
}

#[test]
fn a_busy_stream_does_not_hide_a_stuck_one() {
    let mut account = Account::default();
    let (stuck, busy) = (account.open(0, false), account.open(0, false));
    account.take_step(stuck, undrained(1, 10), 0);
    for second in 0..61 {
        account.take_step(busy, undrained(1, 10), second);
        account.take_step(busy, taken(0, 0, 1, 10), second);
    }
    assert_eq!(account.drain(&TERMS, at(60)), Drain::Stuck);
    // The client is there, so its session is not broken.
    assert_eq!(account.overdue(60), (vec![stuck], false));
}

#[test]
fn what_is_no_message_is_no_progress() {
    let mut account = Account::default();
    let flow = account.open(0, false);
    account.take_step(flow, undrained(8, 80), 0);
    for second in 1..60 {
        account.take_step(flow, undrained(8, 80), second);
    }
    assert_eq!(account.drain(&TERMS, at(5)), Drain::Stuck);
    assert_eq!(account.overdue(60), (vec![flow], true));
}

#[test]
fn liveness_allows_for_what_was_handed_over() {
    let mut account = Account::default();
    let flow = account.open(0, false);
    // 64 kB were handed over at second 0; at 1000 B/s they keep the slowest client busy for 64 seconds.
    account.take_step(flow, taken(2, 20, 64, 64_000), 0);
    assert_eq!(account.overdue(123), (vec![], false));
    assert_eq!(account.overdue(124), (vec![flow], true));

    // What was handed over earlier has been read by the time that it stands still.
    let mut account = Account::default();
    let flow = account.open(0, false);
    account.take_step(flow, taken(0, 0, 64, 64_000), 0);
    account.take_step(flow, undrained(1, 10), 64);
    assert_eq!(account.overdue(124), (vec![flow], true));

    // No more than the wire can hold.
    let mut account = Account::default();
    let flow = account.open(0, false);
    account.take_step(flow, taken(1, 10, 64, u64::MAX), 0);
    assert_eq!(account.overdue(159), (vec![], false));
    assert_eq!(account.overdue(160), (vec![flow], true));
}

#[test]
fn a_shared_connection_is_no_evidence_against_a_session() {
    let mut account = Account::default();
    let flow = account.open(0, true);
    account.take_step(flow, undrained(1, 10), 0);
    assert_eq!(account.overdue(60), (vec![flow], false));
}

#[test]
fn an_idle_stream_is_not_counted_against_a_session() {
    let mut account = Account::default();
    let (stuck, _idle) = (account.open(0, false), account.open(0, false));
    account.take_step(stuck, undrained(1, 10), 0);
    assert_eq!(account.overdue(60), (vec![stuck], false));
}

#[test]
fn what_is_torn_down_gives_its_credit_back_once() {
    let mut account = Account::default();
    account.reserve(3);
    let flow = account.open(2, false);
    account.take_step(flow, undrained(5, 50), 0);
    account.tear(flow);
    assert_eq!((account.occupied(), account.undrained()), (1, (0, 0)));
    account.take_step(flow, undrained(5, 50), 1);
    account.tear(flow);
    assert_eq!(account.occupied(), 1);
    assert!(account.is_torn(flow));
    assert_eq!(account.overdue(1000), (vec![], false));
    account.close(flow, &TERMS);
    account.release(1);
    assert!(account.is_blank());
}

#[test]
fn a_probe_that_is_not_answered_is_a_client_that_does_not_read() {
    let terms = Terms {
        proven: true,
        ..TERMS
    };
    let mut account = Account::default();
    let flow = account.open(0, false);
    for _ in 0..8 {
        account.step(flow, &taken(0, 0, 1, 10), &terms, Some(at(0)));
    }
    assert_eq!(
        account.level(&terms),
        Level::AtCredit,
        "nothing of it is proven"
    );
    assert_eq!(
        account.drain(&terms, at(100)),
        Drain::Moves,
        "nothing was asked"
    );
    assert!(account.wants_probe(flow));
    account.probe(flow, at(100));
    assert!(!account.wants_probe(flow));
    account.step(flow, &taken(0, 0, 1, 10), &terms, Some(at(101)));
    assert_eq!(account.drain(&terms, at(105)), Drain::Stuck);
    account.prove(flow, &terms);
    assert_eq!(
        account.occupied(),
        1,
        "what came after it is not proven by it"
    );
    assert_eq!(account.drain(&terms, at(500)), Drain::Moves);
    account.probe(flow, at(500));
    let mut overdue = Vec::new();
    let check = account.check(&terms, at(561), |flow| overdue.push(flow));
    assert_eq!((overdue, check.ends), (vec![flow], true));
}

#[test]
fn a_producer_that_starved_is_told_when_there_is_room() {
    let mut account = Account::default();
    let (slow, other) = (account.open(0, false), account.open(0, false));
    account.take_step(slow, undrained(32, 320), 0);
    account.take_step(other, undrained(1, 1), 0);
    assert_eq!(
        (account.room(slow, &TERMS), account.room(other, &TERMS)),
        (0, 0)
    );
    // A client that has taken all there is gets more, whatever another one does.
    assert!(account.step(other, &taken(0, 0, 1, 1), &TERMS, Some(at(1))));
    assert_eq!(account.starved().collect::<Vec<_>>(), [slow, other]);
    assert_eq!(
        (account.room(slow, &TERMS), account.room(other, &TERMS)),
        (0, 1)
    );
    assert!(!account.step(other, &undrained(0, 0), &TERMS, Some(at(1))));
    assert!(account.step(slow, &taken(31, 310, 1, 10), &TERMS, Some(at(1))));
    assert_eq!(account.starved().collect::<Vec<_>>(), [slow]);
    assert_eq!(account.starved().count(), 0);
}

#[derive(Debug, Clone)]
enum Op {
    Reserve(u32),
    Release,
    Open {
        owes: bool,
        shared: bool,
    },
    Publish {
        flow: usize,
        messages: u32,
        answers: bool,
        held: bool,
    },
    Take {
        flow: usize,
        messages: u32,
    },
    Comment {
        flow: usize,
    },
    Probe {
        flow: usize,
    },
    Prove {
        flow: usize,
    },
    Close {
        flow: usize,
    },
    Check {
        seconds: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let flow = 0usize..4;
    prop_oneof![
        (1u32..3).prop_map(Op::Reserve),
        Just(Op::Release),
        any::<(bool, bool)>().prop_map(|(owes, shared)| Op::Open { owes, shared }),
        (flow.clone(), 1u32..6, any::<bool>(), any::<bool>()).prop_map(
            |(flow, messages, answers, held)| Op::Publish {
                flow,
                messages,
                answers,
                held
            }
        ),
        (flow.clone(), 1u32..6).prop_map(|(flow, messages)| Op::Take { flow, messages }),
        flow.clone().prop_map(|flow| Op::Comment { flow }),
        flow.clone().prop_map(|flow| Op::Probe { flow }),
        flow.clone().prop_map(|flow| Op::Prove { flow }),
        flow.prop_map(|flow| Op::Close { flow }),
        (0u64..200).prop_map(|seconds| Op::Check { seconds }),
    ]
}

/// What a flow's owner knows.
#[derive(Debug, Clone, Copy)]
struct Known {
    id: FlowId,
    owes: u32,
    reading: Reading,
    torn: bool,
}

proptest! {
    /// Whatever happens in whatever order, the totals are the sums of what each owner knows, and when all have left
    /// nothing remains.
    #[test]
    fn the_account_is_the_sum_of_its_parts(ops in proptest::collection::vec(op(), 0..200), proven: bool) {
        let terms = Terms { proven, ..TERMS };
        let mut account = Account::default();
        let mut loose = 0;
        let mut flows: Vec<Known> = Vec::new();
        let mut clock = 0;
        for op in ops {
            let now = Some(at(clock));
            match op {
                Op::Reserve(places) => { account.reserve(places); loose += places; }
                Op::Release if loose > 0 => { account.release(1); loose -= 1; }
                Op::Open { owes, shared } if flows.len() < 4 => {
                    let owes = u32::from(owes && loose > 0);
                    loose -= owes;
                    let id = account.open(owes, shared);
                    flows.push(Known { id, owes, reading: Reading::default(), torn: false });
                }
                Op::Publish { flow, messages, answers, held } => if let Some(known) = flows.get_mut(flow) {
                    known.reading.messages += messages;
                    known.reading.bytes += u64::from(messages) * 10;
                    known.reading.answers = (known.reading.answers + u32::from(answers)).min(known.owes);
                    known.reading.held = held;
                    account.step(known.id, &Step { reading: known.reading, ..Step::default() }, &terms, now);
                },
                Op::Take { flow, messages } => if let Some(known) = flows.get_mut(flow) {
                    let taken = messages.min(known.reading.messages);
                    known.reading.messages -= taken;
                    known.reading.bytes -= u64::from(taken) * 10;
                    let answered = if known.reading.messages == 0 { known.reading.answers } else { 0 };
                    known.reading.answers -= answered;
                    known.owes -= answered;
                    let step = Step { reading: known.reading, taken, handed: u64::from(taken) * 10, answered, left: false };
                    account.step(known.id, &step, &terms, now);
                },
                Op::Comment { flow } => if let Some(known) = flows.get(flow) {
                    let stuck = account.drain(&terms, at(clock));
                    account.step(known.id, &Step { reading: known.reading, ..Step::default() }, &terms, now);
                    prop_assert_eq!(account.drain(&terms, at(clock)), stuck);
                },
                Op::Probe { flow } => if let Some(known) = flows.get(flow) && account.wants_probe(known.id) {
                    account.probe(known.id, at(clock));
                },
                Op::Prove { flow } => if let Some(known) = flows.get(flow) { account.prove(known.id, &terms); },
                Op::Close { flow } if flow < flows.len() => {
                    let known = flows.remove(flow);
                    account.close(known.id, &terms);
                }
                Op::Check { seconds } => {
                    clock += seconds;
                    let mut overdue = Vec::new();
                    let check = account.check(&terms, at(clock), |flow| overdue.push(flow));
                    prop_assert!(!check.ends || !overdue.is_empty());
                    prop_assert!(check.next.is_none_or(|next| next > at(clock)));
                    for id in overdue {
                        account.tear(id);
                        for known in flows.iter_mut().filter(|known| known.id == id) {
                            prop_assert!(!known.torn, "torn down once");
                            known.torn = true;
                        }
                    }
                }
                _ => {}
            }
            let live = flows.iter().filter(|known| !known.torn);
            let sum = |of: fn(&Known) -> u32| live.clone().map(of).sum::<u32>();
            prop_assert_eq!(account.reserved(), loose + sum(|known| known.owes));
            prop_assert_eq!(account.messages, sum(|known| known.reading.messages));
            prop_assert_eq!(account.answers, sum(|known| known.reading.answers));
            prop_assert_eq!(account.bytes, live.clone().map(|known| known.reading.bytes).sum::<u64>());
            // Nothing undrained, nothing unproven: nothing can be stuck.
            if account.is_quiet() {
                prop_assert_eq!(account.drain(&terms, at(clock + 1_000_000)), Drain::Moves);
            }
        }
        for known in flows {
            account.close(known.id, &terms);
        }
        account.release(loose);
        prop_assert!(account.is_blank());
        prop_assert_eq!((account.occupied(), account.undrained()), (0, (0, 0)));
    }
}
