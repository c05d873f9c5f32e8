//! What the conformance tests ask for by name, as it is on the wire.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// One red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// No samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// As rmcp has it.
pub fn read<T: DeserializeOwned>(value: &Value) -> T {
    T::deserialize(value).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn text_item(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn embedded(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}

/// A tool's answer of one text.
pub fn text(text: &str) -> Value {
    json!({"content": [text_item(text)]})
}

pub fn tools() -> Value {
    let plain = json!({"type": "object", "properties": {}});
    let of_text = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
    let dialect = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"type": "object", "properties": {
            "street": {"type": "string"}, "city": {"type": "string"}}}},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "additionalProperties": false,
    });
    let tools = [
        ("test_simple_text", &plain),
        ("test_image_content", &plain),
        ("test_audio_content", &plain),
        ("test_embedded_resource", &plain),
        ("test_multiple_content_types", &plain),
        ("test_error_handling", &plain),
        ("test_tool_with_logging", &plain),
        ("test_tool_with_progress", &plain),
        ("test_reconnection", &plain),
        ("test_sampling", &of_text("prompt")),
        ("test_elicitation", &of_text("message")),
        ("test_elicitation_sep1034_defaults", &plain),
        ("test_elicitation_sep1330_enums", &plain),
        ("json_schema_2020_12_tool", &dialect),
    ];
    let tools = tools.map(|(name, schema)| {
        json!({"name": name, "description": "What the tests ask for", "inputSchema": schema})
    });
    json!({ "tools": tools })
}

/// The answer of a tool that does nothing else.
pub fn tool(name: &str) -> Option<Value> {
    Some(match name {
        "test_simple_text" => text("This is a simple text response for testing."),
        "test_image_content" => json!({"content": [image()]}),
        "test_audio_content" => {
            json!({"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]})
        }
        "test_embedded_resource" => {
            json!({"content": [embedded("test://embedded-resource", "text/plain", "embedded")]})
        }
        "test_multiple_content_types" => {
            let uri = "test://mixed-content-resource";
            json!({"content": [text_item("several"), image(),
                embedded(uri, "application/json", "{\"test\":\"data\"}")]})
        }
        "test_error_handling" => {
            json!({"isError": true, "content": [text_item("an error, as it was asked for")]})
        }
        "json_schema_2020_12_tool" => text("done"),
        _ => return None,
    })
}

fn form(message: &Value, properties: &Value) -> Value {
    json!({"mode": "form", "message": message,
        "requestedSchema": {"type": "object", "properties": properties}})
}

pub fn contact(message: &Value) -> Value {
    form(
        message,
        &json!({"username": {"type": "string"}, "email": {"type": "string"}}),
    )
}

pub fn defaults() -> Value {
    form(
        &"defaults".into(),
        &json!({
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"],
                "default": "active"},
            "verified": {"type": "boolean", "default": true},
        }),
    )
}

pub fn enums() -> Value {
    let options = json!(["option1", "option2", "option3"]);
    let titled = json!([
        {"const": "value1", "title": "First"},
        {"const": "value2", "title": "Second"},
        {"const": "value3", "title": "Third"},
    ]);
    form(
        &"enums".into(),
        &json!({
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["One", "Two", "Three"]},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        }),
    )
}

pub fn prompts() -> Value {
    let argument = |name: &str| json!({"name": name, "description": "a text", "required": true});
    let prompts = [
        ("test_simple_prompt", json!([])),
        (
            "test_prompt_with_arguments",
            json!([argument("arg1"), argument("arg2")]),
        ),
        (
            "test_prompt_with_embedded_resource",
            json!([argument("resourceUri")]),
        ),
        ("test_prompt_with_image", json!([])),
    ];
    let prompts = prompts.map(|(name, arguments)| {
        json!({"name": name, "description": "What the tests ask for", "arguments": arguments})
    });
    json!({ "prompts": prompts })
}

pub fn prompt(name: &str, arguments: &Value) -> Option<Value> {
    let argument = |name: &str| arguments[name].as_str().unwrap_or_default();
    let contents = match name {
        "test_simple_prompt" => vec![text_item("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1"), argument("arg2"));
            let text = format!("Prompt with arguments: arg1='{one}', arg2='{two}'");
            vec![text_item(&text)]
        }
        "test_prompt_with_embedded_resource" => vec![
            embedded(argument("resourceUri"), "text/plain", "embedded"),
            text_item("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![image(), text_item("Please analyze the image above.")],
        _ => return None,
    };
    let messages = contents
        .into_iter()
        .map(|content| json!({"role": "user", "content": content}));
    Some(json!({"messages": messages.collect::<Vec<_>>()}))
}

pub fn resources() -> Value {
    let resource = |uri: &str, kind: &str| json!({"uri": uri, "name": uri, "description": "What the tests ask for", "mimeType": kind});
    json!({"resources": [
        resource("test://static-text", "text/plain"),
        resource("test://static-binary", "image/png"),
        resource("test://watched-resource", "text/plain"),
    ]})
}

pub fn templates() -> Value {
    json!({"resourceTemplates": [{"uriTemplate": "test://template/{id}/data", "name": "data",
        "description": "What the tests ask for", "mimeType": "application/json"}]})
}

pub fn resource(uri: &str) -> Option<Value> {
    let contents = match uri {
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": PNG}),
        "test://static-text" | "test://watched-resource" => {
            json!({"uri": uri, "mimeType": "text/plain", "text": "static"})
        }
        _ => {
            let id = uri
                .strip_prefix("test://template/")?
                .strip_suffix("/data")?;
            let text = json!({"id": id, "templateTest": true}).to_string();
            json!({"uri": uri, "mimeType": "application/json", "text": text})
        }
    };
    Some(json!({"contents": [contents]}))
}
