//! The fields of a `config.json`, each read as the type it must have; an error names the field and what was found.

use serde_json::{Map, Value};

use super::HuggingFaceError;

/// The fields of one JSON object of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// The fields that lead to the object, such as `rope_parameters.`.
    path: &'a str,
}

/// Shown of a value that is not what it should be.
const MAX_SHOWN_CHARS: usize = 60;

impl<'a> Fields<'a> {
    pub(super) fn new(map: &'a Map<String, Value>) -> Self {
        Self { map, path: "" }
    }

    pub(super) fn of(map: &'a Map<String, Value>, path: &'a str) -> Self {
        Self { map, path }
    }

    /// The value, `null` as it stands.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.map.get(field)
    }

    /// The value; `null` is as good as none.
    pub(super) fn some(&self, field: &str) -> Option<&'a Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// A whole number.
    pub(super) fn u64(&self, field: &str) -> Result<Option<u64>, HuggingFaceError> {
        self.typed(field, "a whole number of 0 or more", |value| {
            // Some writers make 4096.0 of 4096.
            let whole = |number: &f64| number.fract() == 0.0 && (0.0..9e15).contains(number);
            value.as_u64().or_else(|| value.as_f64().filter(whole).map(|number| number as u64))
        })
    }

    /// A number; JSON has no NaN and no infinity.
    pub(super) fn f64(&self, field: &str) -> Result<Option<f64>, HuggingFaceError> {
        self.typed(field, "a number", Value::as_f64)
    }

    /// A truth value.
    pub(super) fn bool(&self, field: &str) -> Result<Option<bool>, HuggingFaceError> {
        self.typed(field, "true or false", Value::as_bool)
    }

    /// A text.
    pub(super) fn str(&self, field: &str) -> Result<Option<&'a str>, HuggingFaceError> {
        self.typed(field, "a text", Value::as_str)
    }

    /// An object.
    pub(super) fn object(&self, field: &str) -> Result<Option<&'a Map<String, Value>>, HuggingFaceError> {
        self.typed(field, "an object", Value::as_object)
    }

    /// A list of texts.
    pub(super) fn strings(&self, field: &str) -> Result<Option<Vec<&'a str>>, HuggingFaceError> {
        self.typed(field, "a list of texts", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    /// A list of numbers.
    pub(super) fn numbers(&self, field: &str) -> Result<Option<Vec<f64>>, HuggingFaceError> {
        self.typed(field, "a list of numbers", |value| value.as_array()?.iter().map(Value::as_f64).collect())
    }

    /// A number that is there and above zero.
    pub(super) fn positive(&self, field: &str) -> Result<f64, HuggingFaceError> {
        match self.f64(field)? {
            Some(number) if number > 0.0 => Ok(number),
            Some(number) => Err(self.wrong(field, &number.to_string(), "a number above 0")),
            None => Err(self.wrong(field, "missing", "a number above 0")),
        }
    }

    /// An error about a field.
    pub(super) fn wrong(&self, field: &str, found: &str, wanted: &str) -> HuggingFaceError {
        let field = format!("{}{field}", self.path);
        HuggingFaceError::Field { field, found: found.into(), wanted: wanted.into() }
    }

    fn typed<T>(
        &self,
        field: &str,
        wanted: &str,
        pick: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, HuggingFaceError> {
        let Some(value) = self.some(field) else { return Ok(None) };
        let wrong = || self.wrong(field, &shown(value), wanted);
        pick(value).map(Some).ok_or_else(wrong)
    }
}

/// The start of a value's JSON.
pub(super) fn shown(value: &Value) -> String {
    let json = value.to_string();
    match json.char_indices().nth(MAX_SHOWN_CHARS) {
        None => json,
        Some((end, _)) => format!("{}…", &json[..end]),
    }
}
