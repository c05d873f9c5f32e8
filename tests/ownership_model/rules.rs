//! Leaves one rule out at a time, and expects the model to notice.

use mcp_session_guard::session::Residency::{self, Externalized, Pinned};
use stateright::{Checker, HasDiscoveries, Model};

use crate::{
    ghost::Invariant,
    holds,
    mutation::Mutation::{self, *},
    scenario::{Fault, Scenario},
};

pub(crate) const I1: Invariant = Invariant::NoEffectUnderAnOlderFence;
pub(crate) const I2: Invariant = Invariant::NoNotFoundBeforeService;
pub(crate) const I3: Invariant = Invariant::NoAnswerWithoutProof;
pub(crate) const I4: Invariant = Invariant::TombstonesWin;
pub(crate) const I5: Invariant = Invariant::NoSilentOblivion;

/// Asserts that the model breaks the invariant once the rule is left out. That it holds with the rule in place is
/// for the exhaustive tests to show.
pub(crate) fn breaks(mutation: Mutation, invariant: Invariant, scenario: Scenario) {
    let mutated = Scenario {
        mutation: Some(mutation),
        ..scenario
    };
    is_broken(mutated, invariant);
}

pub(crate) fn is_broken(scenario: Scenario, invariant: Invariant) {
    let broken = HasDiscoveries::AnyOf([invariant.name()].into());
    let checker = scenario.checker().threads(2).finish_when(broken);
    let path = checker
        .spawn_bfs()
        .join()
        .assert_any_discovery(invariant.name());
    println!("{invariant:?}: {:?}", path.into_actions());
}

fn pinned() -> Scenario {
    Scenario::new(Pinned, Fault::None)
}

pub(crate) fn externalized() -> Scenario {
    Scenario::new(Externalized, Fault::None)
}

/// With a fault, and requests that take no time.
pub(crate) fn forgetful(residency: Residency, fault: Fault) -> Scenario {
    Scenario {
        horizon: 4,
        slow: false,
        ..Scenario::new(residency, fault)
    }
}

fn idle(residency: Residency) -> Scenario {
    Scenario {
        idle: Some(1),
        horizon: 6,
        ..Scenario::new(residency, Fault::None)
    }
}

#[test]
fn rule_1_the_deadline_counts_from_before_the_heartbeat_was_sent() {
    breaks(CountsFromTheReply, I2, pinned());
}

#[test]
fn rule_1_the_clock_runs_on_in_sleep() {
    breaks(ClockSleeps, I2, pinned());
}

#[test]
fn rule_1_the_margin_is_for_a_slow_clock() {
    let drifts = Scenario {
        lease: 3,
        margin: 1,
        drift: true,
        ..pinned()
    };
    breaks(NoMargin, I3, drifts);
}

#[test]
fn rule_2_a_lapse_unproves_the_table() {
    breaks(
        LapseUnprovesNothing,
        I2,
        forgetful(Pinned, Fault::EmptyRestart),
    );
    breaks(
        LapseUnprovesNothing,
        I1,
        forgetful(Externalized, Fault::FailOver),
    );
}

#[test]
fn rule_2_a_late_reply_and_the_directorys_word_tell_of_a_lapse() {
    breaks(OnlyTheTimerNotices, I2, pinned());
    breaks(OnlyTheTimerNotices, I1, externalized());
}

#[test]
fn rule_2_a_proof_is_good_under_one_incarnation() {
    let grants = forgetful(Externalized, Fault::EmptyRestart);
    breaks(ProofOutlivesTheIncarnation, I3, grants);
    let opens = Scenario {
        opening: true,
        ..forgetful(Pinned, Fault::EmptyRestart)
    };
    breaks(ProofOutlivesTheIncarnation, I3, opens);
}

#[test]
fn rule_3_only_a_claim_proves() {
    breaks(HeartbeatProves, I2, pinned());
    breaks(HeartbeatProves, I1, externalized());
}

#[test]
fn rule_3_only_a_claim_makes_a_lease() {
    breaks(HeartbeatCreates, I3, forgetful(Pinned, Fault::EmptyRestart));
}

