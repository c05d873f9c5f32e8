//! How a layer says no: a reason, its status, and a JSON-RPC error that the client can act on.
//!
//! A refusal is always an `Ok` response and never a service error. Its body is a JSON-RPC error with the
//! request's own id (a batch: one error for each request), a positive `code` (MCP's SDKs overload the reserved
//! range), and
//!
//! ```json
//! {"reason": "session_reassigned", "retryable": true, "action": "reroute", "detail": "…"}
//! ```
//!
//! as `data`. The header `mcp-guard-reason` and the [`Reason`] in the response's extensions say the same to edges
//! and to outer layers.

use std::{borrow::Cow, fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::mcp::{Envelope, RequestId, header::REASON};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:ident, $code:literal, $action:ident, $message:literal;)+) => {
        /// Why a request was refused. The text, status and code of each are a contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $name,)+
        }

        impl Reason {
            /// Every reason, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The reason as clients, edges and dashboards see it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The HTTP status of [`RefusalStyle::Status`].
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }

            /// The JSON-RPC error code.
            #[must_use]
            pub const fn code(self) -> u32 {
                match self { $(Self::$name => $code,)+ }
            }

            /// What the client should do.
            #[must_use]
            pub const fn action(self) -> Action {
                match self { $(Self::$name => Action::$action,)+ }
            }

            const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)+ }
            }
        }
    };
}

reasons! {
    /// The session header cannot be read as one session id.
    SessionMalformed = "session_malformed", BAD_REQUEST, 40001, GiveUp, "The session id is malformed";
    /// The route demands a session and the request names none.
    SessionRequired = "session_required", BAD_REQUEST, 40002, Reinitialize, "A session id is required";
    /// The session is gone everywhere, and the request did not run.
    SessionNotFound = "session_not_found", NOT_FOUND, 40401, Reinitialize, "The session does not exist";
    /// Another live instance owns the session.
    SessionReassigned = "session_reassigned", CONFLICT, 40901, Reroute, "The session belongs to another instance";
    /// The session cannot be carried on here: what it negotiated is not what this instance offers.
    SessionResumeRejected = "session_resume_rejected", CONFLICT, 40902, Reinitialize, "The session cannot be carried on here";
    /// The stream cannot be resumed from this position: events are missing, or the position is nobody's here.
    StreamCursorUnrecoverable = "stream_cursor_unrecoverable", CONFLICT, 40903, Reinitialize, "The stream cannot be resumed from here";
    /// Whether this instance owns the session, or whether it exists, could not be confirmed in time.
    SessionUnconfirmed = "session_unconfirmed", SERVICE_UNAVAILABLE, 50301, Retry, "The session could not be confirmed";
    /// This instance takes no new sessions any more.
    InstanceRetiring = "instance_retiring", SERVICE_UNAVAILABLE, 50302, Retry, "The instance is retiring";
    /// The request was dispatched, and then ownership could no longer be proven: it may have run.
    OutcomeUnknown = "outcome_unknown", SERVICE_UNAVAILABLE, 50303, GiveUp, "The outcome of the request is unknown";
    /// The session's streams do not drain, and its credit is used up. The request did not run.
    StreamHalfOpen = "stream_half_open", TOO_MANY_REQUESTS, 42901, Retry, "The session's streams do not drain";
    /// The idempotency key cannot be read as one key, or does not belong where it is.
    IdempotencyKeyMalformed = "idempotency_key_malformed", BAD_REQUEST, 40003, GiveUp, "The idempotency key is malformed";
    /// The route demands an idempotency key for calls and the call has none.
    IdempotencyKeyRequired = "idempotency_key_required", BAD_REQUEST, 40004, GiveUp, "An idempotency key is required";
    /// The first request with this key is still running.
    IdempotencyKeyInProgress = "idempotency_key_in_progress", CONFLICT, 40904, Retry, "A request with this key is in progress";
    /// A request with this key may have run, and what came of it is not known.
    IdempotencyOutcomeUnknown = "idempotency_outcome_unknown", CONFLICT, 40905, GiveUp, "The outcome of this key is unknown";
    /// The request with this key ran in another session, which may have had effects there.
    IdempotencyRanInOtherSession = "idempotency_ran_in_other_session", CONFLICT, 40906, GiveUp, "The request with this key ran in another session";
    /// The key was used for another request.
    IdempotencyKeyConflict = "idempotency_key_conflict", UNPROCESSABLE_ENTITY, 42201, GiveUp, "The key was used for another request";
    /// Whether a request with this key ran could not be confirmed, so nothing was dispatched.
    IdempotencyUnconfirmed = "idempotency_unconfirmed", SERVICE_UNAVAILABLE, 50304, Retry, "The idempotency key could not be confirmed";
    /// The body is longer than the guard reads.
    RequestTooLarge = "request_too_large", PAYLOAD_TOO_LARGE, 41301, GiveUp, "The request is too large";
}

