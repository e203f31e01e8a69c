//! The typed key-value pairs of a GGUF header, in file order. A getter never converts silently: what it cannot give
//! exactly is an error that names the key.

use super::value::{Array, Value};

/// Why a key has no usable value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The key is not in the file.
    #[error(
        "the model file has no metadata key {key} ({wanted} was expected); use a file converted by a current llama.cpp"
    )]
    Missing {
        /// The key.
        key: String,
        /// What it should hold.
        wanted: &'static str,
    },
    /// The key holds another type.
    #[error("metadata key {key} is {found}, but {wanted} was expected")]
    WrongType {
        /// The key.
        key: String,
        /// What it holds.
        found: String,
        /// What it should hold.
        wanted: &'static str,
    },
    /// The key holds a number that does not fit.
    #[error("metadata key {key} holds {found}, but {wanted} was expected")]
    OutOfRange {
        /// The key.
        key: String,
        /// What it holds.
        found: i128,
        /// What it should hold.
        wanted: &'static str,
    },
}

/// The key-value pairs of a header, in file order; keys are unique.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
}

impl Metadata {
    pub(super) fn new(entries: Vec<(String, Value)>) -> Self {
        Self { entries }
    }

    /// Gives a key a value, in place of what it had.
    pub fn set(&mut self, key: &str, value: Value) {
        match self.entries.iter_mut().find(|(entry, _)| entry == key) {
            Some((_, old)) => *old = value,
            None => self.entries.push((key.into(), value)),
        }
    }

