//! Layer 4: one key runs a tool once; a retry gets the first outcome, or the truth that it is not known.
//!
//! A gateway times out and sends a call again; a client loses its connection and does not know whether its call ran; two
//! instances get the same call at the same moment. For a tool that moves money each of these is a second payment, and
//! each of them is a well-formed 200.
//!
//! A client that puts a key on its `tools/call` makes the retry recognisable. This layer claims the key in a
//! [`RequestLedger`](crate::store::RequestLedger) that all instances share before anything is dispatched, records the
//! answer before it is let out, and gives every later request with that key the same answer.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::{BodyExt, Full};
//! use mcp_session_guard::{idempotency_key::IdempotencyKeyLayer, store::MemoryStore};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pay = service_fn(|_request| async {
//!     let answer = Full::new(Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"paid":5}}"#));
//!     Ok::<_, Infallible>(Response::builder().header("content-type", "application/json").body(answer).unwrap())
//! });
//! let once = IdempotencyKeyLayer::new(MemoryStore::new()).layer(pay);
//!
//! let call = |id: u64| {
//!     Request::post("/mcp")
//!         .header("content-type", "application/json")
//!         .header("mcp-session-id", "s-1")
//!         .header("idempotency-key", "order-4711")
//!         .body(Full::<Bytes>::from(format!(
//!             r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"pay"}}}}"#
//!         )))
//! };
//! once.clone().oneshot(call(1)?).await?;
//! let again = once.oneshot(call(2)?).await?;
//! assert_eq!(again.headers()["idempotency-replayed"], "true");
//! let text = again.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
//! assert_eq!(text, r#"{"jsonrpc":"2.0","id":2,"result":{"paid":5}}"#);
//! # Ok(())
//! # }
//! ```
//!
//! # The key
//!
//! 1 to 255 characters of ASCII, in the header `Idempotency-Key` (a quoted string, as
//! draft-ietf-httpapi-idempotency-key-header has it, or a bare token), in `params._meta` as
//! `mcp-session-guard/idempotencyKey`, or in `params.idempotencyKey` (SEP-3182). It belongs to the principal that
//! [`with_principal`](IdempotencyKeyLayer::with_principal) names, or else to the session. It counts on `tools/call`
//! requests and is ignored elsewhere; in a batch it is refused.
//!
//! A retry must ask the same: the tool, the arguments and every other parameter but `_meta` and the key. Numbers are
//! compared as they are written.
//!
//! # What a retry is told
//!
//! | the first one | the answer |
//! | --- | --- |
//! | ran | its outcome under the new request's id, with `Idempotency-Replayed: true` |
//! | runs | 409 `idempotency_key_in_progress`, or, with [`waiting`](IdempotencyKeyLayer::waiting), the outcome when it is there |
//! | ran in another session | 409 `idempotency_ran_in_other_session`, the outcome in `data.outcome` |
//! | asked something else | 422 `idempotency_key_conflict` |
//! | was begun, and nobody knows how it ended | 409 `idempotency_outcome_unknown`; a tool that may run twice runs again |
//! | did not run: the service refused it | it runs |
//! | cannot be known: the ledger is down, or lost its memory | 503 `idempotency_unconfirmed` |
//!
//! # What it changes
//!
//! - In the eras that have sessions a call with a key runs on when its client leaves, and its outcome waits for the
//!   retry. In the era without them (2026-07-28) a disconnect is a cancellation, and the outcome is unknown, unless
//!   [`detach_modern`](IdempotencyKeyLayer::detach_modern) is chosen.
//! - The final message of an answer is held until the ledger has it, for at most the store deadline. Whatever else a
//!   stream says passes as it comes, and is not recorded here.
//! - A round of a call that asks the client for more (`input_required`) leaves its key free; each later round
//!   (`requestState`, `inputResponses`) is a call of its own under the same key.
//! - The service finds a [`DownstreamKey`] in the request's extensions, and no `Accept-Encoding` among its headers.
//! - POSTs with a content coding are refused: decode them outside. So are those whose body does not arrive whole and in
//!   time, with a key or without, since nobody knows whether there was to be one.
//! - An answer that the service breaks off to be asked for again (SEP-1699) is not followed: its outcome stays unknown,
//!   though its client gets it.
//!
//! # Where it belongs
//!
//! Directly around the MCP service, inside whatever authenticates and inside the other guards.

mod answer;
mod asking;
mod body;
mod canonical;
mod claim;
mod claims;
mod decide;
mod downstream;
mod fingerprint;
mod future;
mod key;
mod layer;
mod recording;
mod request;
mod run;
mod service;

pub use body::{BoxError, ResponseBody};
pub use downstream::DownstreamKey;
pub use future::ResponseFuture;
pub use layer::IdempotencyKeyLayer;
pub use service::IdempotencyKey;
