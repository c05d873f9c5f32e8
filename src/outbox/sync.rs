//! The lock that a stream's two sides meet on; another one where every interleaving of them is tried.

#[cfg(shuttle)]
pub(super) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub(super) use std::sync::{Mutex, MutexGuard};

pub(super) use std::sync::PoisonError;
