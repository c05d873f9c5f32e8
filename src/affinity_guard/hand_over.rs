//! A request on its way to the session's owner, and what its client is told when it does not get there.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, request::Parts};
use http_body::Body;
use http_body_util::BodyExt;

use super::{
    body::{BoxError, ResponseBody},
    forward::{Forward, ForwardErrorKind, from_owner, mark, remove_connection_headers},
    layer::Config,
    route_token::looks_routed,
    steps::Steps,
};
use crate::{
    body::Replay,
    mcp::{Envelope, header::FORWARDED},
    rejection::Reason,
    session::InstanceId,
};

pub(super) struct HandOver {
    config: Arc<Config>,
    owner: Option<(InstanceId, Arc<str>)>,
    parts: Parts,
    /// What was read of its body, for the ids of a refusal.
    read: Bytes,
}

impl HandOver {
    pub(super) fn new(config: &Arc<Config>, steps: &Steps, mut parts: Parts, read: Bytes) -> Self {
        remove_connection_headers(&mut parts.headers);
        if let (Some(token), Some(id)) = (&config.route_token, steps.id())
            && looks_routed(id.as_str())
        {
            // Or the owner would take a part of the id itself for a token.
            token.put_on(&mut parts.headers);
        }
        let by = mark(config.instance.shared().id());
        parts.headers.insert(FORWARDED, by);
        Self {
            config: Arc::clone(config),
            owner: steps
                .owner()
                .map(|(owner, address)| (owner.clone(), Arc::clone(address))),
            parts,
            read,
        }
    }

    /// Dropped half-way, it drops the request at the owner too, as if the client had come there and left.
    pub(super) async fn run<B, R>(self, body: Replay<B>) -> Response<ResponseBody<R>>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Send,
        R: Body,
    {
        let Self {
            config,
            owner,
            parts,
            read,
        } = self;
        let refuse = |reason, detail| {
            let rejection = config.reject(reason, detail);
            let envelope = Envelope::parse(&read).ok();
            rejection
                .answer(envelope.as_ref())
                .map(ResponseBody::refusal)
        };
        let (Some(forwarder), Some((owner, address))) = (&config.forwarder, owner) else {
            return refuse(Reason::SessionUnconfirmed, "no way to the owner is known");
        };
        // Opening a stream changes nothing, and may be tried again.
        let lost = match parts.method == Method::GET {
            true => Reason::SessionUnconfirmed,
            false => Reason::OutcomeUnknown,
        };
        let forward = Forward {
            request: Request::from_parts(parts, body.map_err(Into::into).boxed_unsync()),
            owner: owner.clone(),
            address: Arc::clone(&address),
        };
        let answer = forwarder.forward(forward, config.forward_deadline).await;
        match answer {
            Ok(response) => from_owner(response, &owner).unwrap_or_else(|| {
                let detail = "somebody else answered at the address of the session's owner";
                refuse(lost, detail)
            }),
            Err(error) => {
                tracing::warn!(%error, %address, "a session's owner did not answer");
                match error.kind() {
                    ForwardErrorKind::NotSent => refuse(
                        Reason::SessionUnconfirmed,
                        "the session's owner cannot be reached",
                    ),
                    ForwardErrorKind::Lost => {
                        refuse(lost, "the session's owner did not answer the request")
                    }
                }
            }
        }
    }
}
