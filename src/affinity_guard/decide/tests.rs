//! The whole table, as a person reviews it and as properties.

use std::fmt::Write;

use proptest::{prelude::*, sample::select};

use super::*;

const HEADERS: [Header; 3] = [Header::Missing, Header::Malformed, Header::Valid];
const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
const REQUESTS: [Request; 6] = [
    Request::Unread,
    Request::TooLarge,
    Request::Initialize,
    Request::SelfContained,
    Request::Other,
    Request::Bodyless,
];
const LOCALS: [Local; 5] = [
    Local::Unknown,
    Local::Proven,
    Local::Foreign,
    Local::Unproven,
    Local::Over,
];

fn directories() -> Vec<Directory> {
    let mut all = vec![
        Directory::NotAsked,
        Directory::Unknown(StoreErrorKind::TimedOut),
        Directory::Unknown(StoreErrorKind::Recovering),
        Directory::Foreign,
        Directory::Elsewhere,
        Directory::Terminated,
        Directory::Absent,
    ];
    for residency in [Residency::Pinned, Residency::Externalized] {
        for offered in [Offered::Same, Offered::Different, Offered::Unknown] {
            all.push(Directory::Named(residency, offered));
            all.push(Directory::Orphaned(residency, offered));
        }
    }
    all
}

/// One dimension of the table: its name, and one changed fact for each value.
type Dimension = (&'static str, Vec<Value>);
type Value = (String, Box<dyn Fn(&mut Facts)>);

fn dimensions() -> Vec<Dimension> {
    fn values<T: Copy + std::fmt::Debug + 'static>(
        values: impl IntoIterator<Item = T>,
        set: impl Fn(&mut Facts, T) + Copy + 'static,
    ) -> Vec<Value> {
        values
            .into_iter()
            .map(|value| {
                let change: Box<dyn Fn(&mut Facts)> = Box::new(move |facts| set(facts, value));
                (format!("{value:?}"), change)
            })
            .collect()
    }
    let bools = [false, true];
    vec![
        ("era", values(ERAS, |f, v| f.era = v)),
        ("header", values(HEADERS, |f, v| f.header = v)),
        ("local", values(LOCALS, |f, v| f.local = v)),
        ("request", values(REQUESTS, |f, v| f.request = v)),
        ("directory", values(directories(), |f, v| f.directory = v)),
        ("retiring", values(bools, |f, v| f.retiring = v)),
        ("lease", values(bools, |f, v| f.lease = v)),
        ("strict", values(bools, |f, v| f.strict = v)),
        (
            "absent_goes_stateless",
            values(bools, |f, v| f.absent_goes_stateless = v),
        ),
        ("forwards", values(bools, |f, v| f.forwards = v)),
    ]
}

const START: Facts = Facts {
    header: Header::Missing,
    era: Era::Legacy,
    request: Request::Other,
    local: Local::Unknown,
    directory: Directory::NotAsked,
    retiring: false,
    lease: false,
    strict: false,
    absent_goes_stateless: false,
    forwards: false,
};

/// Writes the decision tree, leaving out every fact that makes no difference. Returns the verdict if all is one.
fn tree(dimensions: &[Dimension], facts: Facts, depth: usize) -> Result<Verdict, String> {
    let Some(((name, values), rest)) = dimensions.split_first() else {
        return Ok(decide(&facts));
    };
    let branches: Vec<_> = values
        .iter()
        .map(|(value, change)| {
            let mut facts = facts;
            change(&mut facts);
            (value, tree(rest, facts, depth + 1))
        })
        .collect();
    if branches.iter().all(|(_, branch)| *branch == branches[0].1) {
        return match &branches[0].1 {
            Ok(verdict) => Ok(*verdict),
            // The same tree under each value: this fact makes no difference, so its line is left out.
            Err(_) => {
                let mut facts = facts;
                values[0].1(&mut facts);
                tree(rest, facts, depth)
            }
        };
    }
    let mut text = String::new();
    let mut done = vec![false; branches.len()];
    for at in 0..branches.len() {
        if done[at] {
            continue;
        }
        let mut names = Vec::new();
        for other in at..branches.len() {
            if branches[other].1 == branches[at].1 {
                done[other] = true;
                names.push(branches[other].0.as_str());
            }
        }
        let label = format!(
            "{:indent$}{name} {}",
            "",
            names.join(" | "),
            indent = depth * 2
        );
        match &branches[at].1 {
            Ok(verdict) => writeln!(text, "{label} => {verdict:?}").unwrap(),
            Err(branch) => write!(text, "{label}\n{branch}").unwrap(),
        }
    }
    Err(text)
}

