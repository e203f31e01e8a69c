//! A conversation from a JSON file, as chat APIs write it. What is not understood is refused by its place, never left out.

use serde_json::{Map, Value};

use crate::protocol::{ContentPart, Message, ToolCall};

/// The messages of a file's text, or one sentence on what is wrong with it.
pub(super) fn parse(json: &str) -> Result<Vec<Message>, String> {
    // Some editors begin a file with a byte order mark.
    let json = json.strip_prefix('\u{feff}').unwrap_or(json);
    let value: Value = serde_json::from_str(json).map_err(|error| format!("it is not JSON: {error}"))?;
    let Value::Array(messages) = value else {
        return Err(wrong("it", "an array of messages", &value));
    };
    messages.iter().enumerate().map(|(i, value)| message(&format!("messages[{i}]"), value)).collect()
}

fn message(place: &str, value: &Value) -> Result<Message, String> {
    let fields = object(place, value, &["role", "content", "tool_calls"])?;
    let role = match fields.get("role") {
        Some(Value::String(role)) => role.clone(),
        found => return Err(wrong(&format!("{place}.role"), "a string", found.unwrap_or(&Value::Null))),
    };
    let content = content(&format!("{place}.content"), fields.get("content"))?;
    let tool_calls = match fields.get("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) => {
            let each = calls
                .iter()
                .enumerate()
                .map(|(i, call)| tool_call(&format!("{place}.tool_calls[{i}]"), call));
            each.collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong(&format!("{place}.tool_calls"), "an array", other)),
    };
    if tool_calls.is_empty() && !fields.contains_key("content") {
        return Err(format!("{place} has neither content nor tool_calls"));
    }
    Ok(Message { role, content, tool_calls })
}

fn content(place: &str, value: Option<&Value>) -> Result<Vec<ContentPart>, String> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![ContentPart::Text(text.clone())]),
        Some(Value::Array(parts)) => {
            parts.iter().enumerate().map(|(i, value)| part(&format!("{place}[{i}]"), value)).collect()
        }
        Some(other) => Err(wrong(place, "a string or an array of parts", other)),
    }
}

fn part(place: &str, value: &Value) -> Result<ContentPart, String> {
    let fields = object(place, value, &["type", "text"])?;
    match (fields.get("type"), fields.get("text")) {
        (Some(Value::String(kind)), Some(Value::String(text))) if kind == "text" => {
            Ok(ContentPart::Text(text.clone()))
        }
        _ => Err(wrong(place, "{\"type\": \"text\", \"text\": \"…\"}", value)),
    }
}

/// `{"id", "type": "function", "function": {"name", "arguments"}}`; arguments are an object, or JSON in a string.
fn tool_call(place: &str, value: &Value) -> Result<ToolCall, String> {
    let fields = object(place, value, &["id", "type", "function"])?;
    let place = format!("{place}.function");
    let function = object(&place, fields.get("function").unwrap_or(&Value::Null), &["name", "arguments"])?;
    let Some(Value::String(name)) = function.get("name") else {
        return Err(wrong(
            &format!("{place}.name"),
            "a string",
            function.get("name").unwrap_or(&Value::Null),
        ));
    };
    let arguments = match function.get("arguments") {
        Some(Value::String(json)) => json.clone(),
        Some(object @ Value::Object(_)) => object.to_string(),
        found => {
            let wanted = "an object, or one as a string";
            return Err(wrong(&format!("{place}.arguments"), wanted, found.unwrap_or(&Value::Null)));
        }
    };
    let id = fields.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(ToolCall { id, name: name.clone(), arguments })
}

fn object<'a>(place: &str, value: &'a Value, known: &[&str]) -> Result<&'a Map<String, Value>, String> {
    let fields = value.as_object().ok_or_else(|| wrong(place, "an object", value))?;
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        Some(field) => {
            Err(format!("{place} has a field {field:?}, but only {} are understood", known.join(", ")))
        }
        None => Ok(fields),
    }
}

fn wrong(place: &str, wanted: &str, found: &Value) -> String {
    let found = match found {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "another object",
    };
    format!("{place} must be {wanted}; found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_understood() {
        let json = r#"[
            {"role": "system", "content": ""},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
                {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{}"}}
            ]}
        ]"#;
        let call = |id: &str, name: &str, arguments: &str| ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        };
        let messages = parse(json).unwrap();
        assert_eq!(messages[0], Message::text("system", ""));
        assert_eq!((messages[1].role.as_str(), messages[1].joined_text()), ("user", "ab".into()));
        assert_eq!(messages[2].tool_calls, [call("1", "f", r#"{"x":1}"#), call("2", "g", "{}")]);
    }

    #[test]
    fn what_is_refused_is_named() {
        for (json, expected) in [
            ("[", "it is not JSON: EOF"),
            ("{}", "it must be an array of messages; found another object"),
            ("[1]", "messages[0] must be an object; found a number"),
            (r#"[{"content": "x"}]"#, "messages[0].role must be a string; found nothing"),
            (r#"[{"role": "user"}]"#, "messages[0] has neither content nor tool_calls"),
            (
                r#"[{"role": "user", "content": 1}]"#,
                "messages[0].content must be a string or an array of parts",
            ),
            (
                r#"[{"role": "user", "content": [{"type": "image_url"}]}]"#,
                "messages[0].content[0] must be {\"type\": \"text\"",
            ),
            (r#"[{"role": "user", "content": "x", "name": "y"}]"#, "messages[0] has a field \"name\""),
            (
                r#"[{"role": "a", "tool_calls": [{}]}]"#,
                "messages[0].tool_calls[0].function must be an object; found nothing",
            ),
        ] {
            let error = parse(json).unwrap_err();
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
