//! What the guard tells the inner service about a request.

use http::Request;

use crate::session::Fence;

/// How a request came to pass, in the request's extensions.
///
/// Present on every request of an [`Externalized`](crate::session::Residency::Externalized) session and on
/// whatever passes as [`Stateless`](Self::Stateless). A request of a pinned session carries none: its state is in
/// this process only, so there is no write that a fence could protect, and an extension would cost the hot path
/// an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Disposition {
    /// This instance owns the session under this fence. Make writes to shared state conditional on it.
    Owned {
        /// The grant.
        fence: Fence,
    },
    /// This instance has just taken the session over: rehydrate it, drop any older copy first. Exactly one
    /// request at a time is marked so, until one of them succeeds.
    Rehydrate {
        /// The grant.
        fence: Fence,
    },
    /// There is no session behind this request, and its session header was removed.
    Stateless,
}

impl Disposition {
    /// The disposition of a request, if it has one.
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        request.extensions().get().copied()
    }

    /// The fence, unless it is stateless.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        match self {
            Self::Owned { fence } | Self::Rehydrate { fence } => Some(*fence),
            Self::Stateless => None,
        }
    }
}
