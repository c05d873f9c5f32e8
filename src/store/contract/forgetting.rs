//! The cases of what a ledger forgets: in time, and all at once.

#![allow(missing_docs, reason = "the name of each case says what it checks")]

use std::time::Duration;

use super::ledger::{
    Book, FRESH, HORIZON, LEASE, LedgerHarness, OUTCOMES, claim, completed, result,
};
use crate::store::{Begun, Held};

const MOMENT: Duration = Duration::from_secs(1);

pub async fn outcomes_are_kept_for_their_time_and_no_longer<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    book.pass(LEASE / 2).await;
    book.complete(&own, &result("1")).await;
    book.pass(OUTCOMES - 2 * MOMENT).await;
    assert_eq!(book.ask(1).await, completed(&result("1")));
    book.pass(3 * MOMENT).await;
    assert_eq!(book.ask(1).await, FRESH);
}

pub async fn an_unknown_outcome_is_kept_for_as_long<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    book.claimed(1).await;
    book.pass(LEASE + OUTCOMES - 2 * MOMENT).await;
    assert_eq!(book.ask(1).await, Begun::OutcomeUnknown);
}

pub async fn recovering_what_was_not_seen_since_is_not_fresh<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    book.complete(&own, &result("1")).await;
    book.0.lose_memory().await;
    for key in [1, 2] {
        assert!(book.is_recovering(&claim(key)).await);
        let again = claim(key).with_may_run_again(true);
        assert!(book.is_recovering(&again).await);
    }
}

pub async fn recovering_a_claim_is_written_again_by_its_renewal<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    book.0.lose_memory().await;
    assert_eq!(book.renew(&own).await, Held::Yes);
    assert_eq!(book.ask(1).await, Begun::InFlight);
    book.pass(LEASE).await;
    assert_eq!(book.ask(1).await, Begun::OutcomeUnknown);
}

pub async fn recovering_a_claim_is_written_again_by_its_completion<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    let own = book.claimed(1).await;
    book.0.lose_memory().await;
    assert_eq!(book.complete(&own, &result("1")).await, Held::Yes);
    assert_eq!(book.ask(1).await, completed(&result("1")));
    book.pass(HORIZON).await;
    assert_eq!(book.ask(1).await, completed(&result("1")));
}

pub async fn recovering_ends<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    book.0.lose_memory().await;
    book.pass(HORIZON - 2 * MOMENT).await;
    assert!(book.is_recovering(&claim(1)).await);
    book.pass(3 * MOMENT).await;
    assert_eq!(book.ask(1).await, FRESH);
}

pub async fn outside_a_recovery_a_renewal_makes_nothing<H: LedgerHarness>() {
    let book = Book::<H>::open().await;
    assert_eq!(book.renew(&claim(1)).await, Held::Absent);
    assert_eq!(book.ask(1).await, FRESH);
}
