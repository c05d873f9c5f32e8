//! A call under its claim: dispatched, and its answer recorded before it is let out.

use std::{ops::ControlFlow, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body::Body;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    body::{BoxError, ResponseBody},
    claim::Claimed,
    decide::{Ending, Said, Status, settle},
    layer::Config,
    recording::{Attached, Recording},
};
use crate::{
    body::{Finding, Replay, is_event_stream, read},
    mcp::ReplyParts,
    rejection::Reason,
    store::Reply,
};

/// As good as never: a call takes as long as it takes.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs a call with a ready service. Whatever happens to this future, the claim's holder tells the ledger.
pub(super) async fn run<S, B, R>(
    mut ready: S,
    request: Request<Replay<B>>,
    mut claimed: Claimed,
    id: Box<str>,
    detaches: bool,
) -> Result<Response<ResponseBody<R>>, S::Error>
where
    S: Service<Request<Replay<B>>, Response = Response<R>>,
    B: Body,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    claimed.dispatched();
    let dispatched = ready.call(request).await;
    let response = match dispatched {
        Ok(response) => response,
        Err(error) => {
            let (status, said) = (Status::Failed, Said::Nothing);
            let settlement = settle(Ending { status, said });
            claimed.settle(settlement, None).await;
            return Err(error);
        }
    };
    let status = status(claimed.config(), &response);
    let readable = matches!(status, Status::Success | Status::Refused)
        && !response.headers().contains_key(header::CONTENT_ENCODING);
    if readable && is_event_stream(response.headers()) {
        return Ok(response.map(|body| {
            let recording = Recording::new(body, claimed, id, status, detaches);
            ResponseBody::recorded(Attached(recording))
        }));
    }
    if !readable || !is_json(&response) {
        let said = Said::Nothing;
        claimed.settle(settle(Ending { status, said }), None).await;
        return Ok(response.map(ResponseBody::inner));
    }
    let (parts, body) = response.into_parts();
    let limit = claimed.config().outcome_limit;
    let deadline = Instant::now() + YEAR;
    let read = read(body, limit, deadline, |_| ControlFlow::Continue(())).await;
    let (said, reply) = match read.finding {
        Finding::Ended => said(&read.bytes, &id, limit).unwrap_or((Said::Nothing, None)),
        Finding::TooLarge => (Said::TooLarge, None),
        Finding::Enough | Finding::Failed | Finding::TooSlow => (Said::Nothing, None),
    };
    claimed.settle(settle(Ending { status, said }), reply).await;
    let body = ResponseBody::read(read.replay);
    Ok(Response::from_parts(parts, body))
}

fn is_json<R>(response: &Response<R>) -> bool {
    response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| is_json_type(value.as_bytes()))
}

/// Whether a media type is JSON's, whatever its parameters.
pub(super) fn is_json_type(value: &[u8]) -> bool {
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
    essence
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
}

fn status<R>(config: &Config, response: &Response<R>) -> Status {
    // Another guard's word is more than its status.
    match response.extensions().get::<Reason>() {
        Some(Reason::OutcomeUnknown | Reason::IdempotencyOutcomeUnknown) => return Status::Failed,
        Some(_) => return Status::DidNotRun,
        None => {}
    }
    let status = response.status();
    if config.did_not_run.contains(&status) {
        return Status::DidNotRun;
    }
    match status {
        // Accepted, and not answered.
        StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Status::Failed,
        status if status.is_success() => Status::Success,
        status if status.is_client_error() => Status::Refused,
        _ => Status::Failed,
    }
}

/// What a message says of the call with this id; `None` when it is not about it.
pub(super) fn said(message: &[u8], id: &str, limit: usize) -> Option<(Said, Option<Reply>)> {
    let reply = ReplyParts::of(message).filter(|reply| reply.answers(id))?;
    if reply.is_input_required() {
        return Some((Said::InputRequired, None));
    }
    if reply.text.len() > limit {
        return Some((Said::TooLarge, None));
    }
    // A copy, so that what else stood in the buffer is not kept with it.
    let text = Bytes::copy_from_slice(reply.text.as_bytes());
    let reply = if reply.error {
        Reply::Error(text)
    } else {
        Reply::Result(text)
    };
    Some((Said::Answer, Some(reply)))
}
