//! The id of a message that is too long to be kept, found while the message goes by.

use super::RequestId;

/// The longest id that is remembered, as JSON text.
const MAX_ID: usize = 256;

/// Reads one JSON-RPC message piece by piece, and keeps nothing of it but its id. Some clients write that last.
///
/// Of what is no object it finds nothing, nor of one with two ids. Nothing else about the text is checked.
#[derive(Debug, Default)]
pub(crate) struct IdFinder {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether what comes next at the top is a value and not a name.
    value: bool,
    /// Whether that is the value of the id.
    is_id: bool,
    /// The name or the id in the making; longer than the longest id when it is none.
    text: Vec<u8>,
    found: Option<RequestId>,
    given_up: bool,
}

impl IdFinder {
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        for byte in piece {
            if self.given_up {
                return;
            }
            self.step(*byte);
        }
    }

    /// The id, if the message had one as far as it went.
    pub(crate) fn found(self) -> Option<RequestId> {
        self.found.filter(|_| !self.given_up)
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.keep(byte);
                self.in_string = true;
            }
            b'{' | b'[' => {
                // A batch has many ids, and an id is no structure.
                self.given_up |= self.depth == 0 && byte == b'[';
                self.spoil();
                self.depth += 1;
                if self.depth == 1 {
                    self.begin(false);
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_value();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.is_id = self.name_is_id();
                self.begin(true);
            }
            b',' if self.depth == 1 => {
                self.end_value();
                self.begin(false);
            }
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => self.keep(byte),
        }
    }

    fn begin(&mut self, value: bool) {
        self.value = value;
        self.text.clear();
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && (!self.value || self.is_id) && self.text.len() <= MAX_ID {
            self.text.push(byte);
        }
    }

    fn spoil(&mut self) {
        if self.depth == 1 && self.value {
            self.is_id = false;
        }
    }

    fn name_is_id(&self) -> bool {
        let name = serde_json::from_slice::<String>(&self.text);
        name.is_ok_and(|name| name == "id")
    }

    fn end_value(&mut self) {
        if !self.value || !std::mem::take(&mut self.is_id) {
            return;
        }
        let text = std::str::from_utf8(&self.text).ok();
        let id = text.filter(|text| text.len() <= MAX_ID);
        let again = self.found.is_some();
        self.found = id.and_then(RequestId::from_json);
        self.given_up |= again;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn find(pieces: &[&[u8]]) -> Option<String> {
        let mut finder = IdFinder::default();
        pieces.iter().for_each(|piece| finder.feed(piece));
        finder.found().map(|id| id.as_json().to_owned())
    }

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        let found = |text: &str| find(&[text.as_bytes()]);
        for (text, id) in [
            (r#"{"id":7,"params":{"id":8}}"#, Some("7")),
            (
                r#"{"params":[{"id":8},"\"id\":9,}{"],"id" : "a\"b" }"#,
                Some(r#""a\"b""#),
            ),
            (r#"{"params":{},"id":-7"#, None),
            (r#"{"params":{},"id":-7,"#, Some("-7")),
            (r#"{"i\u0064":1}"#, Some("1")),
            (r#"{"id":null}"#, Some("null")),
            (r#"{"id":{"id":1}}"#, None),
            (r#"{"id":[1]}"#, None),
            (r#"{"id":tru}"#, None),
            (r#"{"id":1,"id":1}"#, None),
            (r#"[{"id":1}]"#, None),
            (r#"{"a":"id","b":{"id":1}}"#, None),
            ("", None),
        ] {
            assert_eq!(found(text).as_deref(), id, "{text}");
        }
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(300));
        assert_eq!(found(&long), None);
    }

    proptest! {
        #[test]
        fn however_it_is_cut(id: i64, text in "\\PC{0,40}", last: bool, at in 0..100usize) {
            let rest = json!({"params": {"id": text, "x": [text]}, "method": text}).to_string();
            let rest = &rest[1..rest.len() - 1];
            let message = if last { format!("{{{rest},\"id\":{id}}}") } else { format!("{{\"id\":{id},{rest}}}") };
            let (one, other) = message.as_bytes().split_at(at.min(message.len()));
            let seen: Value = serde_json::from_str(&message).unwrap();
            prop_assert_eq!(find(&[one, other]), Some(seen["id"].to_string()));
        }

        #[test]
        fn hostile_bytes_are_no_trouble(bytes: Vec<u8>) {
            let _ = find(&[b"{\"id\":", &bytes]);
            let _ = find(&[&bytes]);
        }
    }
}
