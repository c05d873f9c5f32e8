//! Tower layers that keep MCP Streamable HTTP sessions truthful when a server runs on more than one instance.
//!
//! An MCP client calls `initialize`, gets an `Mcp-Session-Id` and goes on with it. On one process that works. On
//! several behind a load balancer it fails *silently*: a request lands on an instance that never saw the session
//! and is answered 200 from a fresh, empty one. The layers of this crate stand in front of any MCP service and
//! refuse what would break an invariant, each refusal truthful, explicit and machine-readable.
//!
//! One sentence runs through all of it: **unknown is never treated as absent.** A time-out, an expired lease, a lost
//! record, an unreachable store: each is *unknown*, and unknown is refused.
//!
//! ```
//! use axum::Router;
//! use mcp_session_guard::{instance::Instance, stack::SessionGuardLayer, store::MemoryStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mcp = tower::service_fn(|_: axum::extract::Request| async {
//! #     Ok::<_, std::convert::Infallible>(axum::response::Response::<axum::body::Body>::default())
//! # });
//! let store = MemoryStore::new();
//! let instance = Instance::builder("pod-7").join(store.clone())?;
//! let guarded: Router = Router::new()
//!     .route_service("/mcp", mcp)
//!     .layer(SessionGuardLayer::new(&instance, store));
//! # Ok(())
//! # }
//! ```
//!
//! # Where things are
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`affinity_guard`] | the layer that proves who owns a session before it is served, and its verdict table |
//! | [`drain_credit`] | the layer that admits work by how far a session's streams drain, and its account |
//! | [`resume_guard`] | the layer that replays a stream only when that is proven, and its table |
//! | [`idempotency_key`] | the layer that runs a tool once for a key, and gives a retry the first outcome |
//! | [`stack`] | all layers on one store and one instance, in their order |
//! | [`outbox`] | what stands between an inner stream and the wire: numbers, records, delivers |
//! | [`instance`] | this process among its peers: epoch, lease, own table, readiness, the planned end |
//! | [`store`] | the [`SessionDirectory`](store::SessionDirectory), the [`EventStore`](store::EventStore) and the [`RequestLedger`](store::RequestLedger) that instances share, their contracts and back ends |
//! | [`session`] | what a session is: id, owner, fence, what was negotiated, for whom |
//! | [`mcp`] | the protocol on the wire, pure: era, JSON-RPC envelope, effects, server-sent events, header names |
//! | [`rejection`] | how a layer says no: reason, status, JSON-RPC error |
//! | [`body`] | bodies that were looked into and are handed on as if they had not been |
//! | [`clock`] | the suspend-proof clock that leases are counted on |
//!
//! # Stacking order
//!
//! Outermost first: tracing, CORS and compression; whatever authenticates; the affinity guard; the drain layer; the
//! resume guard; idempotency keys; the MCP service. The affinity guard reads `Mcp-Session-Id` as the client sent it and registers it as the service minted it, so
//! nothing between the two may change it.
//!
//! # Features
//!
//! - `forward`: a forwarder that hands requests to the session's owner over HTTP.
//! - `redis`: the stores on Redis and Valkey; with `redis-sentinel` and `redis-cluster`, on what a Sentinel names and on a
//!   cluster.
//! - `sockets`: options of accepted sockets that go by the drain layer's liveness rule; on Unix.
//! - `test-util`: the contract suites that a back end of your own runs, and what tests need to make the embedded
//!   store lose its memory.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod affinity_guard;
pub mod body;
pub mod clock;
pub mod drain_credit;
pub mod idempotency_key;
pub mod instance;
pub mod mcp;
pub mod outbox;
pub mod rejection;
pub mod resume_guard;
pub mod session;
pub mod stack;
pub mod store;
