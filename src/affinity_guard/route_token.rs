//! The route token: what an edge can route a session's requests on without knowing the directory.

use std::{fmt, sync::Arc};

use http::{HeaderMap, HeaderValue};

use crate::mcp::header::SESSION_ID;

/// Stands between a session's id and the token. The last one counts.
const SEPARATOR: u8 = b'~';

/// A short text that names an instance to an edge: the client sees a session's id with it behind, `id~token`.
///
/// A load balancer that hashes the session header cannot know where a session was opened, since its id is minted after
/// the choice was made. With a token in the id it needs no more than a table of tokens. The token proves nothing: what
/// is served is still what the directory says.
///
/// ```
/// use mcp_session_guard::affinity_guard::RouteToken;
///
/// let token: RouteToken = "pod-7".parse()?;
/// assert_eq!(token.as_str(), "pod-7");
/// assert!("pod~7".parse::<RouteToken>().is_err());
/// # Ok::<(), mcp_session_guard::affinity_guard::InvalidRouteToken>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RouteToken(Arc<str>);

/// Not a route token: 1 to 64 ASCII letters, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidRouteToken;

impl RouteToken {
    /// The longest token, in bytes.
    pub const MAX_LEN: usize = 64;

    /// The token as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Puts the token on every session id of a response.
    pub(super) fn put_on(&self, headers: &mut HeaderMap) {
        each(headers, |id| {
            let mut text = Vec::with_capacity(id.len() + 1 + self.0.len());
            text.extend_from_slice(id);
            text.push(SEPARATOR);
            text.extend_from_slice(self.0.as_bytes());
            Some(text)
        });
    }
}

/// Takes whatever token there is off every session id of a request. One without a token stays as it is: it was minted
/// before there were any.
pub(super) fn take_off(headers: &mut HeaderMap) {
    each(headers, |id| split(id).map(<[u8]>::to_vec));
}

/// Whether an id would lose something of its own where tokens are taken off.
pub(super) fn looks_routed(id: &str) -> bool {
    split(id.as_bytes()).is_some()
}

fn split(id: &[u8]) -> Option<&[u8]> {
    let at = id.iter().rposition(|byte| *byte == SEPARATOR)?;
    is_token(&id[at + 1..]).then_some(&id[..at])
}

fn is_token(text: &[u8]) -> bool {
    (1..=RouteToken::MAX_LEN).contains(&text.len())
        && text
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn each(headers: &mut HeaderMap, change: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    for (name, value) in headers.iter_mut() {
        if name == SESSION_ID
            && let Some(changed) = change(value.as_bytes())
            && let Ok(changed) = HeaderValue::from_bytes(&changed)
        {
            *value = changed;
        }
    }
}

impl std::str::FromStr for RouteToken {
    type Err = InvalidRouteToken;

    fn from_str(text: &str) -> Result<Self, InvalidRouteToken> {
        match is_token(text.as_bytes()) {
            true => Ok(Self(text.into())),
            false => Err(InvalidRouteToken),
        }
    }
}

impl fmt::Display for InvalidRouteToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a route token is 1 to 64 ASCII letters, digits, `-`, `_` and `.`")
    }
}

impl std::error::Error for InvalidRouteToken {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(ids: &[&str]) -> HeaderMap {
        ids.iter()
            .map(|id| (SESSION_ID, HeaderValue::from_bytes(id.as_bytes()).unwrap()))
            .collect()
    }

    fn taken_off(id: &str) -> String {
        let mut headers = headers(&[id]);
        take_off(&mut headers);
        headers[SESSION_ID].to_str().unwrap().to_owned()
    }

    #[test]
    fn a_token_of_any_instance_comes_off_and_everything_else_stays() {
        assert_eq!(taken_off("0f-1~pod-7"), "0f-1");
        assert_eq!(taken_off("a~b~c"), "a~b");
        // Malformed once it is off, and told so.
        assert_eq!(taken_off("~pod-7"), "");
        for plain in ["0f-1", "a~", "a~b c", "a~b/c", "~"] {
            assert_eq!(taken_off(plain), plain);
        }
        let long = format!("a~{}", "b".repeat(65));
        assert_eq!(taken_off(&long), long);
    }

    #[test]
    fn each_of_several_headers_is_seen_to() {
        let mut headers = headers(&["a~x", "a~y"]);
        take_off(&mut headers);
        let left: Vec<_> = headers.get_all(SESSION_ID).iter().collect();
        assert_eq!(left, ["a", "a"]);
    }

    proptest! {
        #[test]
        fn what_is_put_on_comes_off(id in "[!-~]{1,40}", token in "[A-Za-z0-9._-]{1,64}") {
            let mut headers = headers(&[&id]);
            token.parse::<RouteToken>().unwrap().put_on(&mut headers);
            prop_assert_eq!(headers[SESSION_ID].to_str().unwrap(), format!("{id}~{token}"));
            take_off(&mut headers);
            prop_assert_eq!(headers[SESSION_ID].to_str().unwrap(), id);
        }
    }
}
