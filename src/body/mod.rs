//! Bodies that the layers have looked into, and hand on as if they had not.

mod read;
mod replay;

pub(crate) use read::{Finding, ReadBody, read};
pub use replay::Replay;
