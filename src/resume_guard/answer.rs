//! Responses that this layer gives by itself.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::{authorize::Refusal, body::ResponseBody, layer::Config};
use crate::{
    body::{AnsweredInFront, SelfProving},
    mcp::{RequestId, header::REASON},
    outbox::{Cursor, Delivery, last_event},
    rejection::Reason,
};

/// A stream that begins here, and not in the inner service.
pub(super) fn stream<R>(delivery: Delivery) -> Response<ResponseBody<R>> {
    let delivered = delivery.delivered();
    let mut response = event_stream(ResponseBody::stream(delivery));
    response.extensions_mut().insert(delivered);
    response.extensions_mut().insert(SelfProving);
    response
}

fn event_stream<R>(body: ResponseBody<R>) -> Response<ResponseBody<R>> {
    let mut response = Response::new(body);
    response.extensions_mut().insert(AnsweredInFront);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    // Understood by nginx and others: do not hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A refused resume.
///
/// A client that still waits for an answer is told within a stream: one event that answers its request with an error,
/// under an id that it cannot come back with. Others are told by status; whoever comes back to the end of a stream gets
/// 405, the one status that stops every measured client.
pub(super) fn refuse<R>(
    config: &Config,
    cursor: Option<&Cursor>,
    refusal: &Refusal,
) -> Response<ResponseBody<R>> {
    let reason = refusal.reason();
    config.outbox.shared.counters().count_resume(false);
    tracing::debug!(%reason, ?refusal, "a resume was refused");
    let pending: Option<(&Cursor, &RequestId)> =
        cursor.and_then(|cursor| Some((cursor, cursor.pending.as_ref()?)));
    if let Some((cursor, id)) = pending
        && config.refuses_in_band()
    {
        let message = config.reject(reason, refusal.detail()).message(Some(id));
        let event = last_event(&cursor.clone().terminal(), &message);
        let mut response = event_stream(ResponseBody::refusal(event));
        let headers = response.headers_mut();
        headers.insert(REASON, HeaderValue::from_static(reason.as_str()));
        response.extensions_mut().insert(reason);
        return response;
    }
    let response = config.reject(reason, refusal.detail()).answer(None);
    let mut response = in_front(response);
    if *refusal == Refusal::Over {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        let headers = response.headers_mut();
        headers.insert(header::ALLOW, HeaderValue::from_static("POST, DELETE"));
    }
    response
}

/// A `Last-Event-ID` without a session: nothing can be proven of it.
pub(super) fn refuse_sessionless<R>(config: &Config, reason: Reason) -> Response<ResponseBody<R>> {
    config.outbox.shared.counters().count_resume(false);
    let detail = "a stream is resumed within its session, and the request names none";
    in_front(config.reject(reason, detail).answer(None))
}

pub(super) fn in_front<R>(response: Response<Bytes>) -> Response<ResponseBody<R>> {
    let mut response = response.map(ResponseBody::refusal);
    response.extensions_mut().insert(AnsweredInFront);
    response
}
