//! `tojson` of chat templates: what Python's `json.dumps` writes with Hugging Face's defaults, so that a model reads
//! its tools as it was trained to. HTML is not escaped.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Deeper values are refused: writing them would need as much stack.
const MAX_DEPTH: usize = 128;

/// Longest text that is written, bytes; twice what any context holds.
const MAX_LEN: usize = 4 << 20;
/// Longest separator, bytes.
const MAX_SEPARATOR: usize = 64;

/// How to write; the default is Hugging Face's.
struct Style {
    ensure_ascii: bool,
    indent: Option<usize>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter: `value|tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(super) fn tojson(value: &Value, ensure_ascii: Option<bool>, options: Kwargs) -> Result<String, Error> {
    let option =
        |name| options.get::<Option<Value>>(name).map(|value| value.filter(|value| !value.is_none()));
    let indent = option("indent")?.map(usize::try_from).transpose()?;
    let ensure_ascii =
        ensure_ascii.map_or_else(|| options.get::<Option<bool>>("ensure_ascii"), |yes| Ok(Some(yes)))?;
    let (item_separator, key_separator) = match option("separators")? {
        Some(pair) => (separator(&pair, 0)?, separator(&pair, 1)?),
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let style = Style {
        ensure_ascii: ensure_ascii.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
        sort_keys,
    };
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    Ok(out)
}

fn refuse(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail.into())
}

fn separator(pair: &Value, index: usize) -> Result<String, Error> {
    let item = pair.get_item_by_index(index)?;
    let text = item.as_str().ok_or_else(|| refuse("tojson: separators must be two strings"))?;
    if text.len() > MAX_SEPARATOR {
        let found = text.len();
        return Err(refuse(format!("tojson: a separator has {found} bytes, at most {MAX_SEPARATOR}")));
    }
    Ok(text.to_owned())
}

impl Style {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(refuse(format!("tojson: the value is nested more than {MAX_DEPTH} deep")));
        }
        let added = value.as_str().map_or(1, str::len);
        if out.len().saturating_add(added) > MAX_LEN {
            return Err(refuse(format!("tojson: the text has more than {MAX_LEN} bytes")));
        }
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write!(out, "{value}").expect("a string takes all text"),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default(), out),
            ValueKind::Map => self.write_map(value, depth, out)?,
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?;
                self.write_items(['[', ']'], depth, items, out, |item, out| {
                    self.write(&item, depth + 1, out)
                })?;
            }
            kind => return Err(refuse(format!("tojson: a {kind} has no JSON form"))),
        }
        Ok(())
    }

    fn write_map(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.write_items(['{', '}'], depth, keys.into_iter(), out, |key, out| {
            self.write_string(&key.to_string(), out);
            out.push_str(&self.key_separator);
            self.write(&value.get_item(&key)?, depth + 1, out)
        })
    }

    fn write_items(
        &self,
        [open, close]: [char; 2],
        depth: usize,
        items: impl Iterator<Item = Value>,
        out: &mut String,
        write_item: impl Fn(Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(open);
        let mut is_empty = true;
        for item in items {
            if !is_empty {
                out.push_str(&self.item_separator);
            }
            self.break_line(depth + 1, out);
            write_item(item, out)?;
            is_empty = false;
        }
        if !is_empty {
            self.break_line(depth, out);
        }
        out.push(close);
        Ok(())
    }

    fn break_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent.min(MAX_DEPTH) * depth));
        }
    }

    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{C}' => out.push_str("\\f"),
                '\0'..='\u{1F}' => write_escape(letter, out),
                _ if self.ensure_ascii && !letter.is_ascii() => write_escape(letter, out),
                _ => out.push(letter),
            }
        }
        out.push('"');
    }
}

/// A character as the escapes of its UTF-16 units.
fn write_escape(letter: char, out: &mut String) {
    for unit in letter.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{unit:04x}").expect("a string takes all text");
    }
}
