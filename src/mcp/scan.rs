//! The top-level members of a JSON-RPC message that say what it is, found without reading the rest of it.
//!
//! A carried stream looks into each of its messages, and of most of it nothing has to be known. `serde_json` reads every
//! value in order to pass over it, at some forty instructions a byte; this passes over them at a few. It gives up on
//! whatever is out of the ordinary, and the caller then reads the message in full.

use memchr::memchr2;

/// What stands at the top of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head<'a> {
    /// The id, if it is an integer, a string without escapes, or null.
    pub(super) id: Option<&'a str>,
    pub(super) method: bool,
    pub(super) result: bool,
    pub(super) error: bool,
}

impl<'a> Head<'a> {
    /// `None` when the message is not plainly one object with plain member names and at most one plain id.
    ///
    /// Values that are passed over are not validated: a message that is no JSON in their midst has a head all the same.
    pub(super) fn of(message: &'a [u8]) -> Option<Self> {
        let mut head = Self::default();
        members(message, |name, value| {
            let seen = match name {
                b"id" => head.id.replace(plain_id(value)?).is_some(),
                b"method" => std::mem::replace(&mut head.method, true),
                b"result" => std::mem::replace(&mut head.result, true),
                b"error" => std::mem::replace(&mut head.error, true),
                _ => false,
            };
            (!seen).then_some(())
        })?;
        Some(head)
    }
}

/// Hands out the members of a message that is plainly one object: names without their quotes, values as they are
/// written and not validated. `None` when it is not, or `each` says so.
#[inline]
pub(crate) fn members<'a>(
    message: &'a [u8],
    mut each: impl FnMut(&'a [u8], &'a [u8]) -> Option<()>,
) -> Option<()> {
    let mut rest = Rest(message);
    rest.expect(b'{')?;
    if rest.take_if(b'}') {
        return rest.is_over().then_some(());
    }
    loop {
        rest.expect(b'"')?;
        let name = rest.string()?;
        rest.expect(b':')?;
        rest.skip_space();
        each(name, rest.value()?)?;
        if !rest.take_if(b',') {
            rest.expect(b'}')?;
            return rest.is_over().then_some(());
        }
    }
}

/// An id that is valid JSON at a glance.
pub(crate) fn plain_id(value: &[u8]) -> Option<&str> {
    let plain = match value {
        [b'"', text @ .., b'"'] => text
            .iter()
            .all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')),
        b"null" | b"0" => true,
        [b'-', digits @ ..] | digits => {
            matches!(digits, [b'1'..=b'9', more @ ..] if more.iter().all(u8::is_ascii_digit))
        }
    };
    std::str::from_utf8(value).ok().filter(|_| plain)
}

/// What a byte ends, of a string, a bare value, and what is between the values of an object or array.
const STRING: u8 = 1;
const BARE: u8 = 2;
const NESTED: u8 = 4;

static ENDS: [u8; 256] = {
    let mut ends = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        ends[byte] = match byte as u8 {
            b'"' => STRING | NESTED,
            b'\\' => STRING,
            b'}' | b']' => BARE | NESTED,
            b'{' | b'[' => NESTED,
            b',' | b' ' | b'\t' | b'\n' | b'\r' => BARE,
            _ => 0,
        };
        byte += 1;
    }
    ends
};

/// Where the first byte is that ends one of these.
#[inline]
fn end_of(text: &[u8], kind: u8) -> Option<usize> {
    text.iter()
        .position(|byte| ENDS[usize::from(*byte)] & kind != 0)
}

