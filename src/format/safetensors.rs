//! The header of a safetensors file: what it holds and where. A header that parses is consistent with itself and with the
//! file's length: every byte of the data belongs to exactly one tensor, as the format's own reader demands.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::block::BlockType;
use super::gguf::quoted;

/// Longest header that is read, the format's own limit.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Bytes of the header's length.
const LENGTH_BYTES: u64 = 8;
/// The key that is no tensor.
const METADATA: &str = "__metadata__";

/// The number types of the format: bits of a value, and the type of those that weights have.
const TYPES: [(&str, u64, Option<BlockType>); 22] = [
    ("F32", 32, Some(BlockType::F32)),
    ("F16", 16, Some(BlockType::F16)),
    ("BF16", 16, Some(BlockType::BF16)),
    ("F64", 64, None),
    ("C64", 64, None),
    ("I64", 64, None),
    ("U64", 64, None),
    ("I32", 32, None),
    ("U32", 32, None),
    ("I16", 16, None),
    ("U16", 16, None),
    ("I8", 8, None),
    ("U8", 8, None),
    ("BOOL", 8, None),
    ("F8_E4M3", 8, None),
    ("F8_E5M2", 8, None),
    ("F8_E4M3FNUZ", 8, None),
    ("F8_E5M2FNUZ", 8, None),
    ("F8_E8M0", 8, None),
    ("F6_E2M3", 6, None),
    ("F6_E3M2", 6, None),
    ("F4", 4, None),
];

/// What a safetensors file says before its data.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// The tensors, in header order; names are unique, and their bytes fill the data.
    pub tensors: Vec<TensorInfo>,
    /// Where the data starts, from the start of the file, in bytes.
    pub data_start: u64,
}

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, such as `model.norm.weight`.
    pub name: String,
    /// Sizes, outermost first; none of them for a single number.
    pub shape: Vec<u64>,
    /// The format's name for its number type.
    pub type_name: &'static str,
    /// The type, if weights may have it.
    pub block_type: Option<BlockType>,
    /// Where its bytes start, from the start of the file.
    pub offset_bytes: u64,
    /// How many bytes it has.
    pub n_bytes: u64,
}

/// What the first bytes of a file gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Parsed {
    /// The whole header.
    Complete(Header),
    /// The header is longer than the bytes at hand. Call again with so many, from the start of the file.
    NeedMore {
        /// Never more than the file has, nor than [`MAX_HEADER_BYTES`] and its length.
        at_least: u64,
    },
}