#[test]
fn the_verdict_table() {
    let table = tree(&dimensions(), START, 0).unwrap_err();
    insta::assert_snapshot!(table);
}

prop_compose! {
    fn any_facts()(
        header in select(&HEADERS[..]),
        era in select(&ERAS[..]),
        request in select(&REQUESTS[..]),
        local in select(&LOCALS[..]),
        directory in select(directories()),
        flags in any::<[bool; 5]>(),
    ) -> Facts {
        let [retiring, lease, strict, absent_goes_stateless, forwards] = flags;
        Facts {
            header, era, request, local, directory, retiring, lease, strict, absent_goes_stateless, forwards,
        }
    }
}

fn passes(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Pass
            | Verdict::PassBare
            | Verdict::PassOwned
            | Verdict::PassStateless
            | Verdict::PassOpening
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// The creed: what the directory does not know, or was not asked, lets no session's request through.
    #[test]
    fn unknown_never_passes(facts in any_facts()) {
        let session_bearing = facts.era == Era::Legacy && facts.header == Header::Valid
            && matches!(facts.request, Request::Other | Request::Bodyless);
        let unknown = matches!(facts.directory, Directory::Unknown(_) | Directory::NotAsked);
        if session_bearing && unknown && facts.local != Local::Proven {
            prop_assert!(!passes(decide(&facts)), "{facts:?}");
            prop_assert!(
                !matches!(decide(&facts), Verdict::Refuse(Reason::SessionNotFound, _)),
                "a 404 without proof: {facts:?}"
            );
        }
    }

    /// Only the owner's own proof lets a request reach the session.
    #[test]
    fn only_a_proof_passes_as_owned(facts in any_facts()) {
        if decide(&facts) == Verdict::PassOwned {
            prop_assert_eq!(facts.local, Local::Proven);
            prop_assert_eq!(facts.header, Header::Valid);
            prop_assert_eq!(facts.era, Era::Legacy);
        }
        if facts.header == Header::Valid && facts.era == Era::Legacy {
            prop_assert!(!matches!(decide(&facts), Verdict::Pass | Verdict::PassBare));
        }
    }

    /// 404 is destructive: only a tombstone, a proven absence or another's principal gets it.
    #[test]
    fn a_404_rests_on_proof(facts in any_facts()) {
        if let Verdict::Refuse(Reason::SessionNotFound, _) = decide(&facts) {
            let proven = matches!(
                facts.directory,
                Directory::Terminated | Directory::Absent | Directory::Foreign
            );
            let foreign = facts.local == Local::Foreign
                && !matches!(facts.directory, Directory::Unknown(_) | Directory::NotAsked);
            prop_assert!(proven || foreign, "{facts:?}");
        }
    }

    /// A malformed header is answered without a look into the directory or the table.
    #[test]
    fn a_malformed_header_asks_nobody(facts in any_facts()) {
        let facts = Facts { header: Header::Malformed, era: Era::Legacy, ..facts };
        prop_assert!(matches!(
            decide(&facts),
            Verdict::ReadBody | Verdict::Refuse(Reason::SessionMalformed, _)
        ));
    }

    /// Only to a live owner that the directory named, and never what a table of one's own proves.
    #[test]
    fn only_the_owner_is_forwarded_to(facts in any_facts()) {
        if decide(&facts) == Verdict::Forward {
            prop_assert_eq!(facts.directory, Directory::Elsewhere);
            prop_assert!(facts.forwards && !matches!(facts.local, Local::Proven | Local::Foreign));
        }
    }

    /// No new session without a lease or on an instance that retires.
    #[test]
    fn nothing_opens_without_a_lease(facts in any_facts()) {
        if matches!(decide(&facts), Verdict::PassOpening | Verdict::TakeOver) {
            prop_assert!(facts.lease && !facts.retiring);
        }
    }
}
