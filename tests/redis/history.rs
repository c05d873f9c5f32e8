//! What happened to each session, in the order in which it happened, and whether it may have.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use mcp_session_guard::session::Fence;

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A client was given the session.
    Opened { pod: usize, session: String },
    /// The inner service of a pod did something for it.
    Served {
        pod: usize,
        session: String,
        fence: Option<Fence>,
    },
    /// A client was told 404.
    Gone { session: String },
    /// A client asks for its end.
    Ending { session: String },
    /// A client ended it, and was told so.
    Ended { session: String },
    /// A client was refused for a while.
    Refused { session: String, reason: String },
}

#[derive(Debug, Default)]
pub struct History(Mutex<Vec<Event>>);

impl History {
    pub fn push(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }

    pub fn count(&self, of: impl Fn(&Event) -> bool) -> usize {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|event| of(event))
            .count()
    }

    pub fn served(&self) -> usize {
        self.count(|event| matches!(event, Event::Served { .. }))
    }

    pub fn refused(&self) -> usize {
        self.count(|event| matches!(event, Event::Refused { .. }))
    }

    /// Holds all of it against what must hold; see the ownership protocol. `dead` are pods that were killed, whose pinned
    /// sessions may go.
    pub fn check(&self, dead: &[usize]) {
        let history = self.0.lock().unwrap();
        if let Err(breach) = check(&history, dead) {
            panic!("{breach}\n{history:#?}");
        }
    }
}

fn check(history: &[Event], dead: &[usize]) -> Result<(), String> {
    let mut home = HashMap::new();
    let mut newest: HashMap<&str, Fence> = HashMap::new();
    let mut holder: HashMap<(&str, Fence), usize> = HashMap::new();
    let (mut gone, mut ending, mut ended) = (HashSet::new(), HashSet::new(), HashSet::new());
    for event in history {
        match event {
            Event::Opened { pod, session } => {
                home.insert(session.as_str(), *pod);
            }
            Event::Served {
                pod,
                session,
                fence,
            } => {
                let session = session.as_str();
                if gone.contains(session) {
                    return Err(format!(
                        "I2: {session} was served after a client was told 404"
                    ));
                }
                if ended.contains(session) {
                    return Err(format!("I4: {session} was served after it was ended"));
                }
                match fence {
                    // Pinned: its state is in one process.
                    None if home.get(session) != Some(pod) => {
                        return Err(format!(
                            "I3: {session} was served by {pod}, which never had it"
                        ));
                    }
                    None => {}
                    Some(fence) => {
                        if *holder.entry((session, *fence)).or_insert(*pod) != *pod {
                            return Err(format!("I3: two served {session} under {fence}"));
                        }
                        let newest = newest.entry(session).or_insert(*fence);
                        if fence < newest {
                            return Err(format!(
                                "I1: {session} was served under {fence} after {newest}"
                            ));
                        }
                        *newest = *fence;
                    }
                }
            }
            Event::Gone { session } => {
                gone.insert(session.as_str());
                let may = match home.get(session.as_str()) {
                    Some(pod) => dead.contains(pod) || ending.contains(session.as_str()),
                    None => true,
                };
                if !may {
                    return Err(format!("I5: {session} was forgotten"));
                }
            }
            Event::Ending { session } => {
                ending.insert(session.as_str());
            }
            Event::Ended { session } => {
                ended.insert(session.as_str());
            }
            Event::Refused { .. } => {}
        }
    }
    Ok(())
}

#[test]
fn the_checker_finds_each_breach() {
    use mcp_session_guard::session::Incarnation;

    let fence = |counter| Some(Fence::new(Incarnation::new(1, 1), counter));
    let session = || "s".to_owned();
    let opened = Event::Opened {
        pod: 0,
        session: session(),
    };
    let served = |pod, fence| Event::Served {
        pod,
        session: session(),
        fence,
    };
    let gone = Event::Gone { session: session() };
    let ending = Event::Ending { session: session() };
    let ended = Event::Ended { session: session() };
    let breaches: [(&str, &[Event]); 6] = [
        (
            "I1",
            &[
                served(0, fence(1)),
                served(1, fence(2)),
                served(0, fence(1)),
            ],
        ),
        (
            "I2",
            &[
                opened.clone(),
                ending.clone(),
                gone.clone(),
                served(0, None),
            ],
        ),
        ("I3", &[served(0, fence(1)), served(1, fence(1))]),
        ("I3", &[opened.clone(), served(1, None)]),
        ("I4", &[opened.clone(), ended.clone(), served(0, None)]),
        ("I5", &[opened.clone(), gone.clone()]),
    ];
    for (name, history) in breaches {
        let told = check(history, &[]).unwrap_err();
        assert!(told.starts_with(name), "{name}: {told}");
    }
    let fine = [opened, served(0, None), ending, gone, ended];
    check(&fine, &[]).unwrap();
}