/// Why a file is not a usable safetensors file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SafetensorsError {
    /// Not even a length.
    #[error("this is no safetensors file: it has {file_len} bytes; download it again")]
    TooShort {
        /// Length of the file in bytes.
        file_len: u64,
    },
    /// What Git leaves where large files were not fetched.
    #[error(
        "this is a Git LFS pointer, not the weights themselves; fetch them with `git lfs pull`, or download the file again"
    )]
    Pointer,
    /// A length beyond the file or any sense.
    #[error(
        "this is no safetensors file, or it is truncated: its header is said to have {header_len} bytes, but the file has {file_len} and headers at most {MAX_HEADER_BYTES}; download it again"
    )]
    HeaderLength {
        /// As the file states it.
        header_len: u64,
        /// Length of the file in bytes.
        file_len: u64,
    },
    /// A header that is not what it should be.
    #[error("the safetensors header is damaged: {problem}; download the file again")]
    Json {
        /// What is wrong with it.
        problem: String,
    },
    /// A tensor that makes no sense.
    #[error("the safetensors header is wrong at tensor {name}: {problem}")]
    Tensor {
        /// The tensor, quoted.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A tensor as the JSON has it.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The JSON object in order; a plain map would keep the last of two equal names without a word.
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                let mut seen = HashSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(de::Error::custom(format_args!("{} occurs twice", quoted(&name))));
                    }
                    if name == METADATA {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

impl Header {
    /// Reads a header from the first bytes of a file of `file_len` bytes.
    pub fn parse(bytes: &[u8], file_len: u64) -> Result<Parsed, SafetensorsError> {
        if file_len < LENGTH_BYTES {
            return Err(SafetensorsError::TooShort { file_len });
        }
        let Some((header_len, rest)) = bytes.split_first_chunk() else {
            return Ok(Parsed::NeedMore { at_least: LENGTH_BYTES });
        };
        let header_len = u64::from_le_bytes(*header_len);
        if header_len > MAX_HEADER_BYTES.min(file_len - LENGTH_BYTES) {
            // The length is then the first letters of its text.
            return Err(if bytes.starts_with(b"version ") {
                SafetensorsError::Pointer
            } else {
                SafetensorsError::HeaderLength { header_len, file_len }
            });
        }
        match rest.get(..header_len as usize) {
            None => Ok(Parsed::NeedMore { at_least: LENGTH_BYTES + header_len }),
            Some(json) => Self::from_json(json, LENGTH_BYTES + header_len, file_len).map(Parsed::Complete),
        }
    }

    fn from_json(json: &[u8], data_start: u64, file_len: u64) -> Result<Self, SafetensorsError> {
        let Entries(entries) = serde_json::from_slice(json)
            .map_err(|error| SafetensorsError::Json { problem: error.to_string() })?;
        let place = |(name, entry): (String, Entry)| match entry.place(data_start) {
            Ok((type_name, block_type, offset_bytes, n_bytes)) => {
                Ok(TensorInfo { name, shape: entry.shape, type_name, block_type, offset_bytes, n_bytes })
            }
            Err(problem) => Err(SafetensorsError::Tensor { name: quoted(&name), problem }),
        };
        let tensors: Vec<TensorInfo> = entries.into_iter().map(place).collect::<Result<_, _>>()?;
        check_layout(&tensors, data_start, file_len)?;
        Ok(Self { tensors, data_start })
    }
}

impl Entry {
    /// Its type, its offset in the file, and its bytes; the error is a clause.
    fn place(&self, data_start: u64) -> Result<(&'static str, Option<BlockType>, u64, u64), String> {
        let Self { dtype, shape, data_offsets: [start, end] } = self;
        let known = TYPES.into_iter().find(|(name, ..)| name == dtype);
        let (type_name, bits, block_type) =
            known.ok_or_else(|| format!("its number type {} is unknown", quoted(dtype)))?;
        let n_bits = shape.iter().try_fold(bits, |product, size| product.checked_mul(*size));
        let n_bits = n_bits.ok_or_else(|| format!("its shape {shape:?} overflows 64 bits"))?;
        let stated = end.checked_sub(*start);
        if stated.and_then(|n_bytes| n_bytes.checked_mul(8)) != Some(n_bits) {
            return Err(format!(
                "its shape {shape:?} of {type_name} takes {} bytes, but its offsets {start} to {end} hold others",
                n_bits.div_ceil(8)
            ));
        }
        let offset_bytes = data_start.checked_add(*start);
        let beyond = || format!("its offset {start} is beyond any file");
        if data_start.checked_add(*end).is_none() {
            return Err(beyond());
        }
        Ok((type_name, block_type, offset_bytes.ok_or_else(beyond)?, n_bits / 8))
    }
}

/// Checks that the tensors lie one behind the other, up to the end of the file.
fn check_layout(tensors: &[TensorInfo], data_start: u64, file_len: u64) -> Result<(), SafetensorsError> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|tensor| (tensor.offset_bytes, tensor.n_bytes));
    let wrong = |tensor: &TensorInfo, problem: String| {
        Err(SafetensorsError::Tensor { name: quoted(&tensor.name), problem })
    };
    let mut end = data_start;
    for tensor in &by_offset {
        if tensor.offset_bytes < end {
            return wrong(tensor, "its bytes overlap with those of another tensor".into());
        }
        if tensor.offset_bytes > end {
            let n_bytes = tensor.offset_bytes - end;
            return wrong(tensor, format!("{n_bytes} bytes before it belong to no tensor"));
        }
        end += tensor.n_bytes;
        if end > file_len {
            return wrong(
                tensor,
                format!(
                    "it ends at byte {end}, but the file has {file_len}; it is truncated: download it again"
                ),
            );
        }
    }
    if end < file_len {
        let problem = format!("the tensors end at byte {end}, but the file has {file_len}");
        return Err(SafetensorsError::Json { problem });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str, n_data: usize) -> Result<Header, SafetensorsError> {
        let mut file = (json.len() as u64).to_le_bytes().to_vec();
        file.extend(json.as_bytes());
        file.resize(file.len() + n_data, 0);
        match Header::parse(&file, file.len() as u64)? {
            Parsed::Complete(header) => Ok(header),
            Parsed::NeedMore { .. } => panic!("the whole file is there"),
        }
    }

    #[test]
    fn tensors_are_placed() {
        let json = r#"{"__metadata__": {"format": "pt"},
            "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
            "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
            "none": {"dtype": "I64", "shape": [0, 5], "data_offsets": [16, 16]}}"#;
        let header = parse(json, 16).unwrap();
        let names: Vec<&str> = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["b", "a", "none"]);
        let [b, a, none] = &header.tensors[..] else { panic!() };
        assert_eq!((b.offset_bytes - header.data_start, b.n_bytes), (12, 4));
        assert_eq!((a.block_type, a.n_bytes, &a.shape[..]), (Some(BlockType::BF16), 12, &[2, 3][..]));
        assert_eq!((none.block_type, none.n_bytes), (None, 0));
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let one = |entry: &str| format!(r#"{{"t": {entry}}}"#);
        for (json, n_data, part) in [
            ("[]".into(), 0, "object of tensors"),
            ("{".into(), 0, "damaged"),
            (one(r#"{"dtype": "F7", "shape": [1], "data_offsets": [0, 4]}"#), 4, "\"F7\""),
            (one(r#"{"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}"#), 8, "takes 4 bytes"),
            (one(r#"{"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}"#), 4, "takes 4 bytes"),
            (one(r#"{"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}"#), 4, "damaged"),
            (one(r#"{"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}"#), 1, "takes 1 bytes"),
            (one(r#"{"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}"#), 0, "64 bits"),
            (one(r#"{"dtype": "U8", "shape": [1], "data_offsets": [18446744073709551614, 18446744073709551615]}"#), 0, "beyond any file"),
            (one(r#"{"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}"#), 8, "truncated"),
            (one(r#"{"dtype": "U8", "shape": [7], "data_offsets": [0, 7]}"#), 8, "the tensors end"),
            (one(r#"{"dtype": "U8", "shape": [7], "data_offsets": [1, 8]}"#), 8, "1 bytes before it"),
            (r#"{"a": {"dtype": "U8", "shape": [5], "data_offsets": [0, 5]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}}"#.into(), 8, "overlap"),
            (r#"{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}}"#.into(), 8, "occurs twice"),
        ] {
            let error = parse(&json, n_data).unwrap_err().to_string();
            assert!(error.contains(part), "{json}: {error}");
        }
    }

    #[test]
    fn a_length_beyond_the_file_or_the_limit_is_refused_and_a_short_piece_asks_for_more() {
        assert!(matches!(Header::parse(b"abc", 3), Err(SafetensorsError::TooShort { file_len: 3 })));
        let absurd = u64::MAX.to_le_bytes();
        assert!(matches!(Header::parse(&absurd, u64::MAX), Err(SafetensorsError::HeaderLength { .. })));
        assert!(matches!(Header::parse(&9u64.to_le_bytes(), 16), Err(SafetensorsError::HeaderLength { .. })));
        assert_eq!(Header::parse(&[2, 0], 100), Ok(Parsed::NeedMore { at_least: 8 }));
        assert_eq!(Header::parse(&2u64.to_le_bytes(), 100), Ok(Parsed::NeedMore { at_least: 10 }));
    }
}
