//! The verdict table of the affinity guard, pure: facts in, a verdict out.
//!
//! The service asks again after each step that taught it something, until the verdict is a pass or a refusal.
//! No combination with an unknown in it ever passes.

use crate::{mcp::Era, rejection::Reason, session::Residency, store::StoreErrorKind};

/// What is known of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The session header.
    pub header: Header,
    /// Which half of MCP's history it belongs to, as far as it has been read.
    pub era: Era,
    /// What it is, as far as it has been read.
    pub request: Request,
    /// What the own table says.
    pub local: Local,
    /// What the directory says.
    pub directory: Directory,
    /// Whether the instance is retiring.
    pub retiring: bool,
    /// Whether the instance holds a lease right now.
    pub lease: bool,
    /// Whether a request without a session is refused.
    pub strict: bool,
    /// Whether a session that is proven absent may be served without a session.
    pub absent_goes_stateless: bool,
    /// Whether a request can be handed to the session's owner: there is a forwarder, the directory names the owner's
    /// address, and nobody has handed it on before.
    pub forwards: bool,
}

/// The session header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Header {
    /// There is none.
    Missing,
    /// It cannot be read as one session id.
    Malformed,
    /// It names a session.
    Valid,
}

/// What a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// A POST whose body has not been read.
    Unread,
    /// A POST whose body is longer than is read.
    TooLarge,
    /// It is, or has in it, an `initialize`.
    Initialize,
    /// Every message in it was declared self-contained by the user.
    SelfContained,
    /// Any other POST.
    Other,
    /// A GET, a DELETE, or another method: nothing in it can be read.
    Bodyless,
}

/// What the own table says of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Local {
    /// It is not in the table.
    Unknown,
    /// It is, and proven.
    Proven,
    /// It is, and proven, but for another principal.
    Foreign,
    /// It is, but the lease has lapsed since it was proven.
    Unproven,
    /// It is, but was idle past its limit or has been ended.
    Over,
}

/// What the directory says of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Directory {
    /// It was not asked.
    NotAsked,
    /// It did not say.
    Unknown(StoreErrorKind),
    /// It has the session, for another principal.
    Foreign,
    /// Another live instance owns it.
    Elsewhere,
    /// It names this instance as the owner.
    Named(Residency, Offered),
    /// Its owner's lease has lapsed.
    Orphaned(Residency, Offered),
    /// It has a tombstone.
    Terminated,
    /// It proves that there is no such session.
    Absent,
}

/// What this instance offers, against what was negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Offered {
    /// The same.
    Same,
    /// Not the same, or what was negotiated was never seen.
    Different,
    /// It is not known what this instance offers.
    Unknown,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Pass it as it is.
    Pass,
    /// Pass it without the session header.
    PassBare,
    /// Pass it as the owner.
    PassOwned,
    /// Pass it without the session header, marked stateless.
    PassStateless,
    /// Pass it without a session header, and register the session that its answer opens.
    PassOpening,
    /// Read the body, then decide again.
    ReadBody,
    /// Ask the directory, then decide again.
    AskDirectory,
    /// Take the session over, then decide again.
    TakeOver,
    /// Bury the session, then decide again.
    Bury,
    /// End the session under its own fence, then decide again.
    End,
    /// Hand it to the instance that owns the session.
    Forward,
    /// Refuse it.
    Refuse(Reason, &'static str),
}

/// The table.
#[inline]
#[must_use]
pub fn decide(facts: &Facts) -> Verdict {
    match (facts.era, facts.header) {
        // Sessions are of the legacy era; a claimed version must not carry one past the check.
        (Era::Modern, _) => match facts.request {
            Request::Unread => Verdict::ReadBody,
            _ => Verdict::PassBare,
        },
        (Era::Legacy, Header::Missing) => without_session(facts),
        (Era::Legacy, Header::Malformed) => match facts.request {
            // Read for the id that the refusal carries.
            Request::Unread => Verdict::ReadBody,
            _ => Verdict::Refuse(
                Reason::SessionMalformed,
                "the session header must hold one id of visible ASCII characters",
            ),
        },
        (Era::Legacy, Header::Valid) => with_session(facts),
    }
}

