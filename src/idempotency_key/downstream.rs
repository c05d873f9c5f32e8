//! What the inner service is told of a call with a key.

use http::{Extensions, Request};

use super::fingerprint::downstream;
use crate::store::{KeyClaim, RequestKey};

/// A key that a tool can give to what it calls in turn, and the number of the attempt, in the request's extensions.
///
/// Present on every call that runs under a key. It is the same in each attempt of one call, and another one for every
/// other call, so that a payment service for instance, which is asked again after a crash, recognises what it has done
/// already. It says nothing of the client's key.
///
/// rmcp hands a request's head to its handlers: `context.extensions.get::<http::request::Parts>()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DownstreamKey {
    claimed: RequestKey,
    attempt: u32,
}

impl DownstreamKey {
    pub(super) fn new(claim: &KeyClaim) -> Self {
        Self {
            claimed: claim.key,
            attempt: claim.attempt,
        }
    }

    /// The key of a request, if it runs under one.
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        Self::of_extensions(request.extensions())
    }

    /// As [`of`](Self::of), for the extensions of a request.
    #[must_use]
    pub fn of_extensions(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }

    /// The key: 32 hexadecimal digits.
    #[must_use]
    pub fn key(&self) -> String {
        downstream(&self.claimed)
    }

    /// How often the call was begun, this time included. Above 1, an earlier attempt may have come to any point.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}
