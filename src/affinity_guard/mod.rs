//! Layer 1: a session's request is answered only by an instance that can prove it owns the session, or that the
//! session is gone everywhere.
//!
//! Behind a load balancer a request can land on an instance that never saw its session. Most servers then answer
//! from a fresh and empty one, or say 404 of a session that is alive elsewhere. This layer does neither: it serves
//! what it provably owns, says 404 only of what is provably gone, and refuses the rest with a
//! [`Reason`](crate::rejection::Reason) that the client can act on.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response, StatusCode};
//! use http_body_util::Full;
//! use mcp_session_guard::{
//!     affinity_guard::AffinityGuardLayer, instance::Instance, store::MemoryStore,
//! };
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let instance = Instance::builder("pod-7").join(MemoryStore::new())?;
//! instance.ready().await;
//!
//! // Any MCP service: rmcp's `StreamableHttpService`, an axum router, a proxy.
//! let mcp = service_fn(|_request| async {
//!     Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}"))))
//! });
//! let guarded = AffinityGuardLayer::new(instance).layer(mcp);
//!
//! let request = Request::get("/mcp")
//!     .header("mcp-session-id", "opened-by-nobody")
//!     .body(Full::<Bytes>::default())?;
//! let response = guarded.oneshot(request).await?;
//! assert_eq!(response.status(), StatusCode::NOT_FOUND);
//! assert_eq!(response.headers()["mcp-guard-reason"], "session_not_found");
//! # Ok(())
//! # }
//! ```
//!
//! # What it costs
//!
//! A request at its owner: two header look-ups, one look in the instance's own table, and the lease's deadline. No
//! store, no allocation, no body.
//!
//! # Where it belongs
//!
//! Outermost of the four layers, inside whatever authenticates (the principal must be known) and inside CORS.
//! `initialize` is registered before its answer is let out, so nothing between this layer and the MCP service may
//! change `Mcp-Session-Id`.

mod after;
mod answer;
mod body;
#[cfg(not(feature = "test-util"))]
#[allow(unreachable_pub, reason = "public for the model that explores it")]
mod decide;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod decide;
mod disposition;
mod forward;
mod future;
mod hand_over;
#[cfg(feature = "forward")]
mod http_forwarder;
mod layer;
mod opening;
mod passing;
mod resume;
mod route_token;
mod service;
mod slow;
mod steps;
mod switch;

pub use body::{BoxError, ResponseBody, SessionLost};
pub use disposition::Disposition;
pub use forward::{Forward, ForwardBody, ForwardError, ForwardErrorKind};
pub use future::ResponseFuture;
#[cfg(feature = "forward")]
#[cfg_attr(docsrs, doc(cfg(feature = "forward")))]
pub use http_forwarder::HttpForwarder;
pub use layer::{AffinityGuardLayer, SelfContained};
pub use route_token::{InvalidRouteToken, RouteToken};
pub use service::AffinityGuard;
pub use switch::Switch;

pub use crate::session::Head;