#[test]
fn rule_3_nothing_is_extended_before_it_was_claimed() {
    breaks(
        ExtendsBeforeClaiming,
        I3,
        forgetful(Pinned, Fault::EmptyRestart),
    );
}

#[test]
fn rule_4_what_is_absent_is_dropped() {
    breaks(RegistersTheAbsent, I2, pinned());
}

#[test]
fn rule_5_a_404_is_made_true_before_it_is_said() {
    breaks(NotFoundWithoutBurial, I2, pinned());
}

#[test]
fn rule_5_burial_compares() {
    breaks(BuriesWithoutComparing, I3, pinned());
}

#[test]
fn rule_6_take_over_compares() {
    breaks(TakesOverWithoutComparing, I1, externalized());
}

#[test]
fn rule_6_an_orphan_is_served_under_a_grant_only() {
    breaks(ServesTheOrphan, I3, externalized());
}

#[test]
fn rule_6_older_fences_are_sealed_before_service() {
    breaks(SkipsTheSeal, I1, externalized());
}

#[test]
fn rule_6_a_proof_under_another_fence_is_a_take_over() {
    breaks(
        KeepsTheOldCopy,
        I1,
        forgetful(Externalized, Fault::FailOver),
    );
}

#[test]
fn rule_7_an_owners_terminate_carries_its_fence() {
    let idles = Scenario {
        idles: true,
        ..externalized()
    };
    breaks(TerminatesWithoutFence, I4, idles);
}

#[test]
fn rule_7_a_delete_that_lands_late_ends_nothing_of_somebody_elses() {
    let late = Scenario {
        deletes: true,
        deletes_land_late: true,
        ..externalized()
    };
    holds(&late);
    breaks(TerminatesWithoutFence, I4, late);
}

#[test]
fn rule_8_only_the_owner_decides_idleness() {
    breaks(DirectoryDecidesIdleness, I3, idle(Pinned));
}

#[test]
fn rule_8_an_owner_minds_its_last_acknowledged_touch() {
    breaks(ForgetsTheLastTouch, I3, idle(Pinned));
    breaks(ForgetsTheLastTouch, I3, idle(Externalized));
}

#[test]
fn rule_9_a_session_is_registered_before_its_id_is_seen() {
    let opens = Scenario {
        opening: true,
        ..pinned()
    };
    breaks(ShowsTheIdFirst, I3, opens);
}

#[test]
fn rule_9_a_session_is_opened_under_one_unbroken_lease() {
    let opens = Scenario {
        opening: true,
        ..pinned()
    };
    breaks(OpensAcrossALapse, I2, opens);
}

#[test]
fn rule_10_what_is_named_ones_own_is_granted_afresh() {
    breaks(AdoptsTheNamed, I1, externalized());
}

#[test]
fn rule_10_a_grant_is_good_under_the_lease_it_was_asked_under() {
    breaks(AdoptsAcrossALapse, I1, externalized());
}

#[test]
fn rule_11_the_proof_is_looked_at_again_before_dispatch() {
    breaks(SkipsTheSecondCheck, I2, pinned());
    breaks(SkipsTheSecondCheck, I1, externalized());
}

#[test]
fn rule_11_output_is_held_until_it_is_proven_again() {
    breaks(ShowsWithoutProof, I2, pinned());
    breaks(ShowsWithoutProof, I1, externalized());
}

#[test]
fn rule_11_the_fence_travels_to_where_it_is_written() {
    breaks(WritesWithoutFence, I1, externalized());
}

#[test]
fn rule_12_the_table_is_given_up_before_the_lease() {
    let leaves = Scenario {
        leaving: true,
        ..pinned()
    };
    breaks(LeavesBeforeDisowning, I3, leaves);
    let leaves = Scenario {
        leaving: true,
        ..externalized()
    };
    breaks(LeavesBeforeDisowning, I1, leaves);
}

#[test]
fn rule_13_names_are_labels() {
    breaks(ComparesNames, I3, pinned());
    breaks(ComparesNames, I1, externalized());
}
