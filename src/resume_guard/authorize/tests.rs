//! The table as a snapshot, and the claim behind it: any single proof spoiled, and nothing is replayed.

use std::{fmt::Write, sync::Arc};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    session::{Fence, Incarnation, SessionId},
    store::{Event, StreamHeader, StreamKey},
};

const ME: u128 = 1;
const OTHER: u128 = 2;

fn id(json: &str) -> RequestId {
    RequestId::from_json(json).unwrap()
}

fn agreement(server: &str) -> CapabilityHash {
    CapabilityHash::new("2025-11-25", &json!({}), &json!({ server: {} })).unwrap()
}

/// Facts that own themselves, all well: a call's stream of which two events of three were missed.
#[derive(Clone)]
struct Case {
    cursor: Cursor,
    ownership: Ownership,
    residency: Residency,
    negotiated: Option<CapabilityHash>,
    offer: Option<Offer>,
    shared_log: bool,
    log: Option<Result<Snapshot, ()>>,
    live: bool,
    waited_for: bool,
}

impl Case {
    fn good(epoch: u128) -> Self {
        let key = StreamKey {
            session: SessionId::parse("s").unwrap(),
            epoch: Epoch::from_u128(epoch),
            stream: 5,
        };
        let fence = Fence::new(Incarnation::new(1, 1), 1);
        let requests: Arc<[RequestId]> = [id("1")].into();
        let header = StreamHeader::new(key.clone(), fence, Some(agreement("tools")), requests);
        let event = |subject| Event {
            subject,
            bytes: Bytes::from_static(b"data: x\n\n"),
        };
        let subjects = vec![(Seq::new(3), Subject::Answer(id("1")))];
        let events = vec![event(Subject::Nothing), event(Subject::Answer(id("1")))];
        let ending = Some(Ending::Answered);
        Self {
            cursor: Cursor::new(&key, Seq::new(1)).waiting_for(Some(&id("1"))),
            ownership: Ownership::Proven,
            residency: Residency::Externalized,
            negotiated: Some(agreement("tools")),
            offer: Some(agreement("tools").offer()),
            shared_log: true,
            log: Some(Ok(Snapshot::new(
                header,
                Seq::new(3),
                ending,
                None,
                events,
                subjects,
            ))),
            live: false,
            waited_for: true,
        }
    }

