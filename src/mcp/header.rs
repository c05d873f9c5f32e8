//! Names of the headers that the layers read and write.

use http::HeaderName;

/// `Mcp-Session-Id`, MCP 2025-03-26 to 2025-11-25.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// `MCP-Protocol-Version`, MCP 2025-06-18 and later.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `Mcp-Method`, MCP 2026-07-28: the JSON-RPC method, on every POST.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// `Last-Event-ID`: where a client that comes back left off.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Carries the [`Reason`](crate::rejection::Reason) of a refusal, for edges and dashboards.
pub const REASON: HeaderName = HeaderName::from_static("mcp-guard-reason");
/// Carries the name of the owner of a session that was reassigned, when the layer is told to say it.
pub const OWNER: HeaderName = HeaderName::from_static("mcp-guard-owner");
/// On a request that one instance has handed to another, which must not hand it on again.
pub const FORWARDED: HeaderName = HeaderName::from_static("mcp-guard-forwarded");
/// `Idempotency-Key`: what makes a retry recognisable as one (draft-ietf-httpapi-idempotency-key-header).
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer was not made for this request, but is the one that an earlier request with its key got.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
