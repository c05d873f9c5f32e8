//! Answers that this layer gives by itself: outcomes again, and refusals.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body;
use serde_json::value::RawValue;

use super::{body::ResponseBody, layer::Config};
use crate::{
    body::AnsweredInFront,
    mcp::{Envelope, RequestId, header::REPLAYED, sse},
    rejection::{Reason, Rejection},
    store::Reply,
};

/// The recorded outcome under the new request's id, as the client takes it.
///
/// Only the outcome was recorded, so there are no headers of the first answer that could come along: no cookie, and no
/// event id of another session.
pub(super) fn replay<R: Body>(
    headers: &HeaderMap,
    id: &str,
    reply: &Reply,
) -> Response<ResponseBody<R>> {
    let text = reply.text();
    let mut message = BytesMut::with_capacity(text.len() + id.len() + 48);
    for part in [
        &b"{\"jsonrpc\":\"2.0\",\"id\":"[..],
        id.as_bytes(),
        b",\"",
        reply.member().as_bytes(),
        b"\":",
        text,
        b"}",
    ] {
        message.extend_from_slice(part);
    }
    let (content_type, body) = if takes_only_streams(headers) {
        let mut event = BytesMut::with_capacity(message.len() + 16);
        // The outcome may have been written on several lines.
        sse::encode(&mut event, b"", &without_returns(&message));
        ("text/event-stream", event.freeze())
    } else {
        ("application/json", message.freeze())
    };
    let mut response = in_front(Response::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// In JSON a carriage return is a space; in an event it would be the end of a line.
fn without_returns(message: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if memchr::memchr(b'\r', message).is_none() {
        return message.into();
    }
    let plain = message.iter().copied().filter(|byte| *byte != b'\r');
    plain.collect::<Vec<_>>().into()
}

/// Whether the client asks for an event stream and not for JSON.
fn takes_only_streams(headers: &HeaderMap) -> bool {
    let mut streams = false;
    for range in headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
    {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            let weight = weight.and_then(|weight| weight.parse::<f32>().ok());
            weight.is_some_and(|weight| weight <= 0.0)
        });
        match &*media {
            _ if refused => {}
            "application/json" | "application/*" | "*/*" => return false,
            "text/event-stream" | "text/*" => streams = true,
            _ => {}
        }
    }
    streams
}

pub(super) fn refuse<R: Body>(
    config: &Config,
    body: &[u8],
    reason: Reason,
    detail: &'static str,
    outcome: Option<&Reply>,
) -> Response<ResponseBody<R>> {
    tracing::debug!(%reason, detail, "refused");
    let outcome = outcome.and_then(as_member);
    let rejection: Rejection = config.reject(reason, detail).with_outcome(outcome);
    in_front(rejection.answer(Envelope::parse(body).ok().as_ref()))
}

/// Refuses a request of which at most the id is known.
pub(super) fn refuse_unread<R: Body>(
    config: &Config,
    id: Option<&RequestId>,
    reason: Reason,
    detail: &'static str,
) -> Response<ResponseBody<R>> {
    tracing::debug!(%reason, detail, "refused");
    in_front(config.reject(reason, detail).answer_id(id))
}

fn as_member(reply: &Reply) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(reply.text()).ok()?;
    RawValue::from_string(format!("{{\"{}\":{text}}}", reply.member())).ok()
}

fn in_front<R: Body>(response: Response<Bytes>) -> Response<ResponseBody<R>> {
    let mut response = response.map(ResponseBody::answer);
    response.extensions_mut().insert(AnsweredInFront);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_unless_the_client_takes_streams_only() {
        let only = |accept: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, HeaderValue::from_static(value));
            }
            takes_only_streams(&headers)
        };
        assert!(only(&["text/event-stream"]));
        assert!(only(&["Text/Event-Stream; q=0.9", "text/html"]));
        assert!(only(&["text/event-stream, application/json;q=0"]));
        assert!(!only(&[]));
        assert!(!only(&["application/json, text/event-stream"]));
        assert!(!only(&["text/event-stream", "*/*;q=0.1"]));
        assert!(!only(&["text/event-stream;q=0.000"]));
        assert!(!only(&["text/html"]));
    }
}
