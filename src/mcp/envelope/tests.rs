//! The envelope parser against what clients send and what attackers send.

use proptest::prelude::*;

use super::*;

fn one(body: &str) -> Message<'_> {
    let mut envelope = Envelope::parse(body.as_bytes()).unwrap_or_else(|e| panic!("{body}: {e}"));
    assert!(!envelope.is_batch());
    envelope.messages.remove(0)
}

fn error(body: &str) -> EnvelopeErrorKind {
    Envelope::parse(body.as_bytes()).map_or_else(|e| e.kind(), |_| panic!("{body}: accepted"))
}

#[test]
fn ids_keep_their_type_and_their_spelling() {
    for id in [
        "0",
        "-1",
        "1.0",
        "9007199254740993",
        r#""1""#,
        r#""\u0031""#,
        "null",
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert_eq!(one(&body).request_id().unwrap().as_json(), id);
    }
    for id in ["true", "[]", "{}", "[1]"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert_eq!(error(&body), EnvelopeErrorKind::Id);
    }
}

#[test]
fn kinds() {
    let message =
        one(r#" {"method":"tools/call","params":{"name":"a\u0062"},"id":7,"jsonrpc":"2.0"} "#);
    assert_eq!(message.method(), Some("tools/call"));
    assert_eq!(message.name().as_deref(), Some("ab"));
    let message = one(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert!(matches!(message.kind(), MessageKind::Notification { .. }));
    assert_eq!(message.request_id(), None);
    let message = one(r#"{"jsonrpc":"2.0","id":1,"result":null}"#);
    assert!(matches!(
        message.kind(),
        MessageKind::Response { error: false, .. }
    ));
    let message = one(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#);
    assert!(matches!(
        message.kind(),
        MessageKind::Response { error: true, .. }
    ));
}

#[test]
fn what_is_no_json_rpc() {
    for body in [
        "1",
        "\"a\"",
        "null",
        "{}",
        r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#,
        r#"{"id":1,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","result":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":2}"#,
        "[1]",
        "[[]]",
    ] {
        assert_eq!(error(body), EnvelopeErrorKind::NotJsonRpc, "{body}");
    }
    for body in [
        "",
        "{",
        "[",
        "{\"a\":1}x",
        "\u{feff}{}",
        "{\"jsonrpc\":\"2.0\",}",
    ] {
        assert_eq!(error(body), EnvelopeErrorKind::NotJson, "{body}");
    }
    assert_eq!(
        Envelope::parse(b"\xff").unwrap_err().kind(),
        EnvelopeErrorKind::NotJson
    );
}

#[test]
fn a_member_twice_is_refused_at_any_depth_and_in_any_spelling() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","m\u0065thod":"b"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"name":"x","name":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":[{"y":{"z":1,"z":2}}]}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"a","extra":1,"extra":1}]"#,
    ] {
        assert_eq!(error(body), EnvelopeErrorKind::DuplicateMember, "{body}");
    }
}

#[test]
fn depth_is_bounded_and_a_deep_body_is_no_stack_overflow() {
    let nest = |depth: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    assert!(Envelope::parse(nest(Envelope::MAX_DEPTH - 1).as_bytes()).is_ok());
    assert_eq!(
        error(&nest(Envelope::MAX_DEPTH)),
        EnvelopeErrorKind::TooDeep
    );
    assert_eq!(error(&nest(1_000_000)), EnvelopeErrorKind::TooDeep);
    assert_ne!(error(&"[".repeat(1_000_000)), EnvelopeErrorKind::BatchSize);
}

#[test]
fn batches() {
    let envelope = Envelope::parse(
        br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"initialize"}]"#,
    )
    .unwrap();
    assert!(envelope.is_batch());
    assert_eq!(envelope.messages().len(), 2);
    assert!(envelope.find_request("initialize").is_some());
    assert_eq!(error("[]"), EnvelopeErrorKind::BatchSize);
    let many = vec![r#"{"jsonrpc":"2.0","method":"a"}"#; Envelope::MAX_BATCH + 1].join(",");
    assert_eq!(error(&format!("[{many}]")), EnvelopeErrorKind::BatchSize);
}

#[test]
fn the_era_in_the_body() {
    let body = |method: &str, version: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":{version}}}}}}}"#
        )
    };
    let modern = |body: &str| Envelope::parse(body.as_bytes()).unwrap().is_modern();
    assert!(modern(&body("tools/call", r#""2026-07-28""#)));
    assert!(!modern(&body("initialize", r#""2026-07-28""#)));
    assert!(!modern(&body("tools/call", r#""2025-11-25""#)));
    assert!(!modern(&body("tools/call", "7")));
    let mixed = format!(
        "[{},{}]",
        body("tools/call", r#""2026-07-28""#),
        body("tools/call", r#""2025-06-18""#)
    );
    assert!(!modern(&mixed));
    let with_initialize = format!(
        "[{},{}]",
        body("tools/call", r#""2026-07-28""#),
        body("initialize", r#""2026-07-28""#)
    );
    assert!(!modern(&with_initialize));
}

#[test]
fn what_an_initialize_says() {
    let message = one(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}"#,
    );
    assert_eq!(message.protocol_version().as_deref(), Some("2025-11-25"));
    assert_eq!(message.capabilities(), Some(r#"{"roots":{}}"#));
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Envelope::parse(&bytes);
    }

    #[test]
    fn never_panics_near_json(text in r#"[\[\]{}:,"\\u0-9a-z \-\.]{0,120}"#) {
        let _ = Envelope::parse(text.as_bytes());
    }
}
