//! How deep the calls go in which a compiler follows names: `$ref`s of a schema, rules of a grammar. Each is a call within a
//! call, as a bracket is.
//!
//! Invariant: names are followed as compilers do, each once where it is met first; nothing here calls itself for a name.

use std::collections::HashMap;

use serde_json::Value;

use super::locate;

/// A part that has a name.
#[derive(Debug, Default)]
struct Part {
    /// How deep it nests by itself.
    depth: usize,
    /// The parts that it names, in order.
    named: Vec<usize>,
}

/// For a schema.
pub(super) fn of_schema(schema: &Value) -> usize {
    let (mut parts, mut numbers) = (Vec::new(), HashMap::from([(String::new(), 0)]));
    let mut found = vec![schema];
    while parts.len() < found.len() {
        let mut part = Part::default();
        read_schema(found[parts.len()], 1, &mut part.depth, &mut |name| {
            // Whoever compiles it says what is wrong with one that leads nowhere.
            let Some(target) = schema.pointer(name) else { return };
            let number = *numbers.entry(name.to_owned()).or_insert_with(|| {
                found.push(target);
                found.len() - 1
            });
            part.named.push(number);
        });
        parts.push(part);
    }
    deepest(&parts)
}

/// Notes how deep a schema nests, which is bounded, and calls `meet` with each local pointer.
fn read_schema<'a>(schema: &'a Value, depth: usize, deepest: &mut usize, meet: &mut impl FnMut(&'a str)) {
    *deepest = (*deepest).max(depth);
    match schema {
        Value::Object(entries) => {
            for (key, value) in entries {
                match value.as_str().and_then(|name| name.strip_prefix('#')) {
                    Some(pointer) if key == "$ref" => meet(pointer),
                    _ if ["$defs", "definitions"].contains(&key.as_str()) => {}
                    _ => read_schema(value, depth + 1, deepest, meet),
                }
            }
        }
        Value::Array(entries) => {
            for entry in entries {
                read_schema(entry, depth + 1, deepest, meet);
            }
        }
        _ => {}
    }
}

/// For a grammar in Lark's form. Words in texts count as names: the chain is found longer, never shorter.
pub(super) fn of_grammar(text: &str) -> usize {
    let definitions: Vec<(&str, &str)> = definitions(text);
    let numbers: HashMap<&str, usize> = definitions.iter().map(|(name, _)| *name).zip(0..).collect();
    let part = |(_, body): &(&str, &str)| {
        let words = body.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        Part {
            depth: locate::depth(body),
            named: words.filter_map(|word| numbers.get(word).copied()).collect(),
        }
    };
    let mut parts: Vec<Part> = definitions.iter().map(part).collect();
    // What nothing names is compiled too.
    parts.push(Part { depth: 0, named: (0..definitions.len()).collect() });
    let last = parts.len() - 1;
    if let Some(start) = numbers.get("start") {
        parts[last].named.insert(0, *start);
    }
    parts.rotate_right(1);
    parts.iter_mut().for_each(|part| part.named.iter_mut().for_each(|number| *number += 1));
    deepest(&parts)
}

/// Each rule's name, and what stands between its colon and the next rule.
fn definitions(text: &str) -> Vec<(&str, &str)> {
    let mut starts: Vec<(usize, usize, &str)> = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches([' ', '\t', '?', '!']).len();
        let rest = &line[indent..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        // Attributes, parameters and priorities stand before the colon.
        let colon = rest.find(':').filter(|_| end > 0 && !rest[end..].starts_with(['"', '/']));
        if let Some(colon) = colon {
            starts.push((offset, offset + indent + colon + 1, &rest[..end]));
        }
        offset += line.len();
    }
    let ends = starts.iter().skip(1).map(|(start, _, _)| *start).chain([text.len()]);
    starts.iter().zip(ends).map(|((_, body, name), end)| (*name, &text[*body..end.max(*body)])).collect()
}

/// The deepest that the first part leads to.
fn deepest(parts: &[Part]) -> usize {
    let mut was_met = vec![false; parts.len()];
    let (mut open, mut most) = (vec![(0, 0)], 0);
    while let Some((number, depth)) = open.pop() {
        if !std::mem::replace(&mut was_met[number], true) {
            let depth = depth + 1 + parts[number].depth;
            most = most.max(depth);
            open.extend(parts[number].named.iter().rev().map(|named| (*named, depth)));
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_a_schema_are_followed() {
        assert_eq!(of_schema(&json!({ "type": "null" })), 3);
        let chain = |n: usize| {
            let link = |i: usize| (format!("d{i}"), json!({ "$ref": format!("#/$defs/d{}", i + 1) }));
            let mut defs: serde_json::Map<String, Value> = (0..n).map(link).collect();
            defs.insert(format!("d{n}"), json!({}));
            json!({ "$ref": "#/$defs/d0", "$defs": defs })
        };
        assert!(of_schema(&chain(5000)) > 10_000, "and no stack overflows");
        let tree = json!({ "$ref": "#/$defs/t", "$defs": { "t": { "items": { "$ref": "#/$defs/t" } } } });
        assert_eq!(of_schema(&tree), 5, "what names itself is met once");
        assert_eq!(of_schema(&json!({ "$ref": "#/$defs/none" })), 2);
    }

    #[test]
    fn names_of_a_grammar_are_followed() {
        let chain = |n: usize| {
            let rules: String = (0..n).map(|i| format!("a{i}: (a{})\n", i + 1)).collect();
            format!("start: a0\n{rules}a{n}: \"x\"\n")
        };
        assert!(of_grammar(&chain(3000)) > 6000, "and no stack overflows");
        assert!(of_grammar(&chain(3)) < 12);
        assert!(of_grammar("start: a\na: a a | \"x\"\n") < 6);
        assert!(of_grammar("").max(of_grammar("nonsense")).max(of_grammar(":::\n/:\"")) < 4);
        let split = "?start[capture=\"x\"]: a\n  | b\nb: \"x\"\n";
        assert_eq!(definitions(split), [("start", " a\n  | b\n"), ("b", " \"x\"\n")]);
    }
}
