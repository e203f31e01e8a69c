//! The values that a GGUF header's keys hold. What is read is bounded by the bytes at hand, never by a count in the file.

use super::cursor::{Cursor, Fault};

/// A metadata value, of the type the file gives it.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is the type it is named after")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// Values of one type. Strings that are not UTF-8 carry U+FFFD where they are broken.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is the type it is named after")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Vec<String>),
}

impl Value {
    /// The type in words, such as `uint32` or `an array of 3 string`.
    pub fn type_name(&self) -> String {
        match self {
            Self::U8(_) => "uint8".into(),
            Self::I8(_) => "int8".into(),
            Self::U16(_) => "uint16".into(),
            Self::I16(_) => "int16".into(),
            Self::U32(_) => "uint32".into(),
            Self::I32(_) => "int32".into(),
            Self::U64(_) => "uint64".into(),
            Self::I64(_) => "int64".into(),
            Self::F32(_) => "float32".into(),
            Self::F64(_) => "float64".into(),
            Self::Bool(_) => "bool".into(),
            Self::String(_) => "string".into(),
            Self::Array(array) => format!("an array of {} {}", array.len(), array.element_name()),
        }
    }

    /// The integer, whatever its width; `None` for other types.
    pub fn as_integer(&self) -> Option<i128> {
        match self {
            Self::U8(value) => Some((*value).into()),
            Self::I8(value) => Some((*value).into()),
            Self::U16(value) => Some((*value).into()),
            Self::I16(value) => Some((*value).into()),
            Self::U32(value) => Some((*value).into()),
            Self::I32(value) => Some((*value).into()),
            Self::U64(value) => Some((*value).into()),
            Self::I64(value) => Some((*value).into()),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => None,
        }
    }

    /// Reads a value of the type with this id.
    pub(super) fn read(cursor: &mut Cursor<'_>, type_id: u32) -> Result<Self, Fault> {
        Ok(match type_id {
            0 => Self::U8(u8::from_le_bytes(cursor.array()?)),
            1 => Self::I8(i8::from_le_bytes(cursor.array()?)),
            2 => Self::U16(u16::from_le_bytes(cursor.array()?)),
            3 => Self::I16(i16::from_le_bytes(cursor.array()?)),
            4 => Self::U32(cursor.u32()?),
            5 => Self::I32(i32::from_le_bytes(cursor.array()?)),
            6 => Self::F32(f32::from_le_bytes(cursor.array()?)),
            7 => Self::Bool(bool_from_byte(u8::from_le_bytes(cursor.array()?))?),
            8 => Self::String(cursor.string()?.to_owned()),
            9 => Self::Array(Array::read(cursor)?),
            10 => Self::U64(cursor.u64()?),
            11 => Self::I64(i64::from_le_bytes(cursor.array()?)),
            12 => Self::F64(f64::from_le_bytes(cursor.array()?)),
            _ => {
                return Err(Fault::Damaged(format!(
                    "its value type is {type_id}, but types go from 0 to 12"
                )));
            }
        })
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::I8(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::I16(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::String(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the elements.
    pub fn element_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "uint8",
            Self::I8(_) => "int8",
            Self::U16(_) => "uint16",
            Self::I16(_) => "int16",
            Self::U32(_) => "uint32",
            Self::I32(_) => "int32",
            Self::U64(_) => "uint64",
            Self::I64(_) => "int64",
            Self::F32(_) => "float32",
            Self::F64(_) => "float64",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
        }
    }

    /// The integers, whatever their width; `None` for other types.
    pub(super) fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        fn widen<T: Copy + Into<i128>>(values: &[T]) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
            Some(Box::new(values.iter().map(|value| (*value).into())))
        }
        match self {
            Self::U8(values) => widen(values),
            Self::I8(values) => widen(values),
            Self::U16(values) => widen(values),
            Self::I16(values) => widen(values),
            Self::U32(values) => widen(values),
            Self::I32(values) => widen(values),
            Self::U64(values) => widen(values),
            Self::I64(values) => widen(values),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) => None,
        }
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Fault> {
        let type_id = cursor.u32()?;
        let count = cursor.u64()?;
        Ok(match type_id {
            0 => Self::U8(cursor.numbers(count, u8::from_le_bytes)?),
            1 => Self::I8(cursor.numbers(count, i8::from_le_bytes)?),
            2 => Self::U16(cursor.numbers(count, u16::from_le_bytes)?),
            3 => Self::I16(cursor.numbers(count, i16::from_le_bytes)?),
            4 => Self::U32(cursor.numbers(count, u32::from_le_bytes)?),
            5 => Self::I32(cursor.numbers(count, i32::from_le_bytes)?),
            6 => Self::F32(cursor.numbers(count, f32::from_le_bytes)?),
            7 => Self::Bool(
                cursor.take(count)?.iter().map(|byte| bool_from_byte(*byte)).collect::<Result<_, _>>()?,
            ),
            8 => Self::String(read_strings(cursor, count)?),
            9 => return Err(Fault::Damaged("it is an array of arrays, which no model file needs".into())),
            10 => Self::U64(cursor.numbers(count, u64::from_le_bytes)?),
            11 => Self::I64(cursor.numbers(count, i64::from_le_bytes)?),
            12 => Self::F64(cursor.numbers(count, f64::from_le_bytes)?),
            _ => {
                return Err(Fault::Damaged(format!(
                    "its element type is {type_id}, but types go from 0 to 12"
                )));
            }
        })
    }
}

fn bool_from_byte(byte: u8) -> Result<bool, Fault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Fault::Damaged(format!("a bool is {byte}, but must be 0 or 1"))),
    }
}

/// Strings of an array. A vocabulary may hold pieces that are not UTF-8; their ids matter, so they are kept.
fn read_strings(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<String>, Fault> {
    const MIN_STRING_BYTES: u64 = 8;
    cursor.expect(count.saturating_mul(MIN_STRING_BYTES))?;
    (0..count).map(|_| Ok(String::from_utf8_lossy(cursor.string_bytes()?).into_owned())).collect()
}
