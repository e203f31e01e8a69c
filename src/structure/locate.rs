//! Where in a schema the fault lies that a compiler tells without its place.
//!
//! Invariant: few parts are tried, whatever the schema's size.

use serde_json::Value;

/// Most parts that are compiled by themselves to find the place.
const MAX_TRIES: usize = 200;
/// Keywords whose values are schemas by name.
const BY_NAME: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Keywords whose values are a schema, or several in order.
const BY_PLACE: [&str; 8] = [
    "items",
    "prefixItems",
    "anyOf",
    "oneOf",
    "allOf",
    "additionalProperties",
    "additionalItems",
    "unevaluatedProperties",
];

/// The JSON pointer of the innermost part that by itself has the fault; none where that is the whole.
pub(super) fn fault(schema: &Value, mut has_fault: impl FnMut(Value) -> bool) -> Option<String> {
    let (mut place, mut part, mut n_tries) = (String::new(), schema, 0);
    'deeper: loop {
        for (step, child) in parts(part) {
            n_tries += 1;
            if n_tries > MAX_TRIES {
                return None;
            }
            if has_fault(standing_alone(child, schema)) {
                place.push_str(&step);
                part = child;
                continue 'deeper;
            }
        }
        return (!place.is_empty()).then(|| format!("#{place}"));
    }
}

/// A part with the definitions of the whole, which it may name.
fn standing_alone(part: &Value, whole: &Value) -> Value {
    let mut part = part.clone();
    if let (Value::Object(part), Value::Object(whole)) = (&mut part, whole) {
        for name in ["$defs", "definitions"] {
            if let (Some(definitions), false) = (whole.get(name), part.contains_key(name)) {
                part.insert(name.into(), definitions.clone());
            }
        }
    }
    part
}

/// The schemas right within a schema, each with the end of its pointer.
fn parts(schema: &Value) -> Vec<(String, &Value)> {
    let Value::Object(schema) = schema else { return Vec::new() };
    let mut parts = Vec::new();
    for (keyword, value) in schema {
        let step = |name: &str| format!("/{keyword}/{}", name.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Object(named) if BY_NAME.contains(&keyword.as_str()) => {
                parts.extend(named.iter().map(|(name, part)| (step(name), part)));
            }
            Value::Object(_) if BY_PLACE.contains(&keyword.as_str()) => {
                parts.push((format!("/{keyword}"), value));
            }
            Value::Array(several) if BY_PLACE.contains(&keyword.as_str()) => {
                parts.extend(several.iter().enumerate().map(|(i, part)| (step(&i.to_string()), part)));
            }
            _ => {}
        }
    }
    parts
}

/// How many brackets are open at once at most, whatever they mean.
pub(super) fn depth(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}
