//! The lock that an account is kept under; another one where every interleaving is tried.

#[cfg(shuttle)]
pub(super) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub(super) use std::sync::{Mutex, MutexGuard};

pub(super) use std::sync::PoisonError;
