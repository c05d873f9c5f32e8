//! Which half of MCP's history a request belongs to.

/// The first revision without sessions.
pub const MODERN_SINCE: &str = "2026-07-28";

/// Sessions or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// 2025-03-26 to 2025-11-25: sessions, GET streams, `Last-Event-ID`. `initialize` is always of this era,
    /// whatever version it claims.
    Legacy,
    /// 2026-07-28 and later: every request stands alone.
    Modern,
}

/// Whether `version` is a revision date at or after [`MODERN_SINCE`].
///
/// Anything that is not a plain `YYYY-MM-DD` is not: a version nobody can order must not excuse a request from
/// the checks of the era that has sessions.
///
/// ```
/// use mcp_session_guard::mcp::is_modern_version;
///
/// assert!(is_modern_version(b"2026-07-28"));
/// assert!(!is_modern_version(b"2025-11-25"));
/// assert!(!is_modern_version(b"zzz"));
/// ```
#[inline]
#[must_use]
pub fn is_modern_version(version: &[u8]) -> bool {
    // Most versions of today end at the first comparison.
    version.len() == MODERN_SINCE.len()
        && version >= MODERN_SINCE.as_bytes()
        && version.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

/// Whether a client that speaks `version` takes an event with an id and no data at the start of a stream
/// (MCP 2025-11-25, "Sending Messages to the Server"). Earlier ones may take it for a broken message.
#[must_use]
pub fn may_prime(version: &[u8]) -> bool {
    version == b"2025-11-25"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_date_can_be_modern() {
        for modern in ["2026-07-28", "2026-12-01", "2027-01-01", "9999-99-99"] {
            assert!(is_modern_version(modern.as_bytes()), "{modern}");
        }
        for legacy in [
            "",
            "2025-03-26",
            "2026-07-27",
            "2026-07-28 ",
            "2026-07-280",
            "2026/07/28",
            "DRAFT-2027",
            "20260728--",
            "٢٠٢٦",
        ] {
            assert!(!is_modern_version(legacy.as_bytes()), "{legacy}");
        }
    }
}
