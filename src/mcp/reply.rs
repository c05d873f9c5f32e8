//! A JSON-RPC answer taken apart, so that it can be given again under another id.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::scan::members;

/// The parts of one answer, as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplyParts<'a> {
    /// The id.
    pub(crate) id: &'a str,
    /// Whether it is an error.
    pub(crate) error: bool,
    /// The text of its `result` or its `error`.
    pub(crate) text: &'a str,
}

impl<'a> ReplyParts<'a> {
    /// `None` when the message is not one answer.
    pub(crate) fn of(message: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(message).ok()?;
        Self::plain(text).or_else(|| Self::read(text))
    }

    /// The same without reading it in full, for most messages.
    fn plain(message: &'a str) -> Option<Self> {
        let (mut id, mut result, mut error) = (None, None, None);
        members(message.as_bytes(), |name, value| {
            let member = match name {
                b"id" => &mut id,
                b"result" => &mut result,
                b"error" => &mut error,
                b"method" => return None,
                _ => return Some(()),
            };
            // What ends at ASCII within text is text.
            member
                .replace(std::str::from_utf8(value).ok()?)
                .is_none()
                .then_some(())
        })?;
        Self::from(id, result, error)
    }

    fn read(message: &'a str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow, default)]
            id: Option<&'a RawValue>,
            #[serde(borrow, default)]
            method: Option<&'a RawValue>,
            #[serde(borrow, default)]
            result: Option<&'a RawValue>,
            #[serde(borrow, default)]
            error: Option<&'a RawValue>,
        }
        let members: Members<'a> = serde_json::from_str(message).ok()?;
        if members.method.is_some() {
            return None;
        }
        let text = |raw: Option<&'a RawValue>| raw.map(RawValue::get);
        Self::from(text(members.id), text(members.result), text(members.error))
    }

    fn from(id: Option<&'a str>, result: Option<&'a str>, error: Option<&'a str>) -> Option<Self> {
        let (error, text) = match (result, error) {
            (Some(result), None) => (false, result),
            (None, Some(error)) => (true, error),
            _ => return None,
        };
        let id = id?;
        Some(Self { id, error, text })
    }

    /// Whether it answers the request with this id, which may be written otherwise.
    pub(crate) fn answers(&self, id: &str) -> bool {
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        self.id == id || (self.id.contains(['\\', '.', 'e', 'E']) && value(self.id) == value(id))
    }

    /// Whether it is no answer yet: the client is to say more first (MCP 2026-07-28, multi-round-trip requests).
    pub(crate) fn is_input_required(&self) -> bool {
        #[derive(Deserialize)]
        struct Typed<'a> {
            #[serde(borrow, default, rename = "resultType")]
            result_type: Option<std::borrow::Cow<'a, str>>,
        }
        if self.error || memchr::memmem::find(self.text.as_bytes(), b"resultType").is_none() {
            return false;
        }
        let typed = serde_json::from_str::<Typed<'_>>(self.text);
        typed.is_ok_and(|typed| typed.result_type.as_deref() == Some("input_required"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(message: &str) -> Option<(&str, bool, &str)> {
        ReplyParts::of(message.as_bytes()).map(|reply| (reply.id, reply.error, reply.text))
    }

    #[test]
    fn answers_are_taken_apart_as_they_are_written() {
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":7,"result":{"a": [1.0]}}"#),
            Some(("7", false, r#"{"a": [1.0]}"#))
        );
        assert_eq!(
            of(" {\"error\":{\"code\":1},\"id\":\"\\u0031\"} "),
            Some(("\"\\u0031\"", true, "{\"code\":1}"))
        );
        assert_eq!(of(r#"{"\u0069d":1,"result":null}"#), None);
        assert_eq!(of(r#"{"\u0069d":1,"result":2}"#), Some(("1", false, "2")));
        for other in [
            "",
            "{}",
            r#"{"id":1}"#,
            r#"{"result":1}"#,
            r#"{"id":1,"method":"ping","result":1}"#,
            r#"{"id":1,"result":1,"error":2}"#,
            r#"{"id":1,"result":1,"result":2}"#,
            r#"[{"id":1,"result":1}]"#,
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn an_id_is_compared_with_its_type() {
        let answers = |id: &'static str, to| {
            let (error, text) = (false, "1");
            ReplyParts { id, error, text }.answers(to)
        };
        assert!(answers("1", "1") && answers("\"\\u0031\"", "\"1\""));
        assert!(!answers("1", "\"1\"") && !answers("\"1\"", "1") && !answers("null", "1"));
    }

    #[test]
    fn only_the_results_own_type_counts() {
        let required = |text| {
            let (id, error) = ("1", false);
            ReplyParts { id, error, text }.is_input_required()
        };
        assert!(required(
            r#"{"resultType":"input_required","requestState":"s"}"#
        ));
        assert!(required(r#"{"resultType":"input\u005frequired"}"#));
        assert!(!required(r#"{"resultType":"complete"}"#));
        assert!(!required(
            r#"{"content":[{"resultType":"input_required"}]}"#
        ));
        assert!(!required(r#"{"content":"input_required"}"#));
    }
}
