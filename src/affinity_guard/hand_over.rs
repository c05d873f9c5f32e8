//! A request on its way to the session's owner, and what became of it when it does not get there.

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
use crate::{body::Replay, mcp::header::FORWARDED, rejection::Reason, session::InstanceId};

pub(super) struct HandOver {
    config: Arc<Config>,
    owner: Option<(InstanceId, Arc<str>)>,
    parts: Parts,
}

impl HandOver {
    pub(super) fn new(config: &Arc<Config>, steps: &Steps, mut parts: Parts) -> Self {
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
        }
    }

    /// The owner's answer, or why there is none. Dropped half-way, it drops the request at the owner too, as if the client
    /// had come there and left.
    pub(super) async fn run<B, R>(
        self,
        body: Replay<B>,
    ) -> Result<Response<ResponseBody<R>>, (Reason, &'static str)>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Send,
        R: Body,
    {
        let (Some(forwarder), Some((owner, address))) = (&self.config.forwarder, self.owner) else {
            let detail = "no way to the session's owner is known";
            return Err((Reason::SessionUnconfirmed, detail));
        };
        // Opening a stream changes nothing, and may be tried again.
        let lost = match self.parts.method == Method::GET {
            true => Reason::SessionUnconfirmed,
            false => Reason::OutcomeUnknown,
        };
        let forward = Forward {
            request: Request::from_parts(self.parts, body.map_err(Into::into).boxed_unsync()),
            owner: owner.clone(),
            address: Arc::clone(&address),
        };
        let answer = forwarder
            .forward(forward, self.config.forward_deadline)
            .await
            .map_err(|error| {
                tracing::warn!(%error, %address, "a session's owner did not answer");
                match error.kind() {
                    ForwardErrorKind::NotSent => (
                        Reason::SessionUnconfirmed,
                        "the session's owner cannot be reached",
                    ),
                    ForwardErrorKind::Lost => (lost, "the session's owner did not answer"),
                }
            })?;
        let stranger = "somebody else answered at the address of the session's owner";
        from_owner(answer, &owner).ok_or((lost, stranger))
    }
}
