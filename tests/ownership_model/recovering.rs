//! The rules of a directory that may have lost its memory, left out one at a time, and what stays open.

use mcp_session_guard::session::Residency::{Externalized, Pinned};

use crate::{
    mutation::Mutation::*,
    rules::{I1, I2, I3, I4, I5, breaks, forgetful, is_broken},
    scenario::{Fault, Scenario},
};

#[test]
fn recovering_nothing_is_absent() {
    breaks(UnknownIsAbsent, I2, forgetful(Pinned, Fault::EmptyRestart));
}

#[test]
fn recovering_a_lapsed_owner_does_not_serve() {
    breaks(NotedIsHeld, I2, forgetful(Pinned, Fault::EmptyRestart));
    breaks(NotedIsHeld, I1, forgetful(Externalized, Fault::FailOver));
}

#[test]
fn recovering_tombstones_are_repeated() {
    let never = Scenario {
        buriers_speak_up: false,
        ..forgetful(Pinned, Fault::EmptyRestart)
    };
    breaks(TombstonesAreNotRepeated, I4, never);
}

#[test]
fn recovering_an_unbroken_claim_beats_a_lapsed_one() {
    breaks(
        StandingIsIgnored,
        I1,
        forgetful(Externalized, Fault::FailOver),
    );
}

#[test]
fn recovering_fences_go_on_upwards() {
    breaks(FencesFallBack, I1, forgetful(Externalized, Fault::FailOver));
}

#[test]
fn recovering_takes_as_long_as_the_longest_lease() {
    breaks(RecoversTooShort, I5, forgetful(Pinned, Fault::EmptyRestart));
}

#[test]
fn recovering_a_fail_over_is_noticed() {
    breaks(FailOverUnnoticed, I5, forgetful(Pinned, Fault::FailOver));
}

#[test]
fn recovering_no_fence_ends_what_is_not_known() {
    let idles = Scenario {
        idles: true,
        ..forgetful(Externalized, Fault::EmptyRestart)
    };
    breaks(TerminatesWhileRecovering, I3, idles);
}

#[test]
fn open_point_a_silent_burier_is_contradicted() {
    let silent = Scenario {
        buriers_speak_up: false,
        ..forgetful(Pinned, Fault::EmptyRestart)
    };
    is_broken(silent, I4);
}
