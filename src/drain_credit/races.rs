//! Requests that ask at the same time for the last of a session's credit, and answers that give it back: no more are
//! admitted than there is credit for, and all of it comes back.
//!
//! Under `--cfg shuttle` each test is run under many schedules, one of them at a time; otherwise on real threads.

use std::sync::Arc;

use super::{
    account::Wants,
    layer::{DrainCreditLayer, Shared},
    sync::{Mutex, PoisonError},
    ticket::{Admission, Core, Ticket},
};

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

fn check(test: impl Fn() + Send + Sync + 'static) {
    #[cfg(shuttle)]
    {
        shuttle::check_random(test, 2000);
    }
    #[cfg(not(shuttle))]
    for _ in 0..100 {
        test();
    }
}

const MARK: usize = 4;

fn core() -> Arc<Core> {
    let layer = DrainCreditLayer::new()
        .with_credit(2, 1000)
        .with_high_water(2);
    let shared: Arc<Shared> = layer.shared_for_test();
    Core::new(shared)
}

fn ask(core: &Arc<Core>) -> Option<Ticket> {
    match core.admit(b"session", Wants::Answer, 1) {
        Admission::Admitted(ticket) => Some(ticket),
        Admission::Refused(_) => None,
        Admission::Read => panic!("it was read"),
    }
}

fn assert_blank(core: &Core) {
    let figures = core.accounts().figures();
    assert_eq!(
        (
            figures.sessions,
            figures.reserved,
            figures.undrained_messages
        ),
        (0, 0, 0)
    );
}

#[test]
fn no_more_are_admitted_than_there_is_credit_for() {
    check(|| {
        let core = core();
        let held = Arc::new(Mutex::new(Vec::new()));
        let asking: Vec<_> = (0..6)
            .map(|_| {
                let (core, held) = (Arc::clone(&core), Arc::clone(&held));
                thread::spawn(move || {
                    if let Some(ticket) = ask(&core) {
                        held.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(ticket);
                    }
                })
            })
            .collect();
        for thread in asking {
            thread.join().expect("asked");
        }
        let held = std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner));
        assert_eq!(held.len(), MARK);
        drop(held);
        assert_blank(&core);
    });
}

#[test]
fn what_is_given_back_while_others_ask_comes_back_once() {
    check(|| {
        let core = core();
        let first: Vec<_> = (0..MARK).map(|_| ask(&core).expect("admitted")).collect();
        assert!(ask(&core).is_none());
        let giving: Vec<_> = first
            .into_iter()
            .map(|mut ticket| {
                thread::spawn(move || {
                    ticket.open_plain(10, false, None);
                    drop(ticket);
                })
            })
            .collect();
        let asking: Vec<_> = (0..3)
            .map(|_| {
                let core = Arc::clone(&core);
                thread::spawn(move || ask(&core).map(drop).is_some())
            })
            .collect();
        for thread in giving {
            thread.join().expect("given back");
        }
        for thread in asking {
            thread.join().expect("asked");
        }
        assert_blank(&core);
        assert!(ask(&core).is_some());
    });
}
