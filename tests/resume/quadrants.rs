//! Where a session's state lives, and who reads its log: the four combinations, each with a session that has lost its
//! owner and a client that comes back elsewhere.

use mcp_session_guard::{
    affinity_guard::AffinityGuardLayer,
    resume_guard::{LogReach, ResumeGuardLayer},
    store::MemoryStore,
};
use serde_json::json;

use super::{
    Pod, from,
    log::{Log, Trouble, Wrong},
    note,
    reader::data,
    result, settle,
    support::{LEASE, Stage},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Local,
    Shared,
}

struct Fleet {
    stage: Stage,
    old: Pod,
    new: Pod,
    log: Log,
}

impl Fleet {
    /// Two instances; `log` is shared between them or each has its own.
    async fn set(state: State, reach: LogReach) -> Self {
        let stage = Stage::set();
        let log = Log::new(stage.store.clone());
        let other = match reach {
            LogReach::Shared => log.clone(),
            _ => Log::new(MemoryStore::new()),
        };
        let affinity = |layer: AffinityGuardLayer| match state {
            State::Local => layer,
            State::Shared => layer.externalized(),
        };
        let resume = |layer: ResumeGuardLayer| layer.with_log_reach(reach);
        let old = Pod::with(&stage, "old", log.clone(), affinity, resume).await;
        let new = Pod::with(&stage, "new", other, affinity, resume).await;
        // It knows what it offers.
        new.open().await;
        Self {
            stage,
            old,
            new,
            log,
        }
    }

    /// The owner dies; its lease runs out.
    async fn crash(&self) {
        let _ = self
            .old
            .instance
            .retire_within(std::time::Duration::ZERO)
            .await;
        tokio::time::sleep(LEASE).await;
        let _ = &self.stage;
    }
}

/// A call of which the client has seen one event and missed another; and its position.
async fn missed_one(fleet: &Fleet, finished: bool) -> (String, String, String) {
    let session = fleet.old.open().await;
    let (tap, mut reader) = fleet.old.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    tap.event("0", &note("1"));
    let seen = reader.message().await;
    drop(reader);
    tap.event("1", &note("2"));
    if finished {
        tap.event("2", &result("1"));
        drop(tap);
        settle().await;
    } else {
        settle().await;
        std::mem::forget(tap);
    }
    (session, seen.id().to_owned(), priming.id().to_owned())
}

