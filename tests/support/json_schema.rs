//! Whether a value is what a schema describes, by the words of the schemas that tests use and no others.
#![allow(unreachable_pub, reason = "every test file uses its own part of this")]

use serde_json::Value;

/// Panics unless `value` is what `schema` describes; `root` is what references lead to.
pub fn assert_valid(schema: &Value, root: &Value, value: &Value) {
    if let Err(fault) = check(schema, root, value) {
        panic!("{value} is not what {schema} describes: {fault}");
    }
}

fn check(schema: &Value, root: &Value, value: &Value) -> Result<(), String> {
    let schema = schema.as_object().expect("schemas of tests are objects");
    for (keyword, wanted) in schema {
        let holds = match keyword.as_str() {
            "$defs" => true,
            "$ref" => {
                let pointer = wanted.as_str().unwrap().trim_start_matches('#');
                check(root.pointer(pointer).unwrap(), root, value)?;
                true
            }
            "type" => is_of_type(wanted.as_str().unwrap(), value),
            "enum" => wanted.as_array().unwrap().contains(value),
            "const" => wanted == value,
            "anyOf" | "oneOf" => {
                let fit = wanted.as_array().unwrap().iter().filter(|part| check(part, root, value).is_ok());
                let n_fit = fit.count();
                if keyword == "oneOf" { n_fit == 1 } else { n_fit > 0 }
            }
            "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap()),
            "multipleOf" => value.as_f64().is_none_or(|number| number % wanted.as_f64().unwrap() == 0.0),
            "maxLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 <= count(wanted)),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= count(wanted)),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= count(wanted)),
            "pattern" => {
                let pattern = regex_automata::meta::Regex::new(wanted.as_str().unwrap()).unwrap();
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "items" => {
                value.as_array().into_iter().flatten().try_for_each(|item| check(wanted, root, item))?;
                true
            }
            "properties" => {
                let named = wanted.as_object().unwrap().iter();
                named
                    .filter_map(|(name, part)| Some((part, value.get(name)?)))
                    .try_for_each(|(part, value)| check(part, root, value))?;
                true
            }
            "required" => {
                wanted.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "additionalProperties" => {
                assert_eq!(wanted, &Value::Bool(false), "tests allow all or none");
                let known = schema["properties"].as_object().unwrap();
                value.as_object().is_none_or(|object| object.keys().all(|name| known.contains_key(name)))
            }
            other => panic!("tests do not know {other}"),
        };
        if !holds {
            return Err(format!("{keyword} is {wanted}, found {value}"));
        }
    }
    Ok(())
}

fn count(wanted: &Value) -> u64 {
    wanted.as_u64().unwrap()
}

fn is_of_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("there is no type {other}"),
    }
}
