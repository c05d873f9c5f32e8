//! What a keyed request is known by: digests of its key, of what it asks, and of where it runs.

use sha2::{Digest, Sha256};

use crate::store::{Fingerprint, Origin, RequestKey};

/// To whom a key belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    /// To this subject, in whatever session.
    Principal(&'a str),
    /// To this session.
    Session(&'a [u8]),
}

/// A hash over parts, each with its length before it, so that no two lists of parts are hashed alike.
struct Parts(Sha256);

impl Parts {
    /// `what` is one of a few words, none of which begins another.
    fn of(what: &str) -> Self {
        Self(Sha256::new_with_prefix(what))
    }

    fn and(mut self, part: &[u8]) -> Self {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    fn digest(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// `leg` tells apart the requests of one call that is made in several rounds.
pub(super) fn request_key(
    namespace: &str,
    scope: Scope<'_>,
    key: &[u8],
    leg: Option<&str>,
) -> RequestKey {
    let (kind, scope): (&[u8], _) = match scope {
        Scope::Principal(subject) => (b"p", subject.as_bytes()),
        Scope::Session(id) => (b"s", id),
    };
    let parts = Parts::of("key")
        .and(namespace.as_bytes())
        .and(kind)
        .and(scope)
        .and(key);
    let parts = match leg {
        Some(leg) => parts.and(leg.as_bytes()),
        None => parts,
    };
    RequestKey::from_bytes(parts.digest())
}

/// `params` are the canonical parameters of a `tools/call`.
pub(super) fn fingerprint(params: &[u8]) -> Fingerprint {
    Fingerprint::from_bytes(Parts::of("call").and(params).digest())
}

pub(super) fn origin(namespace: &str, session: &[u8]) -> Origin {
    Origin::from_bytes(
        Parts::of("session")
            .and(namespace.as_bytes())
            .and(session)
            .digest(),
    )
}

/// What the service behind may use as the key of its own calls: the same for every attempt, and not the client's key,
/// which it could not tell whose it is.
pub(super) fn downstream(key: &RequestKey) -> String {
    let digest = Parts::of("downstream").and(key.as_bytes()).digest();
    digest[..16]
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0xf])
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_part_counts_and_none_runs_into_the_next() {
        let principal = Scope::Principal;
        let keys = [
            request_key("", principal("a"), b"b", None),
            request_key("", principal("ab"), b"", None),
            request_key("", principal(""), b"ab", None),
            request_key("a", principal(""), b"b", None),
            request_key("", Scope::Session(b"a"), b"b", None),
            request_key("", principal("a"), b"b", Some("")),
            request_key("", principal("a"), b"b", Some("c")),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert_eq!(keys[0], request_key("", principal("a"), b"b", None));
    }

    #[test]
    fn the_downstream_key_is_stable_and_no_other() {
        let key = request_key("", Scope::Principal("a"), b"b", None);
        let text = downstream(&key);
        assert_eq!(text, downstream(&key));
        assert!(text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let other = request_key("", Scope::Principal("a"), b"c", None);
        assert_ne!(text, downstream(&other));
    }
}
