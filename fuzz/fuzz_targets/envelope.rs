//! The envelope parser never panics, and whatever it takes a lenient JSON parser reads alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mcp_session_guard::mcp::{Envelope, Message, MessageKind};
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let Ok(envelope) = Envelope::parse(body) else {
        return;
    };
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        panic!("an envelope that is no JSON");
    };
    assert!(depth(&value) <= Envelope::MAX_DEPTH);
    let values = match &value {
        Value::Array(values) => values.as_slice(),
        single => std::slice::from_ref(single),
    };
    assert_eq!(envelope.is_batch(), value.is_array());
    assert!((1..=Envelope::MAX_BATCH).contains(&envelope.messages().len()));
    assert_eq!(envelope.messages().len(), values.len());
    for (message, value) in envelope.messages().iter().zip(values) {
        check(message, value);
    }
    let initialize = values
        .iter()
        .any(|value| value["method"] == "initialize" && value.get("id").is_some());
    assert_eq!(envelope.find_request("initialize").is_some(), initialize);
    // Only that it does not panic: what is modern is the crate's own rule.
    let _ = envelope.is_modern();
});

fn check(message: &Message<'_>, value: &Value) {
    assert_eq!(value["jsonrpc"], "2.0");
    assert_eq!(message.method(), value["method"].as_str());
    let (id, error) = match message.kind() {
        MessageKind::Request { id, .. } => (Some(id), None),
        MessageKind::Notification { .. } => (None, None),
        MessageKind::Response { id, error } => (Some(id), Some(*error)),
    };
    let read = id.map(|id| serde_json::from_str::<Value>(id.as_json()).expect("an id is JSON"));
    assert_eq!(read.as_ref(), value.get("id"));
    assert!(read.is_none_or(|id| !id.is_object() && !id.is_array() && !id.is_boolean()));
    if let Some(error) = error {
        assert_eq!(value.get("error").is_some(), error);
        assert_eq!(value.get("result").is_some(), !error);
    }
    let params = &value["params"];
    assert_eq!(message.name().as_deref(), params["name"].as_str());
    let version = message.protocol_version();
    assert_eq!(version.as_deref(), params["protocolVersion"].as_str());
    let version = message.meta_version();
    let key = "io.modelcontextprotocol/protocolVersion";
    assert_eq!(version.as_deref(), params["_meta"][key].as_str());
    let capabilities = message.capabilities();
    let capabilities = capabilities.map(|json| serde_json::from_str::<Value>(json).expect("JSON"));
    assert_eq!(
        capabilities.as_ref().filter(|value| !value.is_null()),
        params.get("capabilities").filter(|value| !value.is_null())
    );
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