    /// Leaves out the keys that a predicate holds for.
    pub fn remove(&mut self, is_unwanted: impl Fn(&str) -> bool) {
        self.entries.retain(|(key, _)| !is_unwanted(key));
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(entry, _)| entry == key).map(|(_, value)| value)
    }

    /// An integer of any width that fits 32 bits unsigned.
    pub fn u32(&self, key: &str) -> Result<u32, MetadataError> {
        required(key, UNSIGNED_32, self.opt_u32(key)?)
    }

    /// Like [`Self::u32`]; `None` where the key is absent.
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>, MetadataError> {
        let Some(integer) = self.typed(key, UNSIGNED_32, Value::as_integer)? else { return Ok(None) };
        let fits = u32::try_from(integer).ok().ok_or_else(|| out_of_range(key, integer, UNSIGNED_32))?;
        Ok(Some(fits))
    }

    /// An integer of any width that fits 64 bits unsigned.
    pub fn u64(&self, key: &str) -> Result<u64, MetadataError> {
        required(key, UNSIGNED_64, self.opt_u64(key)?)
    }

    /// Like [`Self::u64`]; `None` where the key is absent.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>, MetadataError> {
        let Some(integer) = self.typed(key, UNSIGNED_64, Value::as_integer)? else { return Ok(None) };
        let fits = u64::try_from(integer).ok().ok_or_else(|| out_of_range(key, integer, UNSIGNED_64))?;
        Ok(Some(fits))
    }

    /// A floating-point number of 32 bits, or of 64 and then rounded; it may be infinite or NaN.
    pub fn f32(&self, key: &str) -> Result<f32, MetadataError> {
        required(key, FLOAT, self.opt_f32(key)?)
    }

    /// Like [`Self::f32`]; `None` where the key is absent.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>, MetadataError> {
        self.typed(key, FLOAT, |value| match value {
            Value::F32(number) => Some(*number),
            Value::F64(number) => Some(*number as f32),
            _ => None,
        })
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<bool, MetadataError> {
        required(key, BOOL, self.opt_bool(key)?)
    }

    /// Like [`Self::bool`]; `None` where the key is absent.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, MetadataError> {
        self.typed(key, BOOL, |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// A text.
    pub fn str(&self, key: &str) -> Result<&str, MetadataError> {
        required(key, STRING, self.opt_str(key)?)
    }

    /// Like [`Self::str`]; `None` where the key is absent.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, MetadataError> {
        self.typed(key, STRING, |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// An array of texts.
    pub fn strings(&self, key: &str) -> Result<&[String], MetadataError> {
        required(key, STRINGS, self.opt_strings(key)?)
    }

    /// Like [`Self::strings`]; `None` where the key is absent.
    pub fn opt_strings(&self, key: &str) -> Result<Option<&[String]>, MetadataError> {
        self.typed(key, STRINGS, |value| match value {
            Value::Array(Array::String(texts)) => Some(texts.as_slice()),
            _ => None,
        })
    }

    /// An array of integers of any width that fit 32 bits signed, as a new vector.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>, MetadataError> {
        required(key, SIGNED_32S, self.opt_i32s(key)?)
    }

    /// Like [`Self::i32s`]; `None` where the key is absent.
    pub fn opt_i32s(&self, key: &str) -> Result<Option<Vec<i32>>, MetadataError> {
        match self.typed(key, SIGNED_32S, |value| match value {
            Value::Array(array) => array.integers(),
            _ => None,
        })? {
            None => Ok(None),
            Some(integers) => integers
                .map(|integer| {
                    i32::try_from(integer).ok().ok_or_else(|| out_of_range(key, integer, SIGNED_32S))
                })
                .collect::<Result<_, _>>()
                .map(Some),
        }
    }

    /// An array of floating-point numbers, 64 bits rounded to 32, as a new vector.
    pub fn f32s(&self, key: &str) -> Result<Vec<f32>, MetadataError> {
        required(key, FLOATS, self.opt_f32s(key)?)
    }

    /// Like [`Self::f32s`]; `None` where the key is absent.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<Vec<f32>>, MetadataError> {
        self.typed(key, FLOATS, |value| match value {
            Value::Array(Array::F32(numbers)) => Some(numbers.clone()),
            Value::Array(Array::F64(numbers)) => Some(numbers.iter().map(|number| *number as f32).collect()),
            _ => None,
        })
    }

    /// Moves an array of texts out, such as a vocabulary; the key is then absent.
    pub fn take_strings(&mut self, key: &str) -> Result<Vec<String>, MetadataError> {
        required(key, STRINGS, self.opt_take_strings(key)?)
    }

    /// Like [`Self::take_strings`]; `None` where the key is absent.
    pub fn opt_take_strings(&mut self, key: &str) -> Result<Option<Vec<String>>, MetadataError> {
        let Some(index) = self.entries.iter().position(|(entry, _)| entry == key) else { return Ok(None) };
        if let (_, Value::Array(Array::String(texts))) = &mut self.entries[index] {
            let texts = std::mem::take(texts);
            self.entries.remove(index);
            return Ok(Some(texts));
        }
        Err(wrong_type(key, &self.entries[index].1, STRINGS))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        pick: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, MetadataError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => pick(value).map(Some).ok_or_else(|| wrong_type(key, value, wanted)),
        }
    }
}

const UNSIGNED_32: &str = "an integer from 0 to 4294967295";
const UNSIGNED_64: &str = "an integer from 0 to 18446744073709551615";
const FLOAT: &str = "a floating-point number";
const BOOL: &str = "a bool";
const STRING: &str = "a string";
const STRINGS: &str = "an array of strings";
const SIGNED_32S: &str = "an array of integers of 32 bits";
const FLOATS: &str = "an array of floating-point numbers";

fn required<T>(key: &str, wanted: &'static str, value: Option<T>) -> Result<T, MetadataError> {
    value.ok_or_else(|| MetadataError::Missing { key: key.into(), wanted })
}

fn wrong_type(key: &str, value: &Value, wanted: &'static str) -> MetadataError {
    MetadataError::WrongType { key: key.into(), found: value.type_name(), wanted }
}

fn out_of_range(key: &str, found: i128, wanted: &'static str) -> MetadataError {
    MetadataError::OutOfRange { key: key.into(), found, wanted }
}