impl Reason {
    /// Whether the same request may succeed when it is sent again, without any risk that it runs twice.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self.action(), Action::Retry | Action::Reroute)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a refused client should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// Start anew with `initialize` and without a session id.
    Reinitialize,
    /// Send the same request again, after a while.
    Retry,
    /// Send the same request again, to the instance that owns the session.
    Reroute,
    /// Do not send it again.
    GiveUp,
}

/// How a refused POST is answered.
///
/// GET and DELETE, notifications and client responses are refused by status in both styles: nobody waits for a
/// JSON-RPC answer to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RefusalStyle {
    /// The status of [`Reason::status`]. Edges, dashboards and most clients can act on it.
    #[default]
    Status,
    /// Status 200 with the same body: the one form that every measured client survives.
    InBand,
}

/// A refusal in the making.
#[derive(Debug, Clone)]
pub struct Rejection {
    reason: Reason,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
    style: RefusalStyle,
    outcome: Option<Box<RawValue>>,
}

impl Rejection {
    /// A refusal for this reason, by status.
    #[must_use]
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason,
            detail: detail.into(),
            retry_after: matches!(reason.action(), Action::Retry).then_some(Duration::from_secs(1)),
            style: RefusalStyle::Status,
            outcome: None,
        }
    }

    /// Says in `data.outcome` what came of the request where it ran.
    pub(crate) fn with_outcome(mut self, outcome: Option<Box<RawValue>>) -> Self {
        self.outcome = outcome;
        self
    }

    /// Sets the style.
    #[must_use]
    pub fn with_style(mut self, style: RefusalStyle) -> Self {
        self.style = style;
        self
    }

    /// Says after which time to try again, in whole seconds, one at least. Default: one second for what is to be retried.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The answer to a message with a body: the envelope that was refused, or `None` if it could not be read.
    #[must_use]
    pub fn answer(&self, refused: Option<&Envelope<'_>>) -> Response<Bytes> {
        let messages = refused.map(Envelope::messages).unwrap_or_default();
        let ids: Vec<_> = messages
            .iter()
            .filter_map(|message| Some(message.request_id()?.as_raw()))
            .collect();
        self.answer_ids(&ids, refused.is_some_and(Envelope::is_batch))
    }

    /// The answer to a request of which at most the id is known.
    pub(crate) fn answer_id(&self, id: Option<&RequestId>) -> Response<Bytes> {
        let id = id.and_then(|id| RawValue::from_string(id.as_json().to_owned()).ok());
        match &id {
            Some(id) => self.answer_ids(&[id], false),
            None => self.answer_ids(&[], false),
        }
    }

    /// The answer to requests of which only the ids are known.
    pub(crate) fn answer_ids(&self, ids: &[&RawValue], batch: bool) -> Response<Bytes> {
        let in_band = self.style == RefusalStyle::InBand && !ids.is_empty();
        // A 404 with an id would fail the one call in some clients and keep the dead session in use.
        let named = in_band || self.reason.status() != StatusCode::NOT_FOUND;
        let mut errors = ids.iter().map(|id| self.error(named.then_some(*id)));
        let body = if batch && !ids.is_empty() {
            to_json(&errors.collect::<Vec<_>>())
        } else {
            to_json(&errors.next().unwrap_or_else(|| self.error(None)))
        };
        let status = if in_band {
            StatusCode::OK
        } else {
            self.reason.status()
        };
        self.respond(status, body)
    }

    /// The error as a message of its own, for a stream.
    pub(crate) fn message(&self, id: Option<&RequestId>) -> Bytes {
        let id = id.and_then(|id| RawValue::from_string(id.as_json().to_owned()).ok());
        to_json(&self.error(id.as_deref()))
    }

    fn respond(&self, status: StatusCode, body: Bytes) -> Response<Bytes> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response.extensions_mut().insert(self.reason);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(REASON, HeaderValue::from_static(self.reason.as_str()));
        if let Some(wait) = self.retry_after {
            // Delta seconds, rounded up: RFC 9110, section 10.2.3.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response
    }

    fn error<'a>(&'a self, id: Option<&'a RawValue>) -> JsonRpcError<'a> {
        JsonRpcError {
            jsonrpc: "2.0",
            id,
            error: ErrorObject {
                code: self.reason.code(),
                message: self.reason.message(),
                data: ErrorData {
                    reason: self.reason.as_str(),
                    retryable: self.reason.is_retryable(),
                    action: self.reason.action(),
                    detail: &self.detail,
                    outcome: self.outcome.as_deref(),
                },
            },
        }
    }
}

