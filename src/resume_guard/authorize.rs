//! Whether a stream may be resumed: facts in, a plan or a refusal out.

use crate::{
    mcp::{RequestId, Subject},
    outbox::Cursor,
    rejection::Reason,
    session::{CapabilityHash, Epoch, Offer, Residency},
    store::{Ending, Seq, Snapshot},
};

/// Whose the session is, as far as this instance can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// This instance's, provably.
    Proven,
    /// It may be this instance's, and cannot be proven now.
    Unconfirmed,
    /// This instance does not have it.
    Unknown,
    /// Another principal's, or another instance's.
    Foreign,
}

/// What the log said of the stream, in one snapshot.
#[derive(Debug, Clone, Copy)]
pub(super) enum Logged<'a> {
    /// It is there.
    Stream(&'a Snapshot),
    /// It is not there, or not any more.
    Absent,
    /// The log did not say.
    Unknown,
}

/// Everything that an authorization looks at.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    /// What the client presented.
    pub(super) cursor: &'a Cursor,
    /// Whose the session is.
    pub(super) ownership: Ownership,
    /// Where the session's state lives.
    pub(super) residency: Residency,
    /// What the session negotiated.
    pub(super) negotiated: Option<CapabilityHash>,
    /// What this instance offers.
    pub(super) offer: Option<Offer>,
    /// This instance's epoch.
    pub(super) epoch: Epoch,
    /// Whether instances share the log.
    pub(super) shared_log: bool,
    /// What the log said.
    pub(super) log: Logged<'a>,
    /// Whether the stream's producer is here and still at work.
    pub(super) live: bool,
    /// Whether the server still waits for the answer to a question of its own.
    pub(super) waited_for: &'a dyn Fn(&RequestId) -> bool,
}

/// What to do for a client whose resume was authorized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// Replay what is missing, then go on live.
    Live {
        /// The requests that the client still waits for.
        unanswered: Vec<RequestId>,
    },
    /// Replay what is missing, then end: with an error for each request that is owed an answer.
    Replay {
        /// The requests that the client still waits for, those with an answer in the replay included.
        unanswered: Vec<RequestId>,
    },
    /// Nothing is missing, and the session's own stream is over: open a new one.
    Anew,
}

/// Why a stream cannot be resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing comes after this position.
    Over,
    /// This instance does not have the session.
    UnknownSession,
    /// The session is somebody else's.
    ForeignOwner,
    /// The events of this epoch cannot be replayed here.
    ForeignEpoch,
    /// There is no such stream, or not any more.
    UnknownStream,
    /// The position is ahead of the stream.
    FutureCursor,
    /// Events are missing, this one first.
    Gap(Seq),
    /// The log has lost requests that opened the stream.
    RequestsLost,
    /// An answer would be replayed whose request nobody knows.
    AnswerWithoutRequest(RequestId),
    /// A question would be replayed whose answer nobody waits for.
    QuestionNotAwaited(RequestId),
    /// The stream was made under another agreement than this instance can offer.
    CapabilityMismatch,
    /// What has to be known is not known at the moment.
    Unconfirmed,
}

impl Refusal {
    /// The reason that the client is told.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::UnknownSession
            | Self::ForeignOwner
            | Self::RequestsLost
            | Self::AnswerWithoutRequest(_)
            | Self::QuestionNotAwaited(_)
            | Self::CapabilityMismatch => Reason::SessionResumeRejected,
            Self::Over
            | Self::ForeignEpoch
            | Self::UnknownStream
            | Self::FutureCursor
            | Self::Gap(_) => Reason::StreamCursorUnrecoverable,
            Self::Unconfirmed => Reason::SessionUnconfirmed,
        }
    }

    /// What exactly is wrong, for people.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Over => "the stream is over, and nothing comes after this event".into(),
            Self::UnknownSession | Self::ForeignOwner => {
                "this instance cannot prove that the session is its own".into()
            }
            Self::ForeignEpoch => {
                "the event is another process's, and its stream cannot be replayed here".into()
            }
            Self::UnknownStream => "there is no such stream, or not any more".into(),
            Self::FutureCursor => "the event is ahead of the stream".into(),
            Self::Gap(first) => format!("events are missing, number {first} first"),
            Self::RequestsLost => {
                "the requests that opened the stream are not all known here".into()
            }
            Self::AnswerWithoutRequest(id) => {
                format!(
                    "the stream answers a request that it has no record of: {}",
                    id.as_json()
                )
            }
            Self::QuestionNotAwaited(id) => {
                format!(
                    "the server no longer waits for the answer to {}",
                    id.as_json()
                )
            }
            Self::CapabilityMismatch => {
                "the stream was negotiated under other capabilities than this instance offers"
                    .into()
            }
            Self::Unconfirmed => "whether the stream can be resumed could not be confirmed".into(),
        }
    }
}

