//! Layer 3: a stream is resumed only when ownership, an unbroken log and the request behind it are all proven;
//! otherwise it is refused out loud.
//!
//! A client that lost its connection comes back with `Last-Event-ID`. On several instances the easy answers are all
//! wrong: starting anew from what is said next loses events, starting from the beginning repeats them, another
//! instance's numbers mean something else here, and a shared log replays answers to requests that nobody here has
//! heard of. Each of them is a well-formed 200.
//!
//! This layer numbers what the inner service says, records it before it is sent, and replays it when it can prove,
//! from one snapshot of the log and before the first byte, that
//!
//! 1. the session is this instance's,
//! 2. every event from the client's position to the head is there,
//! 3. every answer in it has its request in the same log, and every question in it is still waited for,
//! 4. the stream was made under the agreement that the session has, and that this instance offers.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::{BodyExt, Full};
//! use mcp_session_guard::{
//!     affinity_guard::AffinityGuardLayer, instance::Instance, resume_guard::ResumeGuardLayer,
//!     store::MemoryStore,
//! };
//! use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let instance = Instance::builder("pod-7").join(store.clone())?;
//! instance.ready().await;
//!
//! let mcp = service_fn(|_request| async {
//!     Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}"))))
//! });
//! let guarded = ServiceBuilder::new()
//!     .layer(AffinityGuardLayer::new(instance.clone()))
//!     .layer(ResumeGuardLayer::new(instance, store))
//!     .service(mcp);
//!
//! let resume = Request::get("/mcp")
//!     .header("last-event-id", "41")
//!     .body(Full::<Bytes>::default())?;
//! let response = guarded.oneshot(resume).await?;
//! assert_eq!(response.status(), 400);
//! assert_eq!(response.headers()["mcp-guard-reason"], "session_required");
//! # Ok(())
//! # }
//! ```
//!
//! # Where it belongs
//!
//! Inside [`AffinityGuardLayer`](crate::affinity_guard::AffinityGuardLayer) of the same [`Instance`](crate::instance::Instance), which registers the sessions, and
//! directly around the MCP service. Compression goes outside: a compressed stream of the inner service passes as it is.
//!
//! # What it changes
//!
//! - Event ids are the guard's own [`Cursor`](crate::outbox::Cursor)s. The inner service never sees a client's
//!   `Last-Event-ID`, and its ids never reach a client.
//! - The first byte comes at once: a priming event where the client's revision has it (2025-11-25), a comment else.
//! - A client that leaves is no cancellation: its streams are recorded for the resume window.
//! - A session has one stream of its own. Whoever asks for it last has it; who had it before is told not to come back.
//! - A stream that owes an answer ends with the answer or with an error, whatever happens to its producer.
//! - Requests of the era without sessions (2026-07-28) pass untouched, and dropping their bodies drops the inner ones.

mod answer;
mod authorize;
mod body;
mod carry;
mod future;
mod layer;
mod resume;
mod service;
mod streams;

pub use body::{BoxError, ResponseBody};
pub use future::ResponseFuture;
pub use layer::{LogReach, ResumeGuardLayer};
pub use service::ResumeGuard;
