//! A batch of prompts from a file: one JSON string a line. A line that is none is refused by its number, never left out.

use serde_json::Value;

/// Characters of a line that are shown where it is refused.
const SHOWN_CHARS: usize = 60;

/// The prompts of a file's text, at least one, or one sentence on what is wrong with it. Blank lines are ignored.
pub(super) fn parse(text: &str) -> Result<Vec<String>, String> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompts: Vec<String> =
        lines.map(|(index, line)| prompt(index + 1, line.trim())).collect::<Result<_, _>>()?;
    if prompts.is_empty() {
        return Err(
            "there is no prompt in it; write one JSON string a line, such as \"Once upon a time\"".into()
        );
    }
    Ok(prompts)
}

fn prompt(number: usize, line: &str) -> Result<String, String> {
    let found = match serde_json::from_str(line) {
        Ok(Value::String(prompt)) => return Ok(prompt),
        Ok(Value::Null) => "null".into(),
        Ok(Value::Bool(_)) => "true or false".into(),
        Ok(Value::Number(_)) => "a number".into(),
        Ok(Value::Array(_)) => "an array".into(),
        Ok(Value::Object(_)) => "an object".into(),
        // Each line is a text of its own, so its line is always the first.
        Err(error) => error.to_string().replace("line 1 column", "column"),
    };
    Err(format!(
        "line {number} must be a JSON string, such as \"Once upon a time\", with \\n for a new line; found {} ({found})",
        shown(line)
    ))
}

/// The start of a line, fit to be shown.
fn shown(line: &str) -> String {
    let cut = if line.chars().count() > SHOWN_CHARS { "…" } else { "" };
    line.chars().take(SHOWN_CHARS).filter(|c| !c.is_control()).chain(cut.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_a_line_in_order() {
        let text = "\u{feff}\"a \\\"b\\\"\\n\"\r\n\n  \t\n  \"\\u00e9\" \n\"\"";
        assert_eq!(parse(text), Ok(vec!["a \"b\"\n".into(), "é".into(), String::new()]));
    }

    #[test]
    fn what_is_no_string_is_refused_by_its_line() {
        let long = "x".repeat(100);
        for (text, expected) in [
            ("", "there is no prompt in it; write one JSON string a line"),
            ("\n \n", "there is no prompt in it"),
            ("\"a\"\n\nhello there\n", "line 3 must be a JSON string, such as"),
            ("hello there", "found hello there (expected value at column 1)"),
            ("\"a\"\n{\"prompt\": \"b\"}", "found {\"prompt\": \"b\"} (an object)"),
            ("\"a\" \"b\"", "found \"a\" \"b\" (trailing characters at column 5)"),
            ("\"a", "found \"a (EOF while parsing a string at column 2)"),
            ("[\"a\"]", "found [\"a\"] (an array)"),
            ("7", "found 7 (a number)"),
            ("null", "found null (null)"),
            ("\u{1b}[2J", "found [2J (expected value at column 1)"),
            (&long, &format!("found {}… (", "x".repeat(60))),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