    fn snapshot(&mut self) -> &mut Snapshot {
        self.log.as_mut().unwrap().as_mut().unwrap()
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn decide(&self) -> Result<Plan, Refusal> {
        authorize(&Facts {
            cursor: &self.cursor,
            ownership: self.ownership,
            residency: self.residency,
            negotiated: self.negotiated,
            offer: self.offer,
            epoch: Epoch::from_u128(ME),
            shared_log: self.shared_log,
            log: match &self.log {
                Some(Ok(snapshot)) => Logged::Stream(snapshot),
                Some(Err(())) => Logged::Unknown,
                None => Logged::Absent,
            },
            live: self.live,
            waited_for: &|_| self.waited_for,
        })
    }
}

type Spoil = fn(&mut Case);

/// Each spoils one fact of a resume that would be authorized.
const SPOILED: &[(&str, Spoil)] = &[
    ("the cursor is an end", |case| case.cursor.terminal = true),
    ("the session is unknown", |case| {
        case.ownership = Ownership::Unknown;
    }),
    ("the session is another's", |case| {
        case.ownership = Ownership::Foreign;
    }),
    ("ownership is unconfirmed", |case| {
        case.ownership = Ownership::Unconfirmed;
    }),
    ("the stream is not there", |case| case.log = None),
    ("the log does not say", |case| case.log = Some(Err(()))),
    ("the cursor's stream is another", |case| {
        case.cursor.stream += 1;
    }),
    ("the cursor's epoch is another", |case| {
        case.cursor.epoch = Epoch::from_u128(77);
    }),
    ("the cursor is ahead", |case| case.cursor.seq = Seq::new(4)),
    ("an event is missing", |case| {
        case.snapshot().gap = Some(Seq::new(2));
    }),
    ("the last event is missing", |case| {
        case.snapshot().gap = Some(Seq::new(3));
    }),
    ("the stream's agreement is not known", |case| {
        case.snapshot().header.capabilities = None;
    }),
    ("the stream's agreement is another", |case| {
        case.snapshot().header.capabilities = Some(agreement("prompts"));
    }),
    ("the session's agreement is not known", |case| {
        case.negotiated = None;
    }),
    ("the session's agreement is another", |case| {
        case.negotiated = Some(agreement("prompts"));
    }),
    ("this instance offers something else", |case| {
        case.offer = Some(agreement("prompts").offer());
    }),
    ("an answer has no request", |case| {
        case.snapshot()
            .subjects
            .push((Seq::new(2), Subject::Answer(id("\"1\""))));
    }),
    ("the requests are gone", |case| {
        case.snapshot().header.requests = [].into();
    }),
    ("the requests are gone and no answer is there", |case| {
        case.snapshot().header.requests = [].into();
        case.snapshot().subjects.clear();
    }),
    ("one of the requests is gone", |case| {
        case.snapshot().header.opened_by = 2;
    }),
    (
        "the requests are gone and the position names none",
        |case| {
            case.cursor.pending = None;
            case.snapshot().header.requests = [].into();
            case.snapshot().subjects.clear();
        },
    ),
    (
        "the requests are gone, the position names none and all was seen",
        |case| {
            case.cursor.pending = None;
            case.cursor.seq = Seq::new(3);
            let snapshot = case.snapshot();
            snapshot.header.requests = [].into();
            snapshot.subjects.clear();
            snapshot.ending = None;
        },
    ),
    ("an answer within a batch has no request", |case| {
        let batch = [Subject::Answer(id("1")), Subject::Answer(id("2"))].into();
        case.snapshot()
            .subjects
            .push((Seq::new(2), Subject::Batch(batch)));
    }),
    ("a question is answered already", |case| {
        case.waited_for = false;
        case.snapshot()
            .subjects
            .push((Seq::new(2), Subject::Question(id("9"))));
    }),
];

#[test]
fn the_table() {
    let mut table = String::new();
    for (whose, good) in [("own", Case::good(ME)), ("foreign", Case::good(OTHER))] {
        let mut row = |name: &str, case: Case| {
            writeln!(table, "{whose}: {name}: {:?}", case.decide()).unwrap();
        };
        row("all is well", good.clone());
        for (name, spoil) in SPOILED {
            row(name, good.clone().with(spoil));
        }
        row(
            "nothing is offered yet",
            good.clone().with(|case| case.offer = None),
        );
        row(
            "the log is local",
            good.clone().with(|case| case.shared_log = false),
        );
        row(
            "the session is pinned",
            good.clone().with(|case| case.residency = Residency::Pinned),
        );
        row(
            "a question is awaited",
            good.clone().with(|case| {
                case.snapshot()
                    .subjects
                    .push((Seq::new(2), Subject::Question(id("9"))));
            }),
        );
        row(
            "its producer is at work",
            good.clone().with(|case| {
                case.live = true;
                case.snapshot().ending = None;
                case.snapshot().subjects.clear();
            }),
        );
        row(
            "its producer is gone without an end",
            good.clone().with(|case| {
                case.snapshot().ending = None;
                case.snapshot().subjects.clear();
            }),
        );
        row(
            "everything was seen",
            good.clone().with(|case| {
                case.cursor = Cursor {
                    seq: Seq::new(3),
                    pending: None,
                    ..case.cursor.clone()
                };
                case.snapshot().subjects.clear();
            }),
        );
        for ending in Ending::ALL.into_iter().map(Some).chain([None]) {
            row(
                &format!("the own stream, everything seen, {ending:?}"),
                good.clone().with(|case| {
                    case.cursor = Cursor {
                        seq: Seq::new(3),
                        pending: None,
                        ..case.cursor.clone()
                    };
                    let snapshot = case.snapshot();
                    snapshot.header.requests = [].into();
                    snapshot.header.opened_by = 0;
                    snapshot.subjects.clear();
                    snapshot.ending = ending;
                }),
            );
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn an_answer_whose_request_was_never_there_is_refused_by_name() {
    let stray = Case::good(ME).with(|case| {
        (case.snapshot().subjects).push((Seq::new(2), Subject::Answer(id("5"))));
    });
    assert_eq!(stray.decide(), Err(Refusal::AnswerWithoutRequest(id("5"))));
}

#[test]
fn every_single_fact_spoiled_alone_is_refused() {
    for epoch in [ME, OTHER] {
        assert!(Case::good(epoch).decide().is_ok());
        for (name, spoil) in SPOILED {
            let spoiled = Case::good(epoch).with(spoil);
            assert!(spoiled.decide().is_err(), "{name}");
        }
    }
    let local = Case::good(OTHER).with(|case| case.shared_log = false);
    assert_eq!(local.decide(), Err(Refusal::ForeignEpoch));
    let pinned = Case::good(OTHER).with(|case| case.residency = Residency::Pinned);
    assert_eq!(pinned.decide(), Err(Refusal::ForeignEpoch));
    let offers_nothing = Case::good(OTHER).with(|case| case.offer = None);
    assert_eq!(offers_nothing.decide(), Err(Refusal::Unconfirmed));
    let question = Case::good(OTHER).with(|case| {
        case.snapshot()
            .subjects
            .push((Seq::new(2), Subject::Question(id("9"))));
    });
    assert!(matches!(
        question.decide(),
        Err(Refusal::QuestionNotAwaited(_))
    ));
}

proptest! {
    /// However many facts are spoiled, nothing makes a spoiled resume good again.
    #[test]
    fn no_two_wrongs_make_a_right(
        epoch in prop_oneof![Just(ME), Just(OTHER)],
        spoiled in proptest::collection::vec(0..SPOILED.len(), 1..4),
        live: bool,
        local: bool,
    ) {
        let mut case = Case::good(epoch);
        case.live = live;
        case.shared_log = !local;
        for at in spoiled {
            // A log that is gone cannot be spoiled further.
            if matches!(case.log, Some(Ok(_))) {
                SPOILED[at].1(&mut case);
            }
        }
        // Two spoilings of the agreement may agree with each other; they are another agreement then, and not the offer.
        prop_assert!(case.decide().is_err());
    }

    #[test]
    fn whatever_is_replayed_to_a_waiting_client_ends_with_an_answer_or_an_error(
        seq in 0u64..4, answered: bool, ended: bool, live: bool,
    ) {
        let mut case = Case::good(ME);
        case.cursor.seq = Seq::new(seq);
        case.live = live;
        let snapshot = case.snapshot();
        if !answered {
            snapshot.subjects.clear();
        }
        if !ended {
            snapshot.ending = None;
        }
        match case.decide() {
            Ok(Plan::Live { unanswered } | Plan::Replay { unanswered }) => {
                prop_assert_eq!(unanswered, [id("1")]);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
