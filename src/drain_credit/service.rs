//! The layer at work: a request whose session is far from its credit goes straight on, the rest is looked into.

use std::{
    borrow::Cow,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response, Uri, Version};
use http_body::Body;
use tower_service::Service;

use super::{
    account::Wants,
    after::{After, Answers},
    body::{BoxError, ResponseBody},
    ender::ender,
    future::ResponseFuture,
    layer::Shared,
    slow::Slow,
    ticket::{Admission, Core},
};
use crate::{
    body::Replay,
    mcp::{Era, Marks, Presented},
    session::SessionId,
};

/// Admits requests to an MCP service by what drains. Made by [`DrainCreditLayer`](super::DrainCreditLayer).
///
/// Inner errors pass through unchanged; every refusal is an `Ok` response. Dropping the future of a request, or the body
/// of an answer, gives its credit back.
#[derive(Clone)]
pub struct DrainCredit<S> {
    inner: S,
    core: Arc<Core>,
}

impl<S> DrainCredit<S> {
    pub(super) fn new(inner: S, shared: Arc<Shared>) -> Self {
        let core = Core::new(shared);
        Self { inner, core }
    }

    /// The service that requests are admitted to.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S> std::fmt::Debug for DrainCredit<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.core.shared.fmt(f)
    }
}

/// What is to be done with a request, by its head.
enum Way<'a> {
    /// Nothing of it is this layer's business.
    Pass,
    /// It asks for credit.
    Post {
        session: Cow<'a, [u8]>,
        carried: bool,
    },
    /// It opens a stream of a session.
    Get(&'a [u8]),
    /// It may open a stream that says by itself whose it is.
    Carrier,
}

impl<'a> Way<'a> {
    #[inline]
    fn of<B>(shared: &Shared, request: &'a Request<B>) -> Self {
        let method = request.method();
        let post = method == Method::POST;
        if !(post || method == Method::GET) {
            return Self::Pass;
        }
        let marks = Marks::of(request.headers());
        if marks.era() == Era::Modern {
            return Self::Pass;
        }
        match marks.session(shared.settings.max_id_len) {
            Presented::Id(id) if post => Self::Post {
                session: Cow::Borrowed(id),
                carried: false,
            },
            Presented::Id(id) => Self::Get(id),
            Presented::Missing => Self::unmarked(shared, request, post),
            // What the header should have been is for the guard of the session to say.
            Presented::Malformed => Self::Pass,
        }
    }

    fn unmarked<B>(shared: &Shared, request: &'a Request<B>, post: bool) -> Self {
        let Some(session_of) = &shared.settings.session_of else {
            return Self::Pass;
        };
        if !post {
            return Self::Carrier;
        }
        match session_of(request.uri(), request.headers()) {
            Some(id) if !id.is_empty() && id.len() <= shared.settings.max_id_len => Self::Post {
                session: Cow::Owned(id.into_owned().into_bytes()),
                carried: true,
            },
            _ => Self::Pass,
        }
    }
}

impl<S, B, R> Service<Request<B>> for DrainCredit<S>
where
    S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answers = match Way::of(&self.core.shared, &request) {
            Way::Pass => return self.direct(request, None),
            Way::Post {
                session,
                carried: false,
            } => match self.core.admit(&session, Wants::Unread, 1) {
                Admission::Admitted(ticket) => Answers::Places(ticket, None),
                Admission::Read | Admission::Refused(_) => {
                    let session = session.into_owned();
                    return self.read(request, session, false);
                }
            },
            Way::Post { session, .. } => {
                let session = session.into_owned();
                return self.read(request, session, true);
            }
            Way::Get(id) => match SessionId::parse_with_limit(id, id.len()) {
                Ok(id) => Answers::Stream(Arc::clone(&self.core), id),
                Err(_) => return self.direct(request, None),
            },
            Way::Carrier => Answers::Carrier(Arc::clone(&self.core)),
        };
        if self.core.ender.get().is_none() {
            self.learn::<B, R>(request.uri());
        }
        let on_shared = request.version() == Version::HTTP_2;
        self.direct(request, Some(After::new(answers, on_shared)))
    }
}

impl<S> DrainCredit<S> {
    /// Calls the service that was made ready; nothing was awaited since.
    #[inline]
    fn direct<B, R>(
        &mut self,
        request: Request<B>,
        after: Option<After>,
    ) -> ResponseFuture<S::Future, R, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>>,
        B: Body,
    {
        ResponseFuture::direct(self.inner.call(request.map(Replay::live)), after)
    }

    /// How sessions are ended is known once there is a request: where it went.
    #[cold]
    fn learn<B, R>(&self, uri: &Uri)
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
        R: Send + 'static,
    {
        let shared = &self.core.shared;
        let make = || ender::<S, B, R>(self.inner.clone(), uri.clone(), shared);
        self.core.ender.get_or_init(make);
    }

    /// The slow way: what the request is has to be known.
    #[cold]
    fn read<B, R>(
        &mut self,
        request: Request<B>,
        session: Vec<u8>,
        carried: bool,
    ) -> ResponseFuture<S::Future, R, S::Error>
    where
        S: Service<Request<Replay<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        // The inner service that was made ready is given up while the body is waited for, since it may hold a permit.
        let inner = self.inner.clone();
        drop(std::mem::replace(&mut self.inner, inner.clone()));
        self.learn::<B, R>(request.uri());
        let slow = Slow {
            core: Arc::clone(&self.core),
            inner,
            session,
            carried,
        };
        ResponseFuture::slow(Box::pin(slow.run(request)))
    }
}
