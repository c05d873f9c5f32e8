//! One adapter for each trait that hides which back end is behind it.

use std::{fmt, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};

use super::{
    Append, Begun, Bury, Claim, ClaimReply, Ending, EventStore, Heartbeat, Held, KeyClaim, Lookup,
    Outcome, Page, Registered, RequestLedger, Seq, SessionDirectory, Snapshot, StoreError,
    StreamHeader, StreamKey, TakeOver, Terminated,
};
use crate::session::{Fence, InstanceId, SessionId, SessionTerms};

/// Each verb is written once: `ref` arguments are borrowed for as long as the boxed future lives.
macro_rules! erase {
    ($(#[$doc:meta])* $shared:ident($dyn:ident) is $trait:ident {
        $(fn $name:ident($($arg:ident: $how:ident $type:ty),*) -> $out:ty;)+
    }) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $shared(Arc<dyn $dyn>);

        impl $shared {
            /// Hides which back end it is.
            #[must_use]
            pub fn new(store: impl $trait) -> Self {
                Self(Arc::new(store))
            }
        }

        impl fmt::Debug for $shared {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($shared))
            }
        }

        trait $dyn: Send + Sync {
            $(fn $name<'a>(&'a self, $($arg: erase!(@dyn 'a $how $type)),*) -> BoxFuture<'a, Result<$out, StoreError>>;)+
        }

        impl<S: $trait> $dyn for S {
            $(fn $name<'a>(&'a self, $($arg: erase!(@dyn 'a $how $type)),*) -> BoxFuture<'a, Result<$out, StoreError>> {
                $trait::$name(self, $($arg),*).boxed()
            })+
        }

        impl $trait for $shared {
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
    SharedDirectory(DynDirectory) is SessionDirectory {
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
}

erase! {
    /// An [`EventStore`] picked at run time. Clones share the back end.
    ///
    /// Costs one boxed future a call: one for each batch of events that is ready at once.
    ///
    /// ```
    /// use mcp_session_guard::store::{MemoryStore, SharedEvents};
    ///
    /// let events = SharedEvents::new(MemoryStore::new());
    /// let same = events.clone();
    /// ```
    SharedEvents(DynEvents) is EventStore {
        fn open(header: by_ref StreamHeader) -> ();
        fn append(append: by_ref Append<'_>) -> ();
        fn end(key: by_ref StreamKey, last: by_value Seq, ending: by_value Ending) -> ();
        fn read_after(key: by_ref StreamKey, after: by_value Seq, page: by_value Page) -> Option<Snapshot>;
        fn seal(session: by_ref SessionId, below: by_value Fence) -> ();
    }
}

erase! {
    /// A [`RequestLedger`] picked at run time. Clones share the back end.
    ///
    /// Costs one boxed future a call: two for each keyed request that runs.
    ///
    /// ```
    /// use mcp_session_guard::store::{MemoryStore, SharedLedger};
    ///
    /// let ledger = SharedLedger::new(MemoryStore::new());
    /// let same = ledger.clone();
    /// ```
    SharedLedger(DynLedger) is RequestLedger {
        fn begin(claim: by_ref KeyClaim) -> Begun;
        fn renew(claim: by_ref KeyClaim) -> Held;
        fn complete(claim: by_ref KeyClaim, outcome: by_ref Outcome) -> Held;
        fn release(claim: by_ref KeyClaim) -> ();
    }
}
