//! What was negotiated, as a hash that two instances can compare.

use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Hash of what client and server agreed on at `initialize`.
///
/// Two halves: the client's (the negotiated protocol version and the client's capabilities) and the server's
/// (its capabilities). Kept apart, so that an instance which never saw the handshake can still tell whether what
/// *it* would offer is what was negotiated ([`matches`](Self::matches)). The server's name and version are not
/// part of it: a patch release that offers the same may carry a session on.
///
/// Each half is the first 16 bytes of SHA-256 over the canonical JSON of RFC 8785, so the order of members and
/// the way numbers and strings are written make no difference.
///
/// ```
/// use mcp_session_guard::session::{CapabilityHash, Offer};
/// use serde_json::json;
///
/// let seen = CapabilityHash::new("2025-11-25", &json!({"sampling": {}}), &json!({"tools": {}}))?;
/// assert!(seen.matches(&Offer::new(&json!({"tools": {}}))?));
/// assert!(!seen.matches(&Offer::new(&json!({"tools": {}, "resources": {}}))?));
/// # Ok::<(), mcp_session_guard::session::CapabilityError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapabilityHash {
    client: [u8; 16],
    server: [u8; 16],
}

impl CapabilityHash {
    /// Hashes the negotiated version and both sides' `capabilities`.
    ///
    /// # Errors
    ///
    /// When a value cannot be written as canonical JSON.
    pub fn new(
        protocol_version: &str,
        client: &Value,
        server: &Value,
    ) -> Result<Self, CapabilityError> {
        let client =
            serde_json::json!({ "capabilities": client, "protocolVersion": protocol_version });
        Ok(Self {
            client: half(&client)?,
            server: Offer::new(server)?.0,
        })
    }

    /// Whether an instance that offers this would have negotiated the same.
    #[must_use]
    pub fn matches(&self, offer: &Offer) -> bool {
        self.server == offer.0
    }

    /// What the server offered in it.
    #[must_use]
    pub fn offer(&self) -> Offer {
        Offer(self.server)
    }

    /// The hash with these bytes; for back ends that read one back from a store.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let mut hash = Self {
            client: [0; 16],
            server: [0; 16],
        };
        hash.client.copy_from_slice(&bytes[..16]);
        hash.server.copy_from_slice(&bytes[16..]);
        hash
    }

    /// The bytes of the hash; for back ends that write it to a store.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.client);
        bytes[16..].copy_from_slice(&self.server);
        bytes
    }
}

impl fmt::Display for CapabilityHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CapabilityHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CapabilityHash({self})")
    }
}

/// What this instance offers to a client that initializes: the server's `capabilities`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offer([u8; 16]);

impl Offer {
    /// Hashes the `capabilities` that the server answers `initialize` with.
    ///
    /// # Errors
    ///
    /// When the value cannot be written as canonical JSON.
    pub fn new(capabilities: &Value) -> Result<Self, CapabilityError> {
        half(capabilities).map(Self)
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer({:032x})", u128::from_be_bytes(self.0))
    }
}

fn half(value: &Value) -> Result<[u8; 16], CapabilityError> {
    let canonical = serde_json_canonicalizer::to_vec(value).map_err(CapabilityError)?;
    let mut half = [0; 16];
    half.copy_from_slice(&Sha256::digest(canonical)[..16]);
    Ok(half)
}

/// Capabilities that have no canonical JSON.
#[derive(Debug)]
pub struct CapabilityError(serde_json::Error);

impl fmt::Display for CapabilityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the capabilities cannot be written as canonical JSON (RFC 8785)")
    }
}

impl std::error::Error for CapabilityError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hash(version: &str, client: &str, server: &str) -> CapabilityHash {
        let parse = |text| serde_json::from_str::<Value>(text).unwrap();
        CapabilityHash::new(version, &parse(client), &parse(server)).unwrap()
    }

    #[test]
    fn the_way_it_is_written_makes_no_difference() {
        let one = hash(
            "2025-11-25",
            r#"{"sampling":{},"roots":{"listChanged":true}}"#,
            r#"{"n":1.0}"#,
        );
        let other = hash(
            "2025-11-25",
            r#"{ "roots" : {"listChanged":true}, "\u0073ampling":{} }"#,
            r#"{"n":1}"#,
        );
        assert_eq!(one, other);
    }

    #[test]
    fn every_part_makes_a_difference() {
        let base = hash("2025-11-25", "{}", "{}");
        assert_ne!(base, hash("2025-06-18", "{}", "{}"));
        assert_ne!(base, hash("2025-11-25", r#"{"sampling":{}}"#, "{}"));
        assert_ne!(base, hash("2025-11-25", "{}", r#"{"tools":{}}"#));
        // A member moved from one side to the other is not the same agreement.
        assert_ne!(
            hash("2025-11-25", r#"{"x":1}"#, "{}"),
            hash("2025-11-25", "{}", r#"{"x":1}"#)
        );
    }

    #[test]
    fn survives_a_store() {
        let hash = CapabilityHash::new("2025-11-25", &json!({"a": 1}), &json!({"b": 2})).unwrap();
        assert_eq!(CapabilityHash::from_bytes(hash.to_bytes()), hash);
        assert_eq!(hash.to_string().len(), 64);
    }
}