fn without_session(facts: &Facts) -> Verdict {
    match facts.request {
        Request::Unread => Verdict::ReadBody,
        Request::TooLarge => TOO_LARGE,
        Request::Initialize => opening(facts),
        _ if facts.strict => Verdict::Refuse(
            Reason::SessionRequired,
            "this route serves sessions only; begin with initialize",
        ),
        _ => Verdict::Pass,
    }
}

/// Registration comes before the client sees the id, so it must be possible before the session is opened.
fn opening(facts: &Facts) -> Verdict {
    if facts.retiring {
        return Verdict::Refuse(
            Reason::InstanceRetiring,
            "this instance takes no new sessions",
        );
    }
    if !facts.lease {
        return Verdict::Refuse(
            Reason::SessionUnconfirmed,
            "this instance holds no lease, so it cannot own a new session",
        );
    }
    Verdict::PassOpening
}

fn with_session(facts: &Facts) -> Verdict {
    match (facts.local, facts.request) {
        (Local::Proven, _) => Verdict::PassOwned,
        (_, Request::Unread) => Verdict::ReadBody,
        (_, Request::TooLarge) => TOO_LARGE,
        // A fresh start, whatever stale session it names.
        (_, Request::Initialize) => opening(facts),
        (_, Request::SelfContained) => Verdict::PassStateless,
        (Local::Over, _) if facts.directory == Directory::NotAsked => Verdict::End,
        (_, Request::Other | Request::Bodyless) => not_owned(facts, facts.directory),
    }
}

fn not_owned(facts: &Facts, directory: Directory) -> Verdict {
    let foreign = facts.local == Local::Foreign;
    let unproven = facts.local == Local::Unproven;
    match directory {
        Directory::NotAsked => Verdict::AskDirectory,
        Directory::Unknown(kind) => Verdict::Refuse(Reason::SessionUnconfirmed, kind.as_str()),
        // Told apart from an unknown session by nothing, not even by what happens when the store is down.
        _ if foreign => GONE,
        Directory::Foreign | Directory::Terminated => GONE,
        Directory::Absent
            if facts.absent_goes_stateless
                && facts.local == Local::Unknown
                && facts.request == Request::Other =>
        {
            Verdict::PassStateless
        }
        Directory::Absent => GONE,
        Directory::Elsewhere if facts.forwards => Verdict::Forward,
        Directory::Elsewhere => Verdict::Refuse(
            Reason::SessionReassigned,
            "another live instance owns the session",
        ),
        // Its own, but for the proof; only the heartbeat's claim brings that back.
        Directory::Named(..) | Directory::Orphaned(..) if unproven => UNPROVEN,
        // Named as the owner of what it does not have: a grant whose reply was lost.
        Directory::Named(Residency::Pinned, _) => Verdict::End,
        Directory::Orphaned(Residency::Pinned, _) => Verdict::Bury,
        Directory::Named(Residency::Externalized, offered)
        | Directory::Orphaned(Residency::Externalized, offered) => match offered {
            _ if facts.retiring => Verdict::Refuse(
                Reason::InstanceRetiring,
                "this instance takes no sessions over",
            ),
            _ if !facts.lease => UNPROVEN,
            Offered::Same => Verdict::TakeOver,
            Offered::Different => Verdict::Refuse(
                Reason::SessionResumeRejected,
                "this instance does not offer what the session negotiated",
            ),
            Offered::Unknown => Verdict::Refuse(
                Reason::SessionUnconfirmed,
                "it is not known yet whether this instance offers what the session negotiated",
            ),
        },
    }
}

const GONE: Verdict = Verdict::Refuse(
    Reason::SessionNotFound,
    "no such session; begin anew with initialize",
);
const UNPROVEN: Verdict = Verdict::Refuse(
    Reason::SessionUnconfirmed,
    "this instance's lease has lapsed and is being proven again",
);
const TOO_LARGE: Verdict = Verdict::Refuse(
    Reason::RequestTooLarge,
    "the body is longer than the guard reads",
);

#[cfg(test)]
mod tests;
