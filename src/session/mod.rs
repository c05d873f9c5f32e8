//! What a session is: its id, its owner, the fence it is served under, what was negotiated, and for whom.
//!
//! Everything here is a plain value. Nothing reads a clock, a store or a socket.

mod capability;
mod fence;
mod id;
mod owner;
mod principal;
mod record;

pub use capability::{CapabilityError, CapabilityHash, Offer};
pub use fence::{Fence, Incarnation};
pub use id::{SessionId, SessionIdError, SessionIdErrorKind};
pub use owner::{Epoch, InstanceId};
pub(crate) use principal::PrincipalOf;
pub use principal::{Head, Principal};
pub use record::{Residency, SessionRecord, SessionTerms};
