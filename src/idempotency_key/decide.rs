//! The verdict tables of idempotency keys, pure: what is done with a request, and what its answer means for its claim.
//!
//! The service asks again after each step that taught it something, until the verdict is a run, a replay, a pass or a
//! refusal. No call with a key ever passes, and none runs while it is unknown whether it ran before.

use crate::{rejection::Reason, store::StoreErrorKind};

/// What is known of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    pub(super) request: Request,
    /// What header and body say of the key; of a batch, what any part of it says.
    pub(super) key: Key,
    /// Whether a call without a key is refused.
    pub(super) required: bool,
    pub(super) ledger: Ledger,
    pub(super) waiting: Waiting,
}

/// What a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// No `tools/call`.
    Other,
    /// A `tools/call`.
    Call,
    /// A `tools/call` that is owed no answer.
    Notification,
    /// A `tools/call` with the id null.
    NullId,
    /// Several messages with a `tools/call` among them.
    Batch,
    /// No message, or one that could be read in two ways.
    Unreadable,
    /// Longer than is read.
    TooLarge,
    /// It did not come whole, or not in time.
    CutOff,
    /// With a content coding, so that nothing can be read.
    Coded,
    /// Not said to be JSON.
    NotJson,
}

/// What is known of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Missing,
    /// In a body that cannot be read there may be one.
    Hidden,
    Malformed,
    /// Two places name two keys.
    Differing,
    /// It is one, and there is neither a principal nor a session that it could belong to.
    Unscoped,
    Valid,
}

/// What the ledger says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ledger {
    NotAsked,
    /// The claim is this request's.
    Fresh,
    InFlight,
    /// It ran, and its outcome may be given again here.
    Completed,
    /// It ran in another session, and may have had effects there.
    CompletedElsewhere,
    /// It ran, and its outcome was too large to be kept.
    CompletedUnkept,
    Conflict,
    OutcomeUnknown,
    /// It did not say.
    Unknown(StoreErrorKind),
}

/// Whether the request may wait for the one that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Waiting {
    No,
    Yes,
    /// It has waited for as long as it may.
    Over,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    /// Pass it as it is.
    Pass,
    /// Claim the key, then decide again.
    Begin,
    /// Wait a little, then claim the key, then decide again.
    Wait,
    /// Run it.
    Run,
    /// Give the recorded outcome again.
    Replay,
    /// Refuse it, with the recorded outcome in the refusal.
    RefuseWithOutcome(Reason, &'static str),
    Refuse(Reason, &'static str),
}

/// The table of requests.
pub(super) fn decide(facts: &Facts) -> Verdict {
    match facts.request {
        Request::Other | Request::Notification => Verdict::Pass,
        Request::TooLarge => Verdict::Refuse(
            Reason::RequestTooLarge,
            "the body is longer than the guard reads",
        ),
        Request::CutOff => Verdict::Refuse(
            Reason::IdempotencyUnconfirmed,
            "the body did not arrive whole and in time, so nothing was dispatched",
        ),
        Request::Coded => malformed(
            "a key cannot be looked for in a body with a content coding; decode it outside of the guard",
        ),
        Request::NotJson => unless_keyed(facts, "a call with a key must be application/json"),
        Request::Unreadable => unless_keyed(
            facts,
            "a call with a key must be one JSON-RPC message that can be read in one way only",
        ),
        Request::NullId => unless_keyed(facts, "a call with a key must not have the id null"),
        Request::Batch => unless_keyed(facts, "a call with a key must not be in a batch"),
        Request::Call => match facts.key {
            Key::Missing | Key::Hidden if facts.required => REQUIRED,
            Key::Missing | Key::Hidden => Verdict::Pass,
            Key::Malformed => malformed(
                "a key is 1 to 255 characters of visible ASCII, as a token or a quoted string",
            ),
            Key::Differing => malformed("header and body name two keys"),
            Key::Unscoped => {
                malformed("a key belongs to a principal or a session, and the request has neither")
            }
            Key::Valid => keyed(facts),
        },
    }
}

fn unless_keyed(facts: &Facts, detail: &'static str) -> Verdict {
    match facts.key {
        Key::Missing if facts.required => REQUIRED,
        Key::Missing => Verdict::Pass,
        _ => malformed(detail),
    }
}

fn keyed(facts: &Facts) -> Verdict {
    match facts.ledger {
        Ledger::NotAsked => Verdict::Begin,
        Ledger::Fresh => Verdict::Run,
        Ledger::InFlight if facts.waiting == Waiting::Yes => Verdict::Wait,
        Ledger::InFlight => Verdict::Refuse(
            Reason::IdempotencyKeyInProgress,
            "the first request with this key is still running",
        ),
        Ledger::Completed => Verdict::Replay,
        Ledger::CompletedElsewhere => Verdict::RefuseWithOutcome(
            Reason::IdempotencyRanInOtherSession,
            "it ran once, in another session; its outcome is in data.outcome",
        ),
        Ledger::CompletedUnkept => Verdict::Refuse(
            Reason::IdempotencyOutcomeUnknown,
            "it ran once, and its outcome was too large to be kept",
        ),
        Ledger::Conflict => Verdict::Refuse(
            Reason::IdempotencyKeyConflict,
            "the key was used with another tool or other arguments",
        ),
        Ledger::OutcomeUnknown => Verdict::Refuse(
            Reason::IdempotencyOutcomeUnknown,
            "it was begun, and nobody recorded how it ended: it may have run",
        ),
        Ledger::Unknown(kind) => Verdict::Refuse(Reason::IdempotencyUnconfirmed, kind.as_str()),
    }
}

const REQUIRED: Verdict = Verdict::Refuse(
    Reason::IdempotencyKeyRequired,
    "calls on this route must carry an idempotency key",
);

fn malformed(detail: &'static str) -> Verdict {
    Verdict::Refuse(Reason::IdempotencyKeyMalformed, detail)
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ending {
    pub(super) status: Status,
    pub(super) said: Said,
}

/// How the inner service answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Status {
    Success,
    /// A status, or a refusal of another guard, that says that the request did not run.
    DidNotRun,
    /// Another client error: the service has decided.
    Refused,
    /// A server error, a redirection, or no answer at all.
    Failed,
}

/// What stood in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Said {
    /// No answer to the request; or the answer was cut off, or cannot be read.
    Nothing,
    /// Its answer.
    Answer,
    /// Its answer, or what must be it, and it is too large to be kept.
    TooLarge,
    /// That the client has to say more first.
    InputRequired,
}

/// What becomes of the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Settlement {
    /// The answer is recorded.
    Record,
    /// It is recorded that it ran.
    RecordAsRun,
    /// It did not run, or not to its end: the key is free.
    Release,
    /// It may have run.
    GiveUp,
}

/// The table of answers.
pub(super) fn settle(ending: Ending) -> Settlement {
    match (ending.status, ending.said) {
        (Status::DidNotRun, _) => Settlement::Release,
        (Status::Failed, _) | (_, Said::Nothing) => Settlement::GiveUp,
        (_, Said::InputRequired) => Settlement::Release,
        (_, Said::Answer) => Settlement::Record,
        (Status::Success, Said::TooLarge) => Settlement::RecordAsRun,
        (Status::Refused, Said::TooLarge) => Settlement::GiveUp,
    }
}

#[cfg(test)]
mod tests;
