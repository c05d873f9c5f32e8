//! What is done with the inner service's answer: its body is accounted for until the client has it.

use std::sync::Arc;

use http::{Response, StatusCode, header};
use http_body::Body;

use super::{
    attached::attach,
    body::{BoxError, Held, ResponseBody},
    carrier::Carrier,
    pump::{Meter, Pump},
    queue::Queue,
    ticket::{Core, Ticket},
};
use crate::{
    body::is_event_stream,
    mcp::RequestId,
    outbox::{Delivered, Lever},
    session::SessionId,
};

/// An answer of at most this size is left where it is: given up, it may as well stay.
const SMALL: u64 = 16 * 1024;

/// What an answer is accounted by.
pub(super) enum Answers {
    /// A place that was reserved for it, and the requests that were made, where they are known.
    Places(Ticket, Option<Vec<RequestId>>),
    /// Places for answers that come on another stream, under these ids.
    Elsewhere(Ticket, Vec<u64>),
    /// A stream of this session.
    Stream(Arc<Core>, SessionId),
    /// A stream that will say whose it is.
    Carrier(Arc<Core>),
}

pub(super) struct After {
    answers: Answers,
    /// Whether the client's connection carries other sessions' answers too.
    on_shared: bool,
}

/// An id as it is remembered: no client's text is kept for long.
pub(super) fn hash(id: &RequestId) -> u64 {
    use std::{hash::BuildHasher, sync::LazyLock};
    static HASHER: LazyLock<hashbrown::DefaultHashBuilder> = LazyLock::new(Default::default);
    HASHER.hash_one(id.as_json())
}

impl After {
    #[inline]
    pub(super) fn new(answers: Answers, on_shared: bool) -> Self {
        Self { answers, on_shared }
    }

    #[inline]
    pub(super) fn settle<R>(self, response: Response<R>) -> Response<ResponseBody<R>>
    where
        R: Body<Data = bytes::Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        // One that is small and whole is no trouble, whatever it is, and most are.
        let small = is_small(&response);
        let streams = || is_event_stream(response.headers()) && response.status().is_success();
        match self.answers {
            Answers::Places(ticket, _) if small || !streams() => {
                plain(ticket, response, self.on_shared)
            }
            _ => {
                let streams = streams();
                self.settle_stream(response, streams)
            }
        }
    }

    fn settle_stream<R>(self, response: Response<R>, streams: bool) -> Response<ResponseBody<R>>
    where
        R: Body<Data = bytes::Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let on_shared = self.on_shared;
        let as_it_is = |response: Response<R>| response.map(|body| ResponseBody::inner(body, None));
        let (core, ticket, requests) = match self.answers {
            Answers::Elsewhere(ticket, ids) if response.status() == StatusCode::ACCEPTED => {
                ticket.leave_to(&ids);
                return as_it_is(response);
            }
            Answers::Places(ticket, _) | Answers::Elsewhere(ticket, _) if !streams => {
                return plain(ticket, response, on_shared);
            }
            _ if !streams => return as_it_is(response),
            Answers::Places(ticket, requests) => {
                (Arc::clone(ticket.core()), Some(ticket), requests)
            }
            Answers::Elsewhere(ticket, _) => (Arc::clone(ticket.core()), Some(ticket), None),
            Answers::Stream(core, session) => {
                let ticket = core.enter(session.as_str().as_bytes());
                (core, ticket, None)
            }
            Answers::Carrier(core) => (core, None, Some(Vec::new())),
        };
        let settings = &core.shared.settings;
        let (queue, carrier) = match (ticket, &settings.session_of) {
            (Some(ticket), _) => {
                if let Some(delivered) = response.extensions().get::<Delivered>() {
                    attach(delivered, ticket, on_shared);
                    return as_it_is(response);
                }
                (owned(ticket, requests.as_deref(), on_shared), None)
            }
            (None, Some(session_of)) => {
                let carrier = Carrier {
                    core: Arc::clone(&core),
                    session_of: Arc::clone(session_of),
                    max_id_len: settings.max_id_len,
                    shared: on_shared,
                };
                (Queue::new(requests.as_deref(), hash), Some(carrier))
            }
            (None, None) => return as_it_is(response),
        };
        let (mut parts, body) = response.into_parts();
        // It may end otherwise than the inner service meant it to.
        parts.headers.remove(header::CONTENT_LENGTH);
        let readable = !parts.headers.contains_key(header::CONTENT_ENCODING);
        let pump = Pump {
            body,
            queue: Arc::clone(&queue),
            meter: Meter::new(settings.event_limit, readable, hash),
            carrier,
        };
        tokio::spawn(pump.run());
        Response::from_parts(parts, ResponseBody::stream(queue))
    }
}

#[inline]
fn is_small<R: Body>(response: &Response<R>) -> bool {
    let size = response.body().size_hint().exact();
    size.is_some_and(|size| size <= SMALL)
}

/// A queue for a stream of which it is known whose it is.
fn owned(mut ticket: Ticket, requests: Option<&[RequestId]>, on_shared: bool) -> Arc<Queue> {
    let queue = Queue::new(requests, hash);
    let lever = Arc::downgrade(&(Arc::clone(&queue) as Arc<dyn Lever>));
    ticket.open(on_shared, lever, false);
    queue.account(ticket);
    queue
}

#[inline]
fn plain<R>(mut ticket: Ticket, response: Response<R>, on_shared: bool) -> Response<ResponseBody<R>>
where
    R: Body + Send + 'static,
{
    if response.body().is_end_stream() {
        drop(ticket);
        return response.map(|body| ResponseBody::inner(body, None));
    }
    let bytes = response.body().size_hint().lower();
    if is_small(&response) {
        ticket.open_plain(bytes, on_shared, None);
        return response.map(|body| ResponseBody::inner(body, Some(ticket)));
    }
    response.map(|body| {
        let body = Held::new(body);
        let lever = Arc::downgrade(&(Arc::clone(&body) as Arc<dyn Lever>));
        ticket.open_plain(bytes, on_shared, Some(lever));
        ResponseBody::held(body, ticket)
    })
}
