//! Layer 2: new work for a session is admitted by how far its streams drain, never by whether the session exists.

mod account;
mod accounts;
mod after;
mod attached;
mod body;
mod carrier;
mod ender;
mod figures;
mod future;
mod key;
mod layer;
mod probe;
mod pump;
mod queue;
mod service;
mod slow;
mod sync;
mod ticket;
mod watchdog;

pub use body::{BoxError, ResponseBody, TornDown};
pub use figures::{Figures, Stalled};
pub use future::ResponseFuture;
pub use layer::DrainCreditLayer;
pub use service::DrainCredit;
