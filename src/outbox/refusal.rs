//! How a client that comes back to a stream is told no, whichever layer says so.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::{Cursor, batch::last_event};
use crate::rejection::Rejection;

/// Refuses within a stream a client that still waits for an answer: one event that answers its request with an error, under
/// an id that it cannot come back with. By status it would wait for ever. `None` where the position names no request.
pub(crate) fn refuse_in_band(rejection: &Rejection, cursor: &Cursor) -> Option<Response<Bytes>> {
    let pending = cursor.pending.as_ref()?;
    let mut response = rejection.answer(None);
    let message = rejection.message(Some(pending));
    *response.body_mut() = last_event(&cursor.clone().terminal(), &message);
    *response.status_mut() = StatusCode::OK;
    as_event_stream(&mut response);
    Some(response)
}

/// Refuses a client that comes back to the end of a stream: 405 is the one status that stops every measured client.
pub(crate) fn refuse_after_the_end(rejection: &Rejection) -> Response<Bytes> {
    let mut response = rejection.answer(None);
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static("POST, DELETE"));
    response
}

/// The headers of an event stream that begins here, and not in the inner service.
pub(crate) fn as_event_stream<B>(response: &mut Response<B>) {
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
}