#[derive(Serialize)]
struct JsonRpcError<'a> {
    jsonrpc: &'static str,
    id: Option<&'a RawValue>,
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: u32,
    message: &'static str,
    data: ErrorData<'a>,
}

#[derive(Serialize)]
struct ErrorData<'a> {
    reason: &'static str,
    retryable: bool,
    action: Action,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a RawValue>,
}

fn to_json(value: &impl Serialize) -> Bytes {
    // Strings, numbers and JSON that was parsed before: nothing here can fail to be written.
    serde_json::to_vec(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(reason: Reason, style: RefusalStyle, body: &str) -> (u16, String) {
        let envelope = Envelope::parse(body.as_bytes()).ok();
        let response = Rejection::new(reason, "why")
            .with_style(style)
            .answer(envelope.as_ref());
        assert_eq!(response.headers()[REASON], reason.as_str());
        assert_eq!(response.extensions().get::<Reason>(), Some(&reason));
        let (parts, body) = response.into_parts();
        (
            parts.status.as_u16(),
            String::from_utf8(body.to_vec()).unwrap(),
        )
    }

    /// Every reason in both styles, as one table that is read when it changes.
    #[test]
    fn the_reason_table() {
        let mut table = String::new();
        for reason in Reason::ALL {
            for style in [RefusalStyle::Status, RefusalStyle::InBand] {
                let (status, body) = answer(
                    *reason,
                    style,
                    r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#,
                );
                table += &format!("{style:?} {status} {body}\n");
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn ids_keep_their_type_and_a_batch_gets_one_error_a_request() {
        let style = RefusalStyle::Status;
        let reason = Reason::SessionReassigned;
        let (_, body) = answer(reason, style, r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#);
        assert!(body.contains(r#""id":7,"#), "{body}");
        let batch = r#"[{"jsonrpc":"2.0","id":7,"method":"ping"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":"7","method":"ping"}]"#;
        let (_, body) = answer(reason, style, batch);
        let errors: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
        assert_eq!(errors.len(), 2);
        assert_eq!(errors[0]["id"], 7);
        assert_eq!(errors[1]["id"], "7");
        let one = r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#;
        assert!(answer(reason, style, one).1.starts_with('['));
    }

    #[test]
    fn only_a_request_is_refused_in_band() {
        for body in [
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            "not json",
        ] {
            let (status, body) = answer(Reason::SessionReassigned, RefusalStyle::InBand, body);
            assert_eq!(status, 409);
            assert!(body.contains(r#""id":null"#), "{body}");
        }
    }

    #[test]
    fn retry_after_is_at_least_a_second_and_only_on_what_to_retry() {
        for reason in Reason::ALL {
            let response = Rejection::new(*reason, "").answer(None);
            let wait = response.headers().get(header::RETRY_AFTER);
            assert_eq!(wait.is_some(), reason.action() == Action::Retry, "{reason}");
        }
    }
}
