//! Server-sent events, decoded as far as the guard needs them: the `data` of each event.
//!
//! The registry's `sse-stream` and `eventsource-stream` decode a whole body or stream that they own; the guard has
//! to look into frames that it also passes on unchanged, with a bound of its own, so it feeds this reader instead.

/// Incremental reader of an event stream (WHATWG HTML, "Interpreting an event stream"), split at any byte.
///
/// Keeps at most what one event holds; the caller bounds how much it feeds.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    started: bool,
}

impl EventReader {
    /// Feeds bytes and hands each completed event's data to `event`. Events without data, as priming events and
    /// comments are, are no messages and are left out.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) {
        for &byte in bytes {
            let after_cr = std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if after_cr => {}
                b'\n' => self.end_line(&mut event),
                b'\r' => {
                    self.after_cr = true;
                    self.end_line(&mut event);
                }
                _ => self.line.push(byte),
            }
        }
    }

    fn end_line(&mut self, event: &mut impl FnMut(&[u8])) {
        let line = std::mem::take(&mut self.line);
        let mut rest = &line[..];
        if !std::mem::replace(&mut self.started, true) {
            rest = rest.strip_prefix("\u{feff}".as_bytes()).unwrap_or(rest);
        }
        if rest.is_empty() {
            if std::mem::take(&mut self.has_data) && !self.data.is_empty() {
                event(&self.data);
            }
            self.data.clear();
        } else if let Some(value) = rest.strip_prefix(b"data") {
            let value = match value.strip_prefix(b":") {
                Some(value) => value.strip_prefix(b" ").unwrap_or(value),
                None if value.is_empty() => value,
                // Another field whose name only begins alike.
                None => return,
            };
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
        }
        // The line's buffer is used again.
        self.line = line;
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        for piece in pieces {
            reader.feed(piece, |data| {
                events.push(String::from_utf8_lossy(data).into_owned());
            });
        }
        events
    }

    #[test]
    fn line_ends_comments_priming_and_many_lines() {
        assert_eq!(read(&[b"data: a\n\n"]), ["a"]);
        assert_eq!(read(&[b"data: a\r\rdata:b\r\n\r\n"]), ["a", "b"]);
        assert_eq!(read(&[b"\xef\xbb\xbfdata: a\n\n"]), ["a"]);
        assert_eq!(read(&[b": ping\n\nid: 0\nretry: 3000\ndata:\n\n"]), [""; 0]);
        assert_eq!(
            read(&[b"data: a\ndata:  b\nevent: m\ndatum: x\n\n"]),
            ["a\n b"]
        );
        assert_eq!(read(&[b"data: cut off\n"]), [""; 0]);
    }

    proptest! {
        #[test]
        fn where_it_is_split_makes_no_difference(text in "(data: ?[a-c]{0,3}|: c|id: 1)?(\r\n|\r|\n){1,3}(data:x)?[\r\n]{0,4}", at in 0usize..30) {
            let bytes = text.as_bytes();
            let at = at.min(bytes.len());
            prop_assert_eq!(read(&[&bytes[..at], &bytes[at..]]), read(&[bytes]));
        }
    }
}
