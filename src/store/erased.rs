//! One adapter that hides which back end is behind a directory.

use std::{fmt, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};

use super::{
    Bury, Claim, ClaimReply, Heartbeat, Lookup, Registered, SessionDirectory, StoreError, TakeOver,
    Terminated,
};
use crate::session::{Fence, InstanceId, SessionId, SessionTerms};

/// A [`SessionDirectory`] picked at run time. Clones share the back end.
///
/// Costs one boxed future a call, on a path that ends in a round trip to a store.
///
/// ```
/// use mcp_session_guard::store::{MemoryStore, SharedDirectory};
///
/// let directory = SharedDirectory::new(MemoryStore::new());
/// let same = directory.clone();
/// ```
#[derive(Clone)]
pub struct SharedDirectory(Arc<dyn DynDirectory>);

impl SharedDirectory {
    /// Hides which back end it is.
    #[must_use]
    pub fn new(directory: impl SessionDirectory) -> Self {
        Self(Arc::new(directory))
    }
}

impl fmt::Debug for SharedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedDirectory")
    }
}

/// Each verb is written once: `ref` arguments are borrowed for as long as the boxed future lives.
macro_rules! erase {
    ($(fn $name:ident($($arg:ident: $how:ident $type:ty),*) -> $out:ty;)+) => {
        trait DynDirectory: Send + Sync {
            $(fn $name<'a>(&'a self, $($arg: erase!(@dyn 'a $how $type)),*) -> BoxFuture<'a, Result<$out, StoreError>>;)+
        }

        impl<D: SessionDirectory> DynDirectory for D {
            $(fn $name<'a>(&'a self, $($arg: erase!(@dyn 'a $how $type)),*) -> BoxFuture<'a, Result<$out, StoreError>> {
                SessionDirectory::$name(self, $($arg),*).boxed()
            })+
        }

        impl SessionDirectory for SharedDirectory {
            $(async fn $name(&self, $($arg: erase!(@plain $how $type)),*) -> Result<$out, StoreError> {
                self.0.$name($($arg),*).await
            })+
        }
    };
    (@dyn $life:lifetime by_ref $type:ty) => { &$life $type };
    (@dyn $life:lifetime by_value $type:ty) => { $type };
    (@plain by_ref $type:ty) => { &$type };
    (@plain by_value $type:ty) => { $type };
}

erase! {
    fn lookup(id: by_ref SessionId) -> Lookup;
    fn register(id: by_ref SessionId, owner: by_ref InstanceId, terms: by_ref SessionTerms) -> Registered;
    fn claim(claim: by_ref Claim<'_>) -> ClaimReply;
    fn heartbeat(instance: by_ref InstanceId) -> Heartbeat;
    fn take_over(id: by_ref SessionId, seen: by_value Fence, by: by_ref InstanceId) -> TakeOver;
    fn bury(id: by_ref SessionId, seen: by_value Fence) -> Bury;
    fn touch(owner: by_ref InstanceId, ids: by_ref [SessionId]) -> Vec<SessionId>;
    fn terminate(id: by_ref SessionId, fence: by_value Option<Fence>) -> Terminated;
    fn leave(instance: by_ref InstanceId) -> ();
}
