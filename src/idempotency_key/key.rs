//! The key that a client chose: where it stands, and whether it is one.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue};

use crate::mcp::header::IDEMPOTENCY_KEY;

/// The longest key, in bytes, as Stripe has it.
pub(super) const MAX_LEN: usize = 255;

/// What one place, or all of them, say of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Nothing,
    /// Something that is not a key.
    Malformed,
    /// Two keys that differ.
    Differing,
    Key(Cow<'a, str>),
}

impl<'a> Found<'a> {
    /// `Idempotency-Key`: a structured-header string (draft-ietf-httpapi-idempotency-key-header) or, as most clients
    /// send it, a bare token. Said twice it must be the same.
    pub(super) fn in_headers(headers: &'a HeaderMap) -> Self {
        let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(first) = values.next() else {
            return Self::Nothing;
        };
        values.fold(Self::of_header(first), |found, value| {
            found.and(Self::of_header(value))
        })
    }

    fn of_header(value: &'a HeaderValue) -> Self {
        let Ok(text) = std::str::from_utf8(value.as_bytes()) else {
            return Self::Malformed;
        };
        let text = text.trim_matches([' ', '\t']);
        match text.strip_prefix('"') {
            Some(rest) => rest
                .strip_suffix('"')
                .and_then(quoted)
                .map_or(Self::Malformed, Self::checked),
            // A comma may be a proxy's, between two of them; the rest begins parameters or is quoted badly.
            None if text.contains(['"', ',', ';', '\\', ' ']) => Self::Malformed,
            None => Self::checked(Cow::Borrowed(text)),
        }
    }

    /// The JSON text of a member.
    pub(super) fn of_json(text: Option<&'a str>) -> Self {
        match text {
            None => Self::Nothing,
            Some(json) => self::text(json).map_or(Self::Malformed, Self::checked),
        }
    }

    fn checked(key: Cow<'a, str>) -> Self {
        // What a header can say, so that a key means the same wherever it stands.
        let fits = key.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if key.is_empty() || key.len() > MAX_LEN || !fits {
            return Self::Malformed;
        }
        Self::Key(key)
    }

    /// What two places say together.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Malformed, _) | (_, Self::Malformed) => Self::Malformed,
            (Self::Nothing, found) | (found, Self::Nothing) => found,
            (Self::Key(one), Self::Key(other)) if one == other => Self::Key(one),
            _ => Self::Differing,
        }
    }
}

/// A JSON string, if it is one.
pub(super) fn text(json: &str) -> Option<Cow<'_, str>> {
    // A plain `Cow` would always copy; this borrows where nothing is escaped.
    #[derive(serde::Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(json)
        .ok()
        .map(|text| text.0)
}

/// The inside of a structured-header string (RFC 8941, section 3.3.3).
fn quoted(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['\\', '"']) {
        return Some(Cow::Borrowed(text));
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '"' => return None,
            '\\' => characters
                .next()
                .filter(|next| matches!(next, '"' | '\\'))?,
            other => other,
        });
    }
    Some(Cow::Owned(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(values: &[&str]) -> Found<'static> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                IDEMPOTENCY_KEY,
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        match Found::in_headers(&headers) {
            Found::Nothing => Found::Nothing,
            Found::Malformed => Found::Malformed,
            Found::Differing => Found::Differing,
            Found::Key(key) => Found::Key(key.into_owned().into()),
        }
    }

    fn key(key: &str) -> Found<'static> {
        Found::Key(key.to_owned().into())
    }

    #[test]
    fn a_quoted_and_a_bare_key_are_one() {
        let uuid = "8e03978e-40d5-43dd-bc93-6894a57f9324";
        assert_eq!(header(&[uuid]), key(uuid));
        assert_eq!(header(&[&format!("\"{uuid}\"")]), key(uuid));
        assert_eq!(header(&[&format!("  {uuid}\t")]), key(uuid));
        assert_eq!(header(&[r#""a \"b\" \\c""#]), key(r#"a "b" \c"#));
        assert_eq!(header(&["a+/=:@"]), key("a+/=:@"));
        assert_eq!(header(&[uuid, uuid]), key(uuid));
        assert_eq!(header(&[]), Found::Nothing);
    }

    #[test]
    fn what_is_no_key_is_malformed_and_never_trimmed_to_one() {
        let long = "k".repeat(MAX_LEN + 1);
        for text in [
            "",
            "\"\"",
            "\"",
            "a,b",
            "a;p=1",
            "\"a\";p=1",
            "a b",
            "\"a\"b\"",
            "\"a\\\"",
            "\"a\\x\"",
            "é",
            "a\tb",
            &long,
        ] {
            assert_eq!(header(&[text]), Found::Malformed, "{text}");
        }
        assert_eq!(header(&[&"k".repeat(MAX_LEN)]), key(&"k".repeat(MAX_LEN)));
        assert_eq!(header(&["a", "b"]), Found::Differing);
        assert_eq!(header(&["a", ""]), Found::Malformed);
    }

    #[test]
    fn in_a_body_it_is_a_string() {
        assert_eq!(Found::of_json(None), Found::Nothing);
        assert_eq!(Found::of_json(Some(r#""a\u0062""#)), key("ab"));
        for text in ["null", "1", "{}", "\"\"", r#""é""#, r#""\n""#] {
            assert_eq!(Found::of_json(Some(text)), Found::Malformed, "{text}");
        }
    }

    #[test]
    fn two_places_agree_or_differ() {
        assert_eq!(key("a").and(key("a")), key("a"));
        assert_eq!(key("a").and(Found::Nothing), key("a"));
        assert_eq!(key("a").and(key("b")), Found::Differing);
        assert_eq!(key("a").and(key("b")).and(key("a")), Found::Differing);
        assert_eq!(Found::Differing.and(Found::Malformed), Found::Malformed);
    }
}