/// Where a string ends, or an escape in it begins.
fn quote_or_escape(text: &[u8]) -> Option<usize> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Marks, by its highest bit, each byte that is zero, and none that comes before the first such.
    let zeros = |eight: u64| eight.wrapping_sub(EACH) & !eight & (EACH << 7);
    // Most strings are shorter than what a vector search costs to set up.
    const SHORT: usize = 32;
    let (short, long) = text.split_at(SHORT.min(text.len()));
    let mut at = 0;
    while let Some(eight) = short[at..].first_chunk() {
        let eight = u64::from_le_bytes(*eight);
        let marked = zeros(eight ^ (EACH * 0x22)) | zeros(eight ^ (EACH * 0x5c));
        if marked != 0 {
            return Some(at + (marked.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    end_of(&short[at..], STRING)
        .map(|end| at + end)
        .or_else(|| memchr2(b'"', b'\\', long).map(|end| short.len() + end))
}

/// What of a message is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn skip_space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    fn take_if(&mut self, wanted: u8) -> bool {
        self.skip_space();
        match self.0 {
            [first, rest @ ..] if *first == wanted => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.take_if(wanted).then_some(())
    }

    fn is_over(&mut self) -> bool {
        self.skip_space();
        self.0.is_empty()
    }

    /// The rest of a string whose opening quote was taken; an escape in it is out of the ordinary.
    fn string(&mut self) -> Option<&'a [u8]> {
        let end = quote_or_escape(self.0)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = rest.strip_prefix(b"\"")?;
        Some(text)
    }

    /// Passes over a string whose opening quote was taken.
    fn skip_string(&mut self) -> Option<()> {
        loop {
            let end = quote_or_escape(self.0)?;
            if self.0[end] == b'"' {
                self.0 = &self.0[end + 1..];
                return Some(());
            }
            self.0 = self.0.get(end + 2..)?;
        }
    }

    /// The text of a value.
    fn value(&mut self) -> Option<&'a [u8]> {
        let whole = self.0;
        match whole.first()? {
            b'"' => {
                self.0 = &whole[1..];
                self.skip_string()?;
            }
            b'{' | b'[' => self.skip_nested()?,
            _ => {
                let end = end_of(whole, BARE)?;
                if end == 0 {
                    return None;
                }
                self.0 = &whole[end..];
            }
        }
        Some(&whole[..whole.len() - self.0.len()])
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            let at = end_of(self.0, NESTED)?;
            let byte = self.0[at];
            self.0 = &self.0[at + 1..];
            match byte {
                b'"' => self.skip_string()?,
                b'{' | b'[' => depth += 1,
                _ => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn of(message: &str) -> Option<Head<'_>> {
        Head::of(message.as_bytes())
    }

    #[test]
    fn what_is_plain_is_seen_and_the_rest_is_given_up_on() {
        let head = |id, method, result, error| {
            Some(Head {
                id,
                method,
                result,
                error,
            })
        };
        assert_eq!(of("{}"), head(None, false, false, false));
        assert_eq!(
            of(r#" { "id" : -7 , "result" : {"id":[{"error":"}\""}]} } "#),
            head(Some("-7"), false, true, false)
        );
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":"a b","method":"ping"}"#),
            head(Some("\"a b\""), true, false, false)
        );
        assert_eq!(
            of("{\"error\":null,\"id\":null}"),
            head(Some("null"), false, false, true)
        );
        for odd in [
            "",
            "[]",
            "{",
            r#"{"id":1,"id":2}"#,
            r#"{"\u0069d":1}"#,
            r#"{"id":"a\n"}"#,
            r#"{"id":1.0}"#,
            r#"{"id":01}"#,
            r#"{"id":-0}"#,
            r#"{"id":{}}"#,
            r#"{"id":"é"}"#,
            r#"{"id":1}x"#,
            r#"{"id":1,}"#,
            r#"{"id":,"a":1}"#,
            r#"{"a":["}"#,
            r#"{"a":"\"#,
        ] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map(
                    "(id|method|result|error|[a-c\"\\\\]{1,3})",
                    inner,
                    0..5
                )
                .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_it_sees_is_what_serde_sees(message in value(), pretty: bool) {
            let text = if pretty {
                serde_json::to_string_pretty(&message).unwrap()
            } else {
                message.to_string()
            };
            if let Some(head) = of(&text) {
                let member = |name: &str| message.get(name);
                prop_assert!(message.is_object());
                prop_assert_eq!(head.method, member("method").is_some());
                prop_assert_eq!(head.result, member("result").is_some());
                prop_assert_eq!(head.error, member("error").is_some());
                let id = head.id.map(|id| serde_json::from_str::<Value>(id).unwrap());
                prop_assert_eq!(id.as_ref(), member("id"));
            }
        }

        #[test]
        fn an_ordinary_message_is_never_given_up_on(id: i64, params in value()) {
            prop_assume!(id != 0);
            let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            let text = message.to_string();
            prop_assert!(of(&text).is_some());
        }

        #[test]
        fn hostile_bytes_are_no_trouble(bytes: Vec<u8>) {
            let _ = Head::of(&bytes);
            let mut object = b"{\"id\":".to_vec();
            object.extend(bytes);
            let _ = Head::of(&object);
        }
    }
}
