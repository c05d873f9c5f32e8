//! The protocol on the wire, pure: bytes in, facts out.
//!
//! Nothing here reads a socket or a clock. Parsers borrow from their input, take hostile input for what it is and
//! return an error for it; none of them panics.

mod effect;
mod envelope;
mod era;
pub mod header;
mod id_finder;
mod marks;
mod reply;
mod scan;
pub mod sse;
mod subject;

pub use effect::{Effect, ToolEffects, method_effect};
pub use envelope::{Envelope, EnvelopeError, EnvelopeErrorKind, Id, Message, MessageKind};
pub use era::{Era, MODERN_SINCE, is_modern_version, may_prime};
pub(crate) use id_finder::IdFinder;
pub(crate) use marks::{Marks, Presented};
pub(crate) use reply::ReplyParts;
pub(crate) use scan::{members, plain_id};
pub(crate) use subject::{Carried, RequestIds};
pub use subject::{RequestId, Subject};