/// The table. All proofs are from one snapshot, and come before the first byte.
///
/// # Errors
///
/// A [`Refusal`] when any proof is missing.
pub(super) fn authorize(facts: &Facts<'_>) -> Result<Plan, Refusal> {
    let cursor = facts.cursor;
    if cursor.terminal {
        return Err(Refusal::Over);
    }
    match facts.ownership {
        Ownership::Proven => {}
        Ownership::Unconfirmed => return Err(Refusal::Unconfirmed),
        Ownership::Unknown => return Err(Refusal::UnknownSession),
        Ownership::Foreign => return Err(Refusal::ForeignOwner),
    }
    let own = cursor.epoch == facts.epoch;
    // A session that never moves has no other producer, and a log that is not shared has none of its events.
    let replayable = facts.shared_log && facts.residency == Residency::Externalized;
    if !(own || replayable) {
        return Err(Refusal::ForeignEpoch);
    }
    let snapshot = match facts.log {
        Logged::Stream(snapshot) => snapshot,
        Logged::Absent => return Err(Refusal::UnknownStream),
        Logged::Unknown => return Err(Refusal::Unconfirmed),
    };
    let header = &snapshot.header;
    if header.key.epoch != cursor.epoch || header.key.stream != cursor.stream {
        return Err(Refusal::UnknownStream);
    }
    if cursor.seq > snapshot.head {
        return Err(Refusal::FutureCursor);
    }
    if let Some(first) = snapshot.gap {
        return Err(Refusal::Gap(first));
    }
    agreed(facts, header.capabilities, own)?;
    let answered = in_context(facts, snapshot, own)?;
    plan(facts, snapshot, &answered)
}

/// The stream's agreement is the session's, and what this instance offers.
fn agreed(facts: &Facts<'_>, stream: Option<CapabilityHash>, own: bool) -> Result<(), Refusal> {
    let (Some(stream), Some(session)) = (stream, facts.negotiated) else {
        return Err(Refusal::CapabilityMismatch);
    };
    if stream != session {
        return Err(Refusal::CapabilityMismatch);
    }
    match facts.offer {
        Some(offer) if session.matches(&offer) => Ok(()),
        Some(_) => Err(Refusal::CapabilityMismatch),
        // Whoever made the stream has offered what it was made under.
        None if own => Ok(()),
        None => Err(Refusal::Unconfirmed),
    }
}

/// What would be replayed means something here. Gives the requests that it answers.
fn in_context(
    facts: &Facts<'_>,
    snapshot: &Snapshot,
    own: bool,
) -> Result<Vec<RequestId>, Refusal> {
    if snapshot.header.requests.len() != snapshot.header.opened_by {
        return Err(Refusal::RequestsLost);
    }
    let mut answered = Vec::new();
    let mut refusal = None;
    // The position itself may name a request that the log has lost.
    if let Some(id) = &facts.cursor.pending
        && !snapshot.header.requests.contains(id)
    {
        return Err(Refusal::AnswerWithoutRequest(id.clone()));
    }
    for (_, subject) in &snapshot.subjects {
        subject.visit(&mut |part| match part {
            Subject::Answer(id) if !snapshot.header.requests.contains(id) => {
                refusal.get_or_insert(Refusal::AnswerWithoutRequest(id.clone()));
            }
            Subject::Question(id) if !own || !(facts.waited_for)(id) => {
                refusal.get_or_insert(Refusal::QuestionNotAwaited(id.clone()));
            }
            Subject::Answer(id) => answered.push(id.clone()),
            _ => {}
        });
    }
    refusal.map_or(Ok(answered), Err)
}

fn plan(facts: &Facts<'_>, snapshot: &Snapshot, answered: &[RequestId]) -> Result<Plan, Refusal> {
    let cursor = facts.cursor;
    let unanswered = unanswered(cursor, snapshot, answered);
    if facts.live {
        return Ok(Plan::Live { unanswered });
    }
    if cursor.seq < snapshot.head {
        return Ok(Plan::Replay { unanswered });
    }
    if snapshot.header.requests.is_empty() {
        return match snapshot.ending {
            // While nobody recorded the stream, anything may have been said on it.
            Some(Ending::TornDown | Ending::Failed) => Err(Refusal::Gap(snapshot.head.next())),
            _ => Ok(Plan::Anew),
        };
    }
    if unanswered.is_empty() {
        return Err(Refusal::Over);
    }
    Ok(Plan::Replay { unanswered })
}

/// The requests that a client at this position still waits for.
fn unanswered(cursor: &Cursor, snapshot: &Snapshot, answered: &[RequestId]) -> Vec<RequestId> {
    let requests = &snapshot.header.requests;
    if let [one] = &**requests
        && one.as_json().len() <= Cursor::MAX_PENDING
    {
        // The position itself says whether the answer came before it.
        return cursor
            .pending
            .iter()
            .filter(|id| *id == one)
            .cloned()
            .collect();
    }
    match snapshot.ending {
        // Some of a batch may have been answered before; an error that comes on top of an answer changes nothing.
        Some(Ending::Lost) | None => requests.to_vec(),
        // Whatever was owed was answered before such an end, by an error if need be.
        Some(_) => answered.to_vec(),
    }
}

#[cfg(test)]
mod tests;
