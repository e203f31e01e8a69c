//! The header of a GGUF file, version 2 or 3: metadata, and where each tensor lies. A header that parses is consistent
//! with itself and with the file's length, so what it says can be used unchecked.

use std::collections::{HashMap, HashSet};

use super::cursor::{Cursor, Fault};
use super::metadata::Metadata;
use super::signature;
use super::tensor::{self, TensorInfo};
use super::value::Value;

const MAGIC: &[u8; 4] = b"GGUF";
/// Magic, version, number of tensors, number of keys.
const START_BYTES: u64 = 4 + 4 + 8 + 8;
/// The shortest key: its length, a character, a type and one byte.
const MIN_KEY_BYTES: u64 = 8 + 1 + 4 + 1;
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;

/// What a GGUF file says before its data.
#[derive(Debug, Clone)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// The key-value pairs.
    pub metadata: Metadata,
    /// Tensors start at multiples of this many bytes after `data_start`; a power of two.
    pub alignment: u64,
    /// The tensors, in header order; names are unique, and no two share a byte.
    pub tensors: Vec<TensorInfo>,
    /// Where the data starts, from the start of the file, in bytes.
    pub data_start: u64,
    index: HashMap<String, usize>,
}

/// What the first bytes of a file gave.
#[derive(Debug, Clone)]
pub enum Parsed {
    /// The whole header.
    Complete(Box<Header>),
    /// The header is longer than the bytes at hand. Call again with more, from the start of the file.
    NeedMore {
        /// So many bytes at least, from the start of the file; never more than the file has.
        at_least: u64,
    },
}

/// Why a file is not a usable GGUF file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GgufError {
    /// It is something else.
    #[error("this is not a GGUF file: {found}; {help}")]
    NotGguf {
        /// What it seems to be.
        found: String,
        /// What would help.
        help: &'static str,
    },
    /// It is of a version that is not read.
    #[error("this GGUF file is of version {version}, but versions 2 and 3 are read; {help}")]
    Version {
        /// The version it states.
        version: u32,
        /// What would help.
        help: &'static str,
    },
    /// It ends too early.
    #[error(
        "the file is truncated or damaged: it has {file_len} bytes, but {place} ends at byte {needed}; download it again"
    )]
    Truncated {
        /// The field or tensor that is cut off.
        place: String,
        /// Where that ends, from the start of the file.
        needed: u64,
        /// Length of the file in bytes.
        file_len: u64,
    },
    /// A field makes no sense.
    #[error("the GGUF header is wrong at {place}: {problem}")]
    Field {
        /// The field.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A fault and where it was.
struct Stop {
    place: String,
    fault: Fault,
}

trait At<T> {
    /// Names the field of a fault.
    fn at(self, place: impl FnOnce() -> String) -> Result<T, Stop>;
}

impl<T> At<T> for Result<T, Fault> {
    fn at(self, place: impl FnOnce() -> String) -> Result<T, Stop> {
        self.map_err(|fault| Stop { place: place(), fault })
    }
}

impl Header {
    /// Reads a header from the first bytes of a file of `file_len` bytes. The bytes may end anywhere: as long as the
    /// file has more, the answer is then [`Parsed::NeedMore`].
    pub fn parse(bytes: &[u8], file_len: u64) -> Result<Parsed, GgufError> {
        let n_bytes = usize::try_from(file_len).map_or(bytes.len(), |file_len| file_len.min(bytes.len()));
        let bytes = &bytes[..n_bytes];
        let wanted_bytes = START_BYTES.min(file_len);
        if (n_bytes as u64) < wanted_bytes {
            return Ok(Parsed::NeedMore { at_least: wanted_bytes });
        }
        check_magic_and_version(bytes)?;
        match read(bytes, file_len) {
            Ok(header) => Ok(Parsed::Complete(Box::new(header))),
            Err(Stop { place, fault: Fault::Damaged(problem) }) => Err(GgufError::Field { place, problem }),
            Err(Stop { fault: Fault::Short { needed }, .. }) if needed <= file_len => {
                Ok(Parsed::NeedMore { at_least: needed })
            }
            Err(Stop { place, fault: Fault::Short { needed } }) => {
                Err(GgufError::Truncated { place, needed, file_len })
            }
        }
    }

    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|index| &self.tensors[*index])
    }
}

fn check_magic_and_version(bytes: &[u8]) -> Result<(), GgufError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        let (found, help) = signature::describe(bytes);
        return Err(GgufError::NotGguf { found, help });
    };
    let Some(version) = rest.first_chunk() else { return Ok(()) };
    match u32::from_le_bytes(*version) {
        2 | 3 => Ok(()),
        1 => Err(GgufError::Version { version: 1, help: "convert the model again with a current llama.cpp" }),
        swapped if (1..=3).contains(&swapped.swap_bytes()) => Err(GgufError::NotGguf {
            found: "it is a big-endian GGUF file".into(),
            help: "use a little-endian one, or turn it with gguf-py's gguf_convert_endian.py",
        }),
        version => Err(GgufError::Version { version, help: "a newer pagelm may read it" }),
    }
}

