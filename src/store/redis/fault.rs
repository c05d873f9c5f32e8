//! What can go wrong on the way to the server and back, and what each means to whoever asked.

use std::{error::Error, fmt, sync::Arc};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::{StoreError, StoreErrorKind};

/// Shared by all who waited for the same connection, so it can be cloned.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// The client library or the server says so.
    Redis(RedisError),
    /// No connection, or no reply, within the deadline.
    Late(&'static str),
    /// There is a server, and it must not be used.
    Refused(Arc<str>),
    /// The reply is not one to what was asked.
    Misread(&'static str),
}

impl Fault {
    pub(super) fn kind(&self) -> StoreErrorKind {
        let error = match self {
            Self::Late(_) => return StoreErrorKind::TimedOut,
            Self::Refused(_) => return StoreErrorKind::Unavailable,
            Self::Misread(_) => return StoreErrorKind::Corrupt,
            Self::Redis(error) => error,
        };
        // An old server wraps what a script ran into in an error of its own.
        let says = |what: &str| {
            error.code() == Some(what) || error.detail().is_some_and(|text| text.contains(what))
        };
        match error.kind() {
            ErrorKind::Io if error.is_timeout() => StoreErrorKind::TimedOut,
            ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => StoreErrorKind::Unavailable,
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreErrorKind::Corrupt,
            _ if says("OOM") => StoreErrorKind::Full,
            _ if says("CORRUPT") || says("WRONGTYPE") => StoreErrorKind::Corrupt,
            // A script stumbled over what it found.
            _ if error
                .detail()
                .is_some_and(|text| text.starts_with("user_script:")) =>
            {
                StoreErrorKind::Corrupt
            }
            _ => StoreErrorKind::Unavailable,
        }
    }

    /// Whether the connection is of no use any more: it broke, or leads to a server that may not be written to.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Redis(error) => {
                error.is_io_error()
                    || error.is_unrecoverable_error()
                    || matches!(
                        error.kind(),
                        ErrorKind::Server(
                            ServerErrorKind::ReadOnly
                                | ServerErrorKind::MasterDown
                                | ServerErrorKind::BusyLoading
                        )
                    )
                    || error.detail().is_some_and(|text| text.contains("READONLY"))
            }
            Self::Misread(_) => true,
            Self::Late(_) | Self::Refused(_) => false,
        }
    }

    /// Whether the same call may do better on another connection. Each verb can be repeated.
    pub(super) fn is_broken_connection(&self) -> bool {
        matches!(self, Self::Redis(error) if error.is_connection_dropped())
    }

    /// Whether the server itself said so, and is there.
    pub(super) fn is_a_reply(&self) -> bool {
        match self {
            Self::Redis(error) => {
                matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
            }
            Self::Refused(_) => true,
            Self::Late(_) | Self::Misread(_) => false,
        }
    }

    pub(super) fn is_unknown_script(&self) -> bool {
        matches!(self, Self::Redis(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(error) => error.fmt(f),
            Self::Late(what) => write!(f, "no {what} within the deadline"),
            Self::Refused(why) => f.write_str(why),
            Self::Misread(what) => write!(f, "unexpected reply: {what}"),
        }
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Redis(error) => error.source(),
            _ => None,
        }
    }
}

impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        Self::new(fault.kind()).with_source(fault)
    }
}
