//! The cases of a claim: who gets it, and what becomes of it.

#![allow(missing_docs, reason = "the name of each case says what it checks")]

use std::sync::Arc;

use bytes::Bytes;

use super::ledger::{Book, FRESH, LEASE, LedgerHarness, asking, claim, completed, result};
use crate::store::{Begun, Held, Origin, Outcome, Reply};

pub async fn a_key_is_fresh_once<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    book.claimed(1).await;
    for _ in 0..2 {
        assert_eq!(book.ask(1).await, Begun::InFlight);
    }
}

pub async fn of_many_at_once_one_is_fresh<H: LedgerHarness>() {
    let book = Arc::new(Book::<H>::open().await);
    let mut attempts = Vec::new();
    for _ in 0..64 {
        let book = Arc::clone(&book);
        // Not spawned: a harness need not give futures that are `Send`.
        attempts.push(async move { book.ask(1).await });
    }
    let told = futures_util::future::join_all(attempts).await;
    let fresh = told.iter().filter(|told| **told == FRESH).count();
    assert_eq!(fresh, 1, "{told:?}");
    assert!(
        told.iter()
            .all(|told| matches!(told, Begun::Fresh { .. } | Begun::InFlight))
    );
}

pub async fn keys_are_independent<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let one = book.claimed(1).await;
    book.claimed(2).await;
    book.complete(&one, &result("1")).await;
    assert_eq!(book.ask(2).await, Begun::InFlight);
    assert_eq!(book.ask(3).await, FRESH);
}

pub async fn another_fingerprint_is_a_conflict_whatever_the_state<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let running = book.claimed(1).await;
    assert_eq!(book.begin(&asking(1, 9)).await, Begun::Conflict);
    book.complete(&running, &result("1")).await;
    assert_eq!(book.begin(&asking(1, 9)).await, Begun::Conflict);
    book.claimed(2).await;
    book.pass(LEASE).await;
    assert_eq!(book.begin(&asking(2, 9)).await, Begun::Conflict);
    let again = asking(2, 9).with_may_run_again(true);
    assert_eq!(book.begin(&again).await, Begun::Conflict);
}

pub async fn a_begin_whose_reply_was_lost_is_recognised<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    assert_eq!(book.begin(&own).await, FRESH);
    assert_eq!(book.ask(1).await, Begun::InFlight);
}

pub async fn an_outcome_is_kept_as_it_was<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let error = Outcome::Reply(Reply::Error(Bytes::from_static(b"{\"code\":1}\0\xc3\xa9")));
    for (key, outcome) in [(1, result("{\"a\":[1.0,\"\\u00e9\"]}")), (2, error)] {
        let own = book.claimed(key).await;
        assert_eq!(book.complete(&own, &outcome).await, Held::Yes);
        for _ in 0..2 {
            assert_eq!(book.ask(key).await, completed(&outcome));
        }
        // Whoever holds the claim is told the same.
        assert_eq!(book.begin(&own).await, completed(&outcome));
    }
}

pub async fn an_outcome_is_kept_with_its_origin<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let origin = Some(Origin::from_bytes([7; 32]));
    let own = claim(1).with_origin(origin);
    assert_eq!(book.begin(&own).await, FRESH);
    book.complete(&own, &result("1")).await;
    let elsewhere = claim(1).with_origin(Origin::from_bytes([8; 32]));
    let Begun::Completed { origin: ran_in, .. } = book.begin(&elsewhere).await else {
        panic!("not completed");
    };
    assert_eq!(ran_in, origin);
}

pub async fn a_completion_is_acknowledged_again<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    for outcome in [result("1"), result("1"), result("2"), Outcome::Unknown] {
        assert_eq!(book.complete(&own, &outcome).await, Held::Yes);
        // The first one counts.
        assert_eq!(book.ask(1).await, completed(&result("1")));
    }
}

pub async fn what_was_too_large_is_known_to_have_run<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    assert_eq!(book.complete(&own, &Outcome::TooLarge).await, Held::Yes);
    assert_eq!(book.ask(1).await, completed(&Outcome::TooLarge));
    let again = claim(1).with_may_run_again(true);
    assert_eq!(book.begin(&again).await, completed(&Outcome::TooLarge));
}

pub async fn a_claim_that_is_renewed_does_not_lapse<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    for _ in 0..4 {
        book.pass(LEASE * 2 / 3).await;
        assert_eq!(book.ask(1).await, Begun::InFlight);
        assert_eq!(book.renew(&own).await, Held::Yes);
    }
}

pub async fn a_lapsed_claim_is_unknown_and_never_fresh<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    book.claimed(1).await;
    book.pass(LEASE).await;
    for _ in 0..2 {
        assert_eq!(book.ask(1).await, Begun::OutcomeUnknown);
    }
}