#[tokio::test(start_paused = true)]
async fn pinned_sessions_resume_at_their_owner_and_nowhere_else() {
    for reach in [LogReach::Local, LogReach::Shared] {
        let fleet = Fleet::set(State::Local, reach).await;
        let (session, seen, _) = missed_one(&fleet, true).await;
        // Elsewhere, while the owner lives.
        let mut refused = fleet.new.resume(&session, &seen).await;
        let error = refused.message().await;
        assert_eq!(error.error(), ("session_reassigned".into(), json!(1)));
        // The id under which it was told is an end, here too.
        let answer = fleet.new.answer(from(&session, error.id())).await;
        assert_eq!(answer.status, 405);
        let mut home = fleet.old.resume(&session, &seen).await;
        assert_eq!(data(&home.rest().await), [note("2"), result("1")]);
        // Elsewhere, when it is dead: the session validates nowhere.
        fleet.crash().await;
        let mut refused = fleet.new.resume(&session, &seen).await;
        let error = refused.message().await.error();
        assert_eq!(error, ("session_not_found".into(), json!(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_moved_away_from_its_log_is_served_and_its_old_streams_are_refused() {
    let fleet = Fleet::set(State::Shared, LogReach::Local).await;
    let (session, seen, _) = missed_one(&fleet, true).await;
    fleet.crash().await;
    // The session validates, the stream opens, and every byte of it would be wrong.
    let mut refused = fleet.new.resume(&session, &seen).await;
    let error = refused.message().await;
    assert_eq!(
        error.error(),
        ("stream_cursor_unrecoverable".into(), json!(1))
    );
    assert_eq!(refused.next().await, None);
    assert_eq!(
        fleet.new.answer(from(&session, error.id())).await.status,
        405
    );
    assert_eq!(fleet.new.untapped(), 0, "no fresh stream in its place");
    // What begins here goes on here.
    let (tap, mut reader) = fleet.new.call(&session, "2").await;
    let priming = reader.next().await.unwrap();
    drop(reader);
    tap.event("0", &result("2"));
    settle().await;
    let mut again = fleet.new.resume(&session, priming.id()).await;
    assert_eq!(again.message().await.data.unwrap(), result("2"));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_has_the_events_makes_no_difference_to_a_local_log() {
    // Each instance was told that its log is its own, and by accident they share the store.
    let stage = Stage::set();
    let externalized = |layer: AffinityGuardLayer| layer.externalized();
    let old = Pod::with(&stage, "old", stage.store.clone(), externalized, |layer| {
        layer
    })
    .await;
    let new = Pod::with(&stage, "new", stage.store.clone(), externalized, |layer| {
        layer
    })
    .await;
    new.open().await;
    let log = Log::new(stage.store.clone());
    let fleet = Fleet {
        stage,
        old,
        new,
        log,
    };
    let (session, seen, _) = missed_one(&fleet, true).await;
    fleet.crash().await;
    let mut refused = fleet.new.resume(&session, &seen).await;
    assert_eq!(
        refused.message().await.error().0,
        "stream_cursor_unrecoverable"
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_that_moved_with_its_log_is_resumed_exactly() {
    let fleet = Fleet::set(State::Shared, LogReach::Shared).await;
    let (session, seen, priming) = missed_one(&fleet, true).await;
    fleet.crash().await;
    let mut again = fleet.new.resume(&session, &seen).await;
    assert_eq!(data(&again.rest().await), [note("2"), result("1")]);
    let mut whole = fleet.new.resume(&session, &priming).await;
    assert_eq!(whole.rest().await.len(), 3);
    assert_eq!(fleet.new.instance.figures().resumes_found, 2);
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_stream_of_a_dead_producer_ends_with_an_error_for_what_it_owes() {
    let fleet = Fleet::set(State::Shared, LogReach::Shared).await;
    let (session, seen, _) = missed_one(&fleet, false).await;
    fleet.crash().await;
    let mut again = fleet.new.resume(&session, &seen).await;
    assert_eq!(again.message().await.data.unwrap(), note("2"));
    let error = again.message().await;
    assert_eq!(error.error(), ("outcome_unknown".into(), json!(1)));
    assert_eq!(again.next().await, None);
    assert_eq!(
        fleet.new.answer(from(&session, error.id())).await.status,
        405
    );
}

#[tokio::test(start_paused = true)]
async fn the_own_stream_of_a_dead_producer_is_replayed_and_then_opened_anew() {
    let fleet = Fleet::set(State::Shared, LogReach::Shared).await;
    let session = fleet.old.open().await;
    let mut reader = fleet.old.listen(&session).await;
    let tap = fleet.old.tap();
    tap.event("0", &note("1"));
    let seen = reader.message().await;
    tap.event("1", &note("2"));
    settle().await;
    drop(reader);
    fleet.crash().await;
    let mut replay = fleet.new.resume(&session, seen.id()).await;
    assert_eq!(data(&replay.rest().await), [note("2")]);
    let cursor = replay.cursor().to_owned();
    let mut anew = fleet.new.resume(&session, &cursor).await;
    fleet.new.tap().event("0", &note("3"));
    assert_eq!(anew.message().await.data.unwrap(), note("3"));
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_dead_producer_is_asked_of_nobody() {
    let fleet = Fleet::set(State::Shared, LogReach::Shared).await;
    let session = fleet.old.open().await;
    let (tap, mut reader) = fleet.old.call(&session, "1").await;
    let priming = reader.next().await.unwrap();
    tap.event(
        "0",
        r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}"#,
    );
    settle().await;
    fleet.crash().await;
    let mut refused = fleet.new.resume(&session, priming.id()).await;
    assert_eq!(
        refused.message().await.error(),
        ("session_resume_rejected".into(), json!(1))
    );
}

#[tokio::test(start_paused = true)]
async fn the_older_producers_streams_are_sealed_before_anything_is_served() {
    let fleet = Fleet::set(State::Shared, LogReach::Shared).await;
    let session = fleet.old.open().await;
    fleet.crash().await;
    // What cannot be sealed is not served.
    fleet.log.set(Wrong {
        seal: Some(Trouble::Fails),
        ..Wrong::default()
    });
    let request = || super::support::post(Some(&session), super::call("1"));
    let answer = fleet.new.answer(request()).await;
    assert_eq!(answer.refusal(), (503, "session_unconfirmed"));
    assert_eq!(fleet.new.untapped(), 0);
    fleet.log.set(Wrong {
        seal: Some(Trouble::Hangs),
        ..Wrong::default()
    });
    assert_eq!(fleet.new.answer(request()).await.status, 503);
    fleet.log.set(Wrong::default());
    let _reader = fleet.new.stream(request()).await;
    // Once for a take-over.
    fleet.log.set(Wrong {
        seal: Some(Trouble::Fails),
        ..Wrong::default()
    });
    let _reader = fleet.new.stream(request()).await;
}

#[tokio::test(start_paused = true)]
async fn a_resume_does_not_count_as_the_inner_services_rehydration() {
    use mcp_session_guard::affinity_guard::Disposition;
    let fleet = Fleet::set(State::Shared, LogReach::Shared).await;
    let (session, seen, _) = missed_one(&fleet, true).await;
    fleet.crash().await;
    let mut again = fleet.new.resume(&session, &seen).await;
    again.rest().await;
    fleet.new.inner.take();
    let _ = fleet.new.call(&session, "2").await;
    let asked = fleet.new.inner.take();
    assert!(
        matches!(asked[0].disposition, Some(Disposition::Rehydrate { .. })),
        "{asked:?}"
    );
}

/// The trap: the log is shared, and it keeps events but not their requests. The bytes are all there.
#[tokio::test(start_paused = true)]
async fn events_without_their_requests_are_refused() {
    let fleet = Fleet::set(State::Shared, LogReach::Shared).await;
    let (session, seen, _) = missed_one(&fleet, true).await;
    fleet.log.set(Wrong {
        forgets_requests: true,
        ..Wrong::default()
    });
    for pod in [&fleet.old, &fleet.new] {
        if pod.instance.id() == fleet.new.instance.id() {
            fleet.crash().await;
        }
        let mut refused = pod.resume(&session, &seen).await;
        assert_eq!(
            refused.message().await.error(),
            ("session_resume_rejected".into(), json!(1))
        );
        assert_eq!(refused.next().await, None);
    }
}

/// The same trap where the position does not name the request either: a batch, and an id that is too long for it.
#[tokio::test(start_paused = true)]
async fn a_stream_whose_requests_are_lost_never_passes_for_the_sessions_own() {
    let long = format!("\"{}\"", "i".repeat(70));
    let batch = format!("[{},{}]", super::call("1"), super::call("2"));
    for body in [super::call(&long), batch] {
        let fleet = Fleet::set(State::Shared, LogReach::Shared).await;
        let session = fleet.old.open().await;
        let mut reader = fleet
            .old
            .stream(super::support::post(Some(&session), body))
            .await;
        let tap = fleet.old.tap();
        tap.event("0", &note("1"));
        let seen = reader.message().await;
        drop(reader);
        fleet.log.set(Wrong {
            forgets_requests: true,
            ..Wrong::default()
        });
        let unfinished = fleet.old.answer(from(&session, seen.id())).await;
        assert_eq!(unfinished.refusal(), (409, "session_resume_rejected"));
        fleet.crash().await;
        let moved = fleet.new.answer(from(&session, seen.id())).await;
        assert_eq!(moved.refusal(), (409, "session_resume_rejected"));
        assert_eq!(fleet.new.untapped(), 0, "no fresh stream in its place");
    }
}