fn read(bytes: &[u8], file_len: u64) -> Result<Header, Stop> {
    let mut cursor = Cursor::new(bytes);
    let start = |field: &'static str| move || format!("the {field}");
    cursor.take(MAGIC.len() as u64).at(start("magic"))?;
    let version = cursor.u32().at(start("version"))?;
    let n_tensors = cursor.u64().at(start("number of tensors"))?;
    let n_keys = cursor.u64().at(start("number of metadata keys"))?;
    check_count("metadata keys", n_keys, MIN_KEY_BYTES, file_len)?;
    check_count("tensors", n_tensors, tensor::MIN_ENTRY_BYTES, file_len)?;

    let metadata = read_metadata(&mut cursor, n_keys)?;
    let alignment = alignment(&metadata)?;
    let entries = read_entries(&mut cursor, n_tensors)?;
    let data_start = cursor.position().next_multiple_of(alignment);

    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        tensors.push(entry.place(name, data_start, alignment).at(|| tensor_place(name))?);
    }
    check_layout(&tensors, file_len)?;
    let index = tensors.iter().enumerate().map(|(index, tensor)| (tensor.name.clone(), index)).collect();
    Ok(Header { version, metadata, alignment, tensors, data_start, index })
}

/// Refuses a count whose shortest items would not fit the file.
fn check_count(of: &str, count: u64, min_bytes: u64, file_len: u64) -> Result<(), Stop> {
    let most = file_len.saturating_sub(START_BYTES) / min_bytes;
    if count <= most {
        return Ok(());
    }
    Err(Stop {
        place: format!("the number of {of}"),
        fault: Fault::Damaged(format!(
            "it is {count}, but a file of {file_len} bytes has room for {most}; download it again"
        )),
    })
}

fn read_metadata(cursor: &mut Cursor<'_>, n_keys: u64) -> Result<Metadata, Stop> {
    let mut entries = Vec::new();
    let mut seen = HashSet::new();
    for key_idx in 0..n_keys {
        let key = read_name(cursor).at(|| format!("the name of metadata key {key_idx}"))?;
        let place = || format!("metadata key {}", quoted(key));
        if !seen.insert(key) {
            return Err(Fault::Damaged("it occurs twice".into())).at(place);
        }
        let type_id = cursor.u32().at(place)?;
        let value = Value::read(cursor, type_id).at(place)?;
        entries.push((key.to_owned(), value));
    }
    Ok(Metadata::new(entries))
}

fn read_name<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, Fault> {
    match cursor.string()? {
        "" => Err(Fault::Damaged("it is empty".into())),
        name => Ok(name),
    }
}

fn alignment(metadata: &Metadata) -> Result<u64, Stop> {
    let damaged =
        |problem| Stop { place: format!("metadata key {ALIGNMENT_KEY:?}"), fault: Fault::Damaged(problem) };
    match metadata.opt_u32(ALIGNMENT_KEY) {
        Ok(None) => Ok(DEFAULT_ALIGNMENT),
        Ok(Some(alignment)) if alignment.is_power_of_two() => Ok(alignment.into()),
        Ok(Some(alignment)) => Err(damaged(format!("it is {alignment}, but must be a power of two"))),
        Err(error) => Err(damaged(error.to_string())),
    }
}

fn read_entries<'a>(cursor: &mut Cursor<'a>, n_tensors: u64) -> Result<Vec<(&'a str, tensor::Entry)>, Stop> {
    let mut entries = Vec::new();
    let mut seen = HashSet::new();
    for tensor_idx in 0..n_tensors {
        let name = read_name(cursor).at(|| format!("the name of tensor {tensor_idx}"))?;
        if !seen.insert(name) {
            return Err(Fault::Damaged("it occurs twice".into())).at(|| tensor_place(name));
        }
        let entry = tensor::Entry::read(cursor).at(|| tensor_place(name))?;
        entries.push((name, entry));
    }
    Ok(entries)
}

/// Checks that tensors lie apart and inside the file.
fn check_layout(tensors: &[TensorInfo], file_len: u64) -> Result<(), Stop> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|tensor| tensor.offset_bytes);
    for pair in by_offset.windows(2) {
        let [before, after] = pair else { unreachable!("windows of 2") };
        if before.end_bytes() > after.offset_bytes {
            return Err(Fault::Damaged(format!(
                "its bytes overlap with those of tensor {}",
                quoted(&before.name)
            )))
            .at(|| tensor_place(&after.name));
        }
    }
    // The last one, so that the message tells how long the file should be.
    match by_offset.last() {
        Some(last) if last.end_bytes() > file_len => {
            Err(Fault::Short { needed: last.end_bytes() }).at(|| tensor_place(&last.name))
        }
        _ => Ok(()),
    }
}

fn tensor_place(name: &str) -> String {
    format!("tensor {}", quoted(name))
}

/// A name for a message; one that fills the file is cut.
pub(super) fn quoted(name: &str) -> String {
    const MAX_CHARS: usize = 100;
    match name.char_indices().nth(MAX_CHARS) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}…", &name[..end]),
    }
}
