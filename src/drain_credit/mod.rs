//! Layer 2: new work for a session is admitted by how far its streams drain, never by whether the session exists.
//!
//! A client can stop reading and go on calling: a tab that is throttled, a proxy that buffers, a full receive window. Its
//! session is alive by every other measure, and each call adds to a queue that nobody empties. The queue grows until
//! handlers wait for it, gateways give their requests up and send them again, and tools run twice. The instance never
//! fails; it degrades.
//!
//! This layer gives each session *credit*, in messages and bytes. An admitted request takes a place until its answer has
//! drained; what is deliverable and not taken takes one too. A session that has used its credit up and stands still is
//! refused, before anything runs: 429 `stream_half_open`, with `Retry-After`. It costs itself, and nobody else.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use mcp_session_guard::drain_credit::DrainCreditLayer;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mcp = service_fn(|_request| async {
//!     let mut response = Response::new(Full::new(Bytes::from_static(b"data: {}\n\n")));
//!     let kind = "text/event-stream".parse().expect("a value");
//!     response.headers_mut().insert("content-type", kind);
//!     Ok::<_, Infallible>(response)
//! });
//! // One message, and nothing beyond.
//! let layer = DrainCreditLayer::new().with_credit(1, 1024).with_high_water(1);
//! let service = layer.layer(mcp);
//!
//! let call = || {
//!     let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}"#;
//!     Request::post("/mcp")
//!         .header("mcp-session-id", "1868a90c")
//!         .body(Full::new(Bytes::from_static(call.as_bytes())))
//! };
//! let unread = service.clone().oneshot(call()?).await?;
//! assert_eq!(unread.status(), 200);
//!
//! let refused = service.clone().oneshot(call()?).await?;
//! assert_eq!(refused.status(), 429);
//! assert_eq!(refused.headers()["mcp-guard-reason"], "stream_half_open");
//!
//! drop(unread);
//! assert_eq!(service.oneshot(call()?).await?.status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! # Who is refused
//!
//! | what is outstanding | a request that expects an answer |
//! | --- | --- |
//! | less than the credit | admitted, whatever the load and however slow the client |
//! | the credit or more, and a stream has stood still for the drain window | refused |
//! | the credit or more, and everything moves | admitted |
//! | the high-water mark | refused, and the inner streams are no longer pulled |
//!
//! Nothing else is ever refused: not `initialize`, notifications, the client's own answers, `resources/unsubscribe`,
//! `logging/setLevel`, GET and DELETE, nor requests of the era without sessions (2026-07-28). A refused request is not
//! queued, so nothing is reordered. While a session is far from its credit a request's body is not read, and the whole of
//! a batch counts as one; within a quarter of it each request counts.
//!
//! A comment is no progress and costs no credit, nor does an event without data. A tool that is silent is never
//! half-open, and neither is a client that waits for a slow store. A busy stream does not hide a stuck one.
//!
//! # What is torn down
//!
//! A stream that stands still with something undrained beyond its liveness allowance is given up: its inner stream is
//! dropped, its credit comes back, and the requests it owes are answered by an error, if their ids are known and the
//! client ever reads again; else it is cut. If all streams of the session stand still, the session itself is ended: at the
//! inner service, by a DELETE, and with [`with_instance`](DrainCreditLayer::with_instance) in the directory. What is seen
//! on HTTP/2 is never held against a session: on a connection that is shared, another stream may be in the way.
//!
//! A client that leaves costs nothing from that moment on. Around a
//! [`ResumeGuardLayer`](crate::resume_guard::ResumeGuardLayer) its run goes on, holds its place until it ends, and can be
//! resumed; alone this layer drops the inner stream.
//!
//! # What can be seen
//!
//! A body is asked for more when there is room on its connection; that is all that a layer can know of the wire.
//!
//! | the way to the client | what it swallows before anything looks undrained | what helps |
//! | --- | --- | --- |
//! | HTTP/1 | what the kernel and the HTTP server buffer: megabytes on a fast network | [`socket_options`](DrainCreditLayer), and a small buffer of the HTTP server |
//! | HTTP/2 | the window of the stream | nothing is needed |
//! | a proxy that buffers | as much as it likes | [`with_proof_of_arrival`](DrainCreditLayer::with_proof_of_arrival) |
//!
//! An HTTP server does not notice that a body has ended while its socket is blocked, so a connection whose stream was torn
//! down stays until the kernel gives it up: set `TCP_USER_TIMEOUT`, as `socket_options` does.
//!
//! # Where it belongs
//!
//! Outside of a [`ResumeGuardLayer`](crate::resume_guard::ResumeGuardLayer), whose streams it keeps account of where they
//! are, and inside of an [`AffinityGuardLayer`](crate::affinity_guard::AffinityGuardLayer). Each is of use without the
//! others; this one needs no [`Instance`](crate::instance::Instance). Tearing down needs a Tokio runtime.

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
#[cfg(test)]
mod races;
mod service;
mod slow;
#[cfg(all(feature = "sockets", unix))]
mod sockets;
mod sync;
mod ticket;
mod watchdog;

pub use body::{BoxError, ResponseBody, TornDown};
pub use figures::{Figures, Stalled};
pub use future::ResponseFuture;
pub use layer::DrainCreditLayer;
pub use service::DrainCredit;
#[cfg(all(feature = "sockets", unix))]
#[cfg_attr(docsrs, doc(cfg(feature = "sockets")))]
pub use sockets::SocketOptions;
