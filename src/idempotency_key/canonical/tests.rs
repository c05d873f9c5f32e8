//! The canonical form against `serde_json`'s own reading.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn canonical(params: &str) -> Result<String, Ambiguous> {
    read(params).map(|(_, out)| String::from_utf8(out).unwrap())
}

#[test]
fn order_spaces_and_escapes_make_no_difference_and_numbers_do() {
    let one =
        canonical(r#" {"b": [1.0, {"d":null,"c":"\u00e9\/\ud83d\ude00\u0022"}] , "a":true} "#);
    let same = canonical(r#"{"a":true,"b":[1.0,{"c":"é/😀\"","d":null}]}"#);
    assert_eq!(one, same);
    assert_eq!(
        one.unwrap(),
        r#"{"a":true,"b":[1.0,{"c":"é/😀\"","d":null}]}"#
    );
    for (one, other) in [
        ("1", "1.0"),
        ("1e2", "100"),
        ("9007199254740992", "9007199254740993"),
        ("\"1\"", "1"),
        ("[1,2]", "[2,1]"),
        ("\"\\u0000\"", "\"0\""),
    ] {
        let of = |value| canonical(&format!("{{\"a\":{value}}}")).unwrap();
        assert_ne!(of(one), of(other));
    }
}

#[test]
fn the_key_and_the_meta_are_found_and_left_out() {
    let (members, out) = read(
        r#"{"name":"pay","_meta":{"progressToken":1,"mcp-session-guard/idempotencyKey":"m","io.modelcontextprotocol/protocolVersion":"2026-07-28"},"idempotencyKey":"s","arguments":{"idempotencyKey":1,"_meta":{}},"requestState":"x","inputResponses":{}}"#,
    )
    .unwrap();
    assert_eq!(
        members,
        Members {
            name: Some("\"pay\""),
            meta_key: Some("\"m\""),
            key: Some("\"s\""),
            version: Some("\"2026-07-28\""),
            state: Some("\"x\""),
            responses: Some("{}"),
        }
    );
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"arguments":{"_meta":{},"idempotencyKey":1},"inputResponses":{},"name":"pay","requestState":"x"}"#
    );
    assert_eq!(canonical(r#"{"_meta":{"a":1}}"#).unwrap(), "{}");
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    for value in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"\u0061":1}"#,
        r#""\ud800""#,
        r#""\ud800\u0041""#,
        r#""\udc00""#,
        r#""\x""#,
        r#""\u12""#,
        "\"a\nb\"",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "-",
        "NaN",
        "tru",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "'a'",
        "",
        &deep,
    ] {
        let params = format!("{{\"arguments\":{value}}}");
        assert_eq!(canonical(&params), Err(Ambiguous), "{value}");
    }
    for params in [
        "",
        "[]",
        "1",
        "{}x",
        "{",
        r#"{"_meta":{"x":1,"x":1}}"#,
        r#"{"_meta":1,"_meta":1}"#,
        r#"{"idempotencyKey":"a","idempotencyKey":"a"}"#,
    ] {
        assert_eq!(canonical(params), Err(Ambiguous), "{params}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,6}|[\u{0}-\u{1f}\"\\\\]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map("[a-c\"\\\\\u{1}é]{0,2}", inner, 0..5)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// The same value, written as differently as JSON allows without touching a number.
fn disguise(value: &Value, turn: bool) -> String {
    let text = |text: &str| {
        let units: String = text
            .encode_utf16()
            .map(|unit| format!("\\u{unit:04X}"))
            .collect();
        format!("\"{units}\"")
    };
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members
                .iter()
                .map(|(name, value)| format!(" {} : {}", text(name), disguise(value, turn)))
                .collect();
            if turn {
                members.reverse();
            }
            format!("{{{}\n}}", members.join(" ,"))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| disguise(item, turn)).collect();
            format!("[ {}\t]", items.join(" ,\r"))
        }
        Value::String(plain) => text(plain),
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn the_same_is_written_alike_and_stays_what_it_was(value in value(), turn: bool) {
        let params = json!({"arguments": value, "name": "t"});
        let one = canonical(&params.to_string()).unwrap();
        prop_assert_eq!(&canonical(&disguise(&params, turn)).unwrap(), &one);
        prop_assert_eq!(&canonical(&one).unwrap(), &one);
        prop_assert_eq!(serde_json::from_str::<Value>(&one).unwrap(), params);
    }

    #[test]
    fn what_differs_is_written_otherwise(one in value(), other in value()) {
        let of = |value: &Value| canonical(&json!({"a": value}).to_string()).unwrap();
        // As JSON text: 1.0 and 1 are one value to some and not to others.
        let texts = [&one, &other].map(Value::to_string);
        prop_assert_eq!(of(&one) == of(&other), texts[0] == texts[1]);
    }

    #[test]
    fn hostile_text_is_no_trouble(text in "[\\[\\]{}\",:0-9eE.+\\\\uad-]{0,40}|\\PC{0,20}") {
        let _ = read(&text);
        let accepted = read(&format!("{{\"a\":{text}}}")).is_ok();
        if accepted {
            let parsed = serde_json::from_str::<Value>(&format!("{{\"a\":{text}}}"));
            // Of numbers beyond a double serde makes an error; to us they are text.
            prop_assert!(parsed.is_ok() || parsed.unwrap_err().to_string().contains("number out of range"));
        }
    }
}
