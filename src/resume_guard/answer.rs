//! Responses that this layer gives by itself.

use bytes::Bytes;
use http::Response;

use super::{authorize::Refusal, body::ResponseBody, layer::Config};
use crate::{
    body::AnsweredInFront,
    outbox::{Cursor, Delivery, as_event_stream, refuse_after_the_end, refuse_in_band},
    rejection::Reason,
};

/// A stream that begins here, and not in the inner service.
pub(super) fn stream<R>(delivery: Delivery) -> Response<ResponseBody<R>> {
    let delivered = delivery.delivered();
    let mut response = Response::new(ResponseBody::stream(delivery));
    as_event_stream(&mut response);
    let extensions = response.extensions_mut();
    extensions.insert(AnsweredInFront);
    extensions.insert(delivered);
    response
}

/// A refused resume: within a stream where a client still waits for an answer, and by status else.
pub(super) fn refuse<R>(
    config: &Config,
    cursor: Option<&Cursor>,
    refusal: &Refusal,
) -> Response<ResponseBody<R>> {
    let reason = refusal.reason();
    config.outbox.shared.counters().count_resume(false);
    tracing::debug!(%reason, ?refusal, "a resume was refused");
    let rejection = config.reject(reason, refusal.detail());
    let told = cursor
        .filter(|_| config.refuses_in_band())
        .and_then(|cursor| refuse_in_band(&rejection, cursor));
    in_front(match told {
        Some(told) => told,
        None if *refusal == Refusal::Over => refuse_after_the_end(&rejection),
        None => rejection.answer(None),
    })
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
