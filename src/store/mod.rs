//! Models at rest: where a model's bytes are, read by ranges. A read gives exactly the bytes asked for, or an error.

#[cfg(any(feature = "web", test))]
mod content_range;
pub mod files;
pub mod kept;
#[cfg(feature = "web")]
pub mod library;
pub mod manifest;
#[cfg(feature = "native")]
pub mod native;
#[cfg(feature = "web")]
pub mod opfs;
#[cfg(feature = "web")]
pub mod web;
pub mod whole;

use std::future::Future;

use crate::format::gguf::{GgufError, Header, Parsed};
use crate::format::safetensors::{self, SafetensorsError};

/// A model file that is read in pieces. Single-threaded: its futures need not be `Send`.
pub trait Source {
    /// What a person knows the file by: a path, a file name or a URL.
    fn name(&self) -> &str;

    /// Length of the file in bytes.
    fn len_bytes(&self) -> u64;

    /// What a person should know of how it is read, such as that it is not kept and why.
    fn note(&self) -> Option<String> {
        None
    }

    /// Reads what nobody asked for yet, where only the whole tells whether it is the file that was promised.
    fn finish(&self) -> impl Future<Output = Result<(), StoreError>> {
        std::future::ready(Ok(()))
    }

    /// Exactly `len` bytes from `offset_bytes` on. The caller bounds `len` by what memory holds.
    fn read(&self, offset_bytes: u64, len: usize) -> impl Future<Output = Result<Vec<u8>, StoreError>>;
}

/// Why bytes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or the answer could not be had at all.
    #[error("cannot read {name}: {problem}")]
    Unreadable {
        /// The file.
        name: String,
        /// What went wrong, and what would help where that is known.
        problem: String,
    },
    /// A server that could not be reached, or broke off; it may do better soon.
    #[error("cannot read {name}: {problem}")]
    Interrupted {
        /// The file.
        name: String,
        /// What went wrong.
        problem: String,
    },
    /// A range that is not in the file.
    #[error(
        "cannot read {len} bytes at {offset_bytes} of {name}, which has {len_bytes} bytes; the file may be truncated: download it again"
    )]
    PastEnd {
        /// The file.
        name: String,
        /// Start of the range.
        offset_bytes: u64,
        /// Length of the range.
        len: usize,
        /// Length of the file.
        len_bytes: u64,
    },
    /// The file is not what it was when it was opened.
    #[error("{name} changed while it was read ({problem}); load the model again")]
    Changed {
        /// The file.
        name: String,
        /// How that shows.
        problem: String,
    },
    /// All of it came, and it is another file than its address promises.
    #[error(
        "{name} is not the file that was promised: its SHA-256 is {found} and not {promised}; what came of it was deleted: load it again, or check its address"
    )]
    NotPromised {
        /// The file.
        name: String,
        /// Its hash by its address.
        promised: String,
        /// Its hash.
        found: String,
    },
}

impl StoreError {
    /// Whether to ask again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Interrupted { .. })
    }
}

/// Why a model file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its bytes could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is not a usable GGUF file.
    #[error("{name}: {error}")]
    Gguf {
        /// The file.
        name: String,
        /// What is wrong with it.
        error: GgufError,
    },
    /// It is not a usable safetensors file.
    #[error("{name}: {error}")]
    Safetensors {
        /// The file.
        name: String,
        /// What is wrong with it.
        error: SafetensorsError,
    },
    /// A file of text is larger than any real one.
    #[error("{name} has {len_bytes} bytes, but {most} are allowed for it; it is not what its name says")]
    TooLong {
        /// The file.
        name: String,
        /// Length of the file.
        len_bytes: u64,
        /// What is allowed.
        most: u64,
    },
    /// Its header is larger than any real one.
    #[error(
        "{name}: the GGUF header has more than {at_least} bytes, but {MAX_HEADER_BYTES} are allowed; the file is damaged: download it again"
    )]
    HeaderTooLong {
        /// The file.
        name: String,
        /// Bytes the header has at least.
        at_least: u64,
    },
}

/// Longest header that is read. The largest vocabularies in use make headers of some 20 MB.
pub const MAX_HEADER_BYTES: u64 = 128 << 20;

/// Bytes of the first read: small vocabularies fit.
const FIRST_READ_BYTES: u64 = 1 << 20;

/// Reads a model file's header, in as few pieces as it takes.
pub async fn read_header(source: &impl Source) -> Result<Header, OpenError> {
    let file_len = source.len_bytes();
    let name = || source.name().to_owned();
    let mut bytes = Vec::new();
    let mut wanted_bytes = FIRST_READ_BYTES;
    loop {
        let have_bytes = bytes.len() as u64;
        let more_bytes = wanted_bytes.min(file_len) - have_bytes;
        let more_bytes = usize::try_from(more_bytes).expect("bounded by MAX_HEADER_BYTES");
        bytes.append(&mut source.read(have_bytes, more_bytes).await?);
        match Header::parse(&bytes, file_len).map_err(|error| OpenError::Gguf { name: name(), error })? {
            Parsed::Complete(header) => return Ok(*header),
            Parsed::NeedMore { at_least } if at_least > MAX_HEADER_BYTES => {
                return Err(OpenError::HeaderTooLong { name: name(), at_least });
            }
            // At least doubled, so that what is parsed again stays within twice the header.
            Parsed::NeedMore { at_least } => {
                wanted_bytes = at_least.max(2 * bytes.len() as u64).min(MAX_HEADER_BYTES);
            }
        }
    }
}

/// Reads a safetensors file's header.
pub async fn read_safetensors_header(source: &impl Source) -> Result<safetensors::Header, OpenError> {
    let file_len = source.len_bytes();
    let wrong = |error| OpenError::Safetensors { name: source.name().to_owned(), error };
    let mut wanted_bytes = FIRST_READ_BYTES;
    loop {
        let n_bytes = usize::try_from(wanted_bytes.min(file_len)).expect("bounded by the longest header");
        let bytes = source.read(0, n_bytes).await?;
        match safetensors::Header::parse(&bytes, file_len).map_err(wrong)? {
            safetensors::Parsed::Complete(header) => return Ok(header),
            safetensors::Parsed::NeedMore { at_least } => wanted_bytes = at_least,
        }
    }
}

/// Reads a whole file of at most so many bytes.
pub async fn read_all(source: &impl Source, most: u64) -> Result<Vec<u8>, OpenError> {
    let len_bytes = source.len_bytes();
    match usize::try_from(len_bytes) {
        Ok(len) if len_bytes <= most => Ok(source.read(0, len).await?),
        _ => Err(OpenError::TooLong { name: source.name().to_owned(), len_bytes, most }),
    }
}

/// The last part of a path or URL: the file's own name.
pub fn base_name(name: &str) -> &str {
    let name = whole::without_hash(name);
    let path = name.split_once('?').map_or(name, |(path, _)| path);
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Checks that a range lies in the file.
fn check_range(source: &impl Source, offset_bytes: u64, len: usize) -> Result<(), StoreError> {
    let len_bytes = source.len_bytes();
    match offset_bytes.checked_add(len as u64) {
        Some(end) if end <= len_bytes => Ok(()),
        _ => Err(StoreError::PastEnd { name: source.name().to_owned(), offset_bytes, len, len_bytes }),
    }
}
