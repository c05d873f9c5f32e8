//! Where the second requests of sessions go, and what becomes of them.

use std::fmt;

use crate::{
    client::{Answer, Client},
    edge::{Edge, Program},
    pods::{CAME_TO, Help, NAMES, Pod, addresses, three},
};

const SESSIONS: usize = 60;

const NOTHING: Help = Help {
    token: false,
    forwarder: false,
};
const TOKEN: Help = Help {
    token: true,
    forwarder: false,
};
const FORWARDER: Help = Help {
    token: false,
    forwarder: true,
};

/// A session, and where it was opened.
struct Session {
    client: Client,
    home: String,
}

pub fn came_to(answer: &Answer) -> &str {
    let name = answer.headers.get(CAME_TO);
    let name = name.unwrap_or_else(|| panic!("the edge answered itself: {answer:?}"));
    name.to_str().expect("a name")
}

async fn open(edge: &Edge, pods: &[Pod; 3]) -> Vec<Session> {
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let mut client = Client::new(edge.url());
        let opened = client.initialize().await;
        let home = came_to(&opened).to_owned();
        // Past the edge, so that a call is the second request that it sees.
        let owner = pods.iter().find(|pod| pod.name == home).expect("a pod");
        let url = format!("http://{}/mcp", owner.address);
        client.at(url).initialized().await;
        sessions.push(Session { client, home });
    }
    for name in NAMES {
        let opened = sessions.iter().filter(|session| session.home == name);
        assert_ne!(opened.count(), 0, "no session was opened at {name}");
    }
    // Not in the order in which they were opened, which instances that take turns would have too.
    sessions.sort_by(|one, other| one.home.cmp(&other.home));
    sessions
}

/// What became of one request of each session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tally {
    /// Those that the edge sent to their session's owner.
    home: usize,
    served: usize,
    refused: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "of {SESSIONS}: {:2} sent to their owner, {:2} served, {:2} refused",
            self.home, self.served, self.refused
        )
    }
}

/// One request of each session, the first or second of those that append. None is ever served wrong.
async fn tally(sessions: &[Session], which: usize) -> Tally {
    let mut tally = Tally::default();
    for session in sessions {
        let answer = session.client.append("x").await;
        let at_home = came_to(&answer) == session.home;
        tally.home += usize::from(at_home);
        match (answer.status, answer.reason()) {
            (200, None) => {
                let text = answer.result_text();
                assert_eq!(text, vec!["x"; which].join("|"), "from another notebook");
                tally.served += 1;
            }
            (409, Some("session_reassigned")) => {
                assert!(!at_home, "{answer:?}");
                tally.refused += 1;
            }
            _ => panic!("{answer:?}"),
        }
    }
    tally
}

async fn measure(program: Program, recipe: &'static str, help: Help) -> Tally {
    let pods = three(help).await;
    let edge = Edge::start(program, recipe, addresses(&pods)).await;
    let tally = tally(&open(&edge, &pods).await, 1).await;
    let helped = match help {
        TOKEN => "with route tokens",
        FORWARDER => "with the forwarder",
        _ => "alone",
    };
    println!("{program:?}, {recipe} {helped}, {tally}");
    tally
}

const ALL_HOME: Tally = Tally {
    home: SESSIONS,
    served: SESSIONS,
    refused: 0,
};

#[tokio::test]
async fn a_hash_alone_misses_and_what_it_misses_is_refused() {
    for program in Program::ALL {
        let tally = measure(program, "hash", NOTHING).await;
        assert!((1..SESSIONS).contains(&tally.home), "{tally}");
        assert_eq!(tally.served, tally.home);
        assert_eq!(tally.refused, SESSIONS - tally.home);
    }
}

#[tokio::test]
async fn with_the_forwarder_a_hash_serves_all() {
    for program in Program::ALL {
        let tally = measure(program, "hash", FORWARDER).await;
        assert!((1..SESSIONS).contains(&tally.home), "{tally}");
        assert_eq!((tally.served, tally.refused), (SESSIONS, 0));
    }
}

#[tokio::test]
async fn with_the_forwarder_round_robin_serves_all() {
    for program in Program::ALL {
        let tally = measure(program, "round-robin", FORWARDER).await;
        assert!((1..SESSIONS).contains(&tally.home), "{tally}");
        assert_eq!((tally.served, tally.refused), (SESSIONS, 0));
    }
}

#[tokio::test]
async fn with_the_route_token_all_reach_their_owner() {
    for program in Program::ALL {
        assert_eq!(measure(program, "token", TOKEN).await, ALL_HOME);
    }
}

#[tokio::test]
async fn a_table_serves_all_until_it_is_lost() {
    let program = Program::HaProxy;
    let pods = three(NOTHING).await;
    let mut edge = Edge::start(program, "stick", addresses(&pods)).await;
    let sessions = open(&edge, &pods).await;
    let first = tally(&sessions, 1).await;
    println!("{program:?}, stick alone, {first}");
    assert_eq!(first, ALL_HOME);
    edge.restart().await;
    let second = tally(&sessions, 2).await;
    println!("{program:?}, stick alone after a restart, {second}");
    assert!((1..SESSIONS).contains(&second.home), "{second}");
    assert_eq!(second.served, second.home);
    assert_eq!(second.refused, SESSIONS - second.home);
}

#[tokio::test]
async fn a_token_outlives_the_edge() {
    for program in Program::ALL {
        let pods = three(TOKEN).await;
        let mut edge = Edge::start(program, "token", addresses(&pods)).await;
        let sessions = open(&edge, &pods).await;
        edge.restart().await;
        assert_eq!(tally(&sessions, 1).await, ALL_HOME);
    }
}
