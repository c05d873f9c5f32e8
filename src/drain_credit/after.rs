//! What is done with the inner service's answer: its body is accounted for until the client has it.

use std::sync::Arc;

use http::{Response, StatusCode, header};
use http_body::Body;

use super::{
    accounts::Ticket,
    attached::attach,
    body::{BoxError, Held, ResponseBody},
    carrier::Carrier,
    layer::Shared,
    pump::{Meter, Pump},
    queue::Queue,
    watchdog::Ender,
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
    /// A place that was reserved for it.
    Places(Ticket),
    /// Places for answers that come on another stream, under these ids.
    Elsewhere(Ticket, Vec<u64>),
    /// A stream of this session.
    Stream(SessionId),
    /// A stream that will say whose it is.
    Carrier,
}

pub(super) struct After {
    shared: Arc<Shared>,
    answers: Answers,
    /// The requests that were made, where they are known.
    requests: Option<Vec<RequestId>>,
    on_shared: bool,
    ender: Ender,
}

/// An id as it is remembered: no client's text is kept for long.
pub(super) fn hash(id: &RequestId) -> u64 {
    use std::{hash::BuildHasher, sync::LazyLock};
    static HASHER: LazyLock<hashbrown::DefaultHashBuilder> = LazyLock::new(Default::default);
    HASHER.hash_one(id.as_json())
}

impl After {
    #[inline]
    pub(super) fn new(
        shared: &Arc<Shared>,
        answers: Answers,
        requests: Option<Vec<RequestId>>,
        on_shared: bool,
        ender: Ender,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            answers,
            requests,
            on_shared,
            ender,
        }
    }

    #[inline]
    pub(super) fn settle<R>(self, response: Response<R>) -> Response<ResponseBody<R>>
    where
        R: Body<Data = bytes::Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let streams = is_event_stream(response.headers()) && response.status().is_success();
        match self.answers {
            Answers::Places(ticket) if !streams => plain(ticket, response, self.on_shared),
            _ => self.settle_stream(response, streams),
        }
    }

    fn settle_stream<R>(self, response: Response<R>, streams: bool) -> Response<ResponseBody<R>>
    where
        R: Body<Data = bytes::Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let accounts = &self.shared.accounts;
        let ticket = match self.answers {
            Answers::Elsewhere(ticket, ids) if response.status() == StatusCode::ACCEPTED => {
                ticket.leave_to(&ids);
                return response.map(|body| ResponseBody::inner(body, None));
            }
            Answers::Places(ticket) | Answers::Elsewhere(ticket, _) if !streams => {
                return plain(ticket, response, self.on_shared);
            }
            _ if !streams => return response.map(|body| ResponseBody::inner(body, None)),
            Answers::Places(ticket) | Answers::Elsewhere(ticket, _) => Some(ticket),
            Answers::Stream(session) => accounts.enter(session.as_str().as_bytes()),
            Answers::Carrier => None,
        };
        if let (Some(delivered), true) =
            (response.extensions().get::<Delivered>(), ticket.is_some())
        {
            if let Some(ticket) = ticket {
                attach(delivered, ticket, self.on_shared, &self.ender);
            }
            return response.map(|body| ResponseBody::inner(body, None));
        }
        let carrier = match (&ticket, &self.shared.settings.session_of) {
            (None, Some(session_of)) => Some(Carrier {
                accounts: Arc::clone(accounts),
                session_of: Arc::clone(session_of),
                max_id_len: self.shared.settings.max_id_len,
                shared: self.on_shared,
            }),
            (None, None) => return response.map(|body| ResponseBody::inner(body, None)),
            _ => None,
        };
        let owed = match carrier.is_some() {
            true => Some(&[][..]),
            false => self.requests.as_deref(),
        };
        let queue = Queue::new(owed, hash);
        if let Some(mut ticket) = ticket {
            let lever = Arc::downgrade(&(Arc::clone(&queue) as Arc<dyn Lever>));
            ticket.open(self.on_shared, lever, Some(&self.ender), false);
            queue.account(ticket);
        }
        let (mut parts, body) = response.into_parts();
        // It may end otherwise than the inner service meant it to.
        parts.headers.remove(header::CONTENT_LENGTH);
        let readable = !parts.headers.contains_key(header::CONTENT_ENCODING);
        let pump = Pump {
            body,
            queue: Arc::clone(&queue),
            meter: Meter::new(self.shared.settings.event_limit, readable, hash),
            carrier,
        };
        tokio::spawn(pump.run());
        Response::from_parts(parts, ResponseBody::stream(queue))
    }
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
    let size = response.body().size_hint();
    let bytes = size.lower();
    if size.exact().is_some_and(|size| size <= SMALL) {
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
