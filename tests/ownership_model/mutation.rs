//! The ways in which the model can be made to leave a rule out.

/// One rule left out, at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Rule 1: the deadline counts from when the reply is handled.
    CountsFromTheReply,
    /// Rule 1: the owner's clock stands still while its machine is suspended.
    ClockSleeps,
    /// Rule 1: nothing is taken off the lease for a clock that runs slow.
    NoMargin,
    /// Rule 2: a lapse un-proves nothing.
    LapseUnprovesNothing,
    /// Rule 2: a lapse is noticed by the timer, but neither by a reply that is handled late nor by the directory's
    /// word.
    OnlyTheTimerNotices,
    /// Rule 3: a lapsed owner sends a heartbeat where it should claim, and believes in its table again.
    HeartbeatProves,
    /// Rule 3: a heartbeat makes a lease under whatever incarnation answers.
    HeartbeatCreates,
    /// Rule 3: the lease is extended before the table was claimed under the new incarnation.
    ExtendsBeforeClaiming,
    /// Rule 4: what is absent is registered again.
    RegistersTheAbsent,
    /// Rule 5: a 404 is said of an orphan that nobody buried.
    NotFoundWithoutBurial,
    /// Rule 5: what was an orphan a while ago is buried without looking at it again.
    BuriesWithoutComparing,
    /// Rule 6: what was an orphan a while ago is taken over without looking at its owner again.
    TakesOverWithoutComparing,
    /// Rule 6: the new owner serves without sealing what the old one may still write.
    SkipsTheSeal,
    /// Rule 6: an orphan is served as it is, without a grant.
    ServesTheOrphan,
    /// Rule 6: an owner that is proven again under another fence goes on from its own old copy of the state.
    KeepsTheOldCopy,
    /// Rule 7: an owner that ends an idle session does not say under which fence.
    TerminatesWithoutFence,
    /// Rule 8: the directory keeps a record for no longer than the idle limit.
    DirectoryDecidesIdleness,
    /// Rule 8: the owner does not ask itself whether the directory must still have the record.
    ForgetsTheLastTouch,
    /// Rule 9: the client sees the id before the session is registered.
    ShowsTheIdFirst,
    /// Rule 9: a session is opened under a lease that is not the one it was dispatched under.
    OpensAcrossALapse,
    /// Rule 10: what the directory names as one's own is adopted without a fresh grant.
    AdoptsTheNamed,
    /// Rule 10: a take-over's reply counts although the lease has lapsed since it was sent.
    AdoptsAcrossALapse,
    /// Rule 2: what one incarnation granted stays proven in the next, though no claim under that one spoke of it.
    ProofOutlivesTheIncarnation,
    /// Rule 11: the proof is not looked at again before dispatch.
    SkipsTheSecondCheck,
    /// Rule 11: what ran over a lapse is shown without a proof.
    ShowsWithoutProof,
    /// Rule 11: the inner service writes without the fence.
    WritesWithoutFence,
    /// Rule 12: the lease is ended before the table is given up.
    LeavesBeforeDisowning,
    /// Rule 13: two processes of one name are taken for one.
    ComparesNames,
    /// Recovering: what the directory may have forgotten is taken to be absent.
    UnknownIsAbsent,
    /// Recovering: a fence ends what an older grant, or none, may have been put in the place of.
    TerminatesWhileRecovering,
    /// Recovering: a lapsed owner serves at once.
    NotedIsHeld,
    /// Recovering: nobody repeats a tombstone.
    TombstonesAreNotRepeated,
    /// Recovering: a lapsed claim weighs as much as an unbroken one.
    StandingIsIgnored,
    /// Recovering: what is granted after amnesia is not above what was granted before.
    FencesFallBack,
    /// Recovering: it is over before the longest lease is.
    RecoversTooShort,
    /// Recovering: a promoted replica passes for the store that was lost.
    FailOverUnnoticed,
}