pub async fn a_lapsed_claim_may_be_renewed_if_nobody_claimed_it<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    book.pass(LEASE).await;
    assert_eq!(book.ask(1).await, Begun::OutcomeUnknown);
    assert_eq!(book.renew(&own).await, Held::Yes);
    assert_eq!(book.ask(1).await, Begun::InFlight);
}

pub async fn a_lapsed_claim_may_be_completed_if_nobody_claimed_it<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    book.pass(LEASE).await;
    assert_eq!(book.ask(1).await, Begun::OutcomeUnknown);
    assert_eq!(book.complete(&own, &result("1")).await, Held::Yes);
    assert_eq!(book.ask(1).await, completed(&result("1")));
}

pub async fn what_was_given_up_is_unknown_at_once<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    assert_eq!(book.complete(&own, &Outcome::Unknown).await, Held::Yes);
    assert_eq!(book.ask(1).await, Begun::OutcomeUnknown);
    assert_eq!(book.begin(&own).await, Begun::OutcomeUnknown);
    assert_eq!(book.renew(&own).await, Held::Superseded);
}

pub async fn an_unknown_outcome_is_replaced_by_its_own_claims_only<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    book.complete(&own, &Outcome::Unknown).await;
    assert_eq!(
        book.complete(&claim(1), &result("2")).await,
        Held::Superseded
    );
    assert_eq!(book.ask(1).await, Begun::OutcomeUnknown);
    assert_eq!(book.complete(&own, &result("1")).await, Held::Yes);
    assert_eq!(book.ask(1).await, completed(&result("1")));
}

pub async fn a_request_that_may_run_again_is_fresh_after_an_unknown_outcome<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let given_up = book.claimed(1).await;
    book.complete(&given_up, &Outcome::Unknown).await;
    for attempt in 2..4 {
        let again = claim(1).with_may_run_again(true);
        assert_eq!(book.begin(&again).await, Begun::Fresh { attempt });
        // And recognised, as any other.
        assert_eq!(book.begin(&again).await, Begun::Fresh { attempt });
        book.pass(LEASE).await;
    }
    assert_eq!(book.ask(1).await, Begun::OutcomeUnknown);
}

pub async fn a_request_that_may_run_again_waits_for_the_one_that_runs<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    let again = claim(1).with_may_run_again(true);
    assert_eq!(book.begin(&again).await, Begun::InFlight);
    book.complete(&own, &result("1")).await;
    assert_eq!(book.begin(&again).await, completed(&result("1")));
}

pub async fn a_claim_that_was_taken_changes_nothing<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let old = book.claimed(1).await;
    book.pass(LEASE).await;
    let new = claim(1).with_may_run_again(true);
    assert_eq!(book.begin(&new).await, Begun::Fresh { attempt: 2 });
    assert_eq!(book.renew(&old).await, Held::Superseded);
    assert_eq!(book.complete(&old, &result("old")).await, Held::Superseded);
    book.release(&old).await;
    assert_eq!(book.ask(1).await, Begun::InFlight);
    assert_eq!(book.complete(&new, &result("new")).await, Held::Yes);
    assert_eq!(book.complete(&old, &result("old")).await, Held::Superseded);
    assert_eq!(book.ask(1).await, completed(&result("new")));
}

pub async fn a_released_key_is_as_if_it_had_never_been<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    book.release(&own).await;
    // Also for something else.
    let other = asking(1, 9);
    assert_eq!(book.begin(&other).await, FRESH);
    assert_eq!(book.complete(&own, &result("1")).await, Held::Superseded);
    assert_eq!(book.renew(&own).await, Held::Superseded);
    assert_eq!(book.begin(&other).await, FRESH);
}

pub async fn a_release_is_its_tokens_only<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    book.claimed(1).await;
    book.release(&claim(1)).await;
    assert_eq!(book.ask(1).await, Begun::InFlight);
}

pub async fn a_release_is_acknowledged_again<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    book.release(&own).await;
    book.release(&own).await;
    book.claimed(1).await;
    book.release(&own).await;
    assert_eq!(book.ask(1).await, Begun::InFlight);
}

pub async fn a_release_undoes_no_outcome<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    for (key, outcome) in [(1, result("1")), (2, Outcome::TooLarge)] {
        let own = book.claimed(key).await;
        book.complete(&own, &outcome).await;
        book.release(&own).await;
        assert_eq!(book.ask(key).await, completed(&outcome));
    }
}

pub async fn a_begin_that_comes_after_its_release_takes_nothing<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let given_up = claim(1);
    book.release(&given_up).await;
    let late = book.try_begin(&given_up).await;
    assert_eq!(
        late.unwrap_err().kind(),
        crate::store::StoreErrorKind::Fenced
    );
    assert_eq!(book.ask(1).await, FRESH);
    // Nor does it take a claim that somebody else has by now.
    let begun = book.try_begin(&given_up).await;
    assert!(!matches!(begun, Ok(Begun::Fresh { .. })), "{begun:?}");
}
