//! What is known of a model file that is kept in parts: where it comes from, how long it is, and which parts are there.
//!
//! Invariant: a part is there once its hash is written here, which is after its bytes were. All parts but the last are
//! [`PART_BYTES`] long.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Bytes of a part: so much is fetched at once, and lost where a download breaks off.
pub const PART_BYTES: u64 = 4 << 20;

/// The longest file that is kept.
pub const MAX_LEN_BYTES: u64 = 1 << 40;

/// The form of the text. Another is not read: the file is fetched again.
const FORM: u32 = 1;

/// A SHA-256.
pub type Hash = [u8; 32];

/// A file in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    form: u32,
    /// Where it comes from.
    pub url: String,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// The server's name for this version of it, if it has one.
    pub version: Option<String>,
    /// SHA-256 of the whole, where that was promised and was found to be so.
    #[serde(default)]
    pub whole: Option<Hash>,
    part_bytes: u64,
    /// Of each part that is there.
    hashes: Vec<Option<Hash>>,
}

impl Manifest {
    /// Of a file of which nothing is there.
    pub fn new(url: String, len_bytes: u64, version: Option<String>) -> Self {
        let n_parts = len_bytes.div_ceil(PART_BYTES) as usize;
        Self {
            form: FORM,
            url,
            len_bytes,
            version,
            whole: None,
            part_bytes: PART_BYTES,
            hashes: vec![None; n_parts],
        }
    }

    /// Reads what [`Self::to_text`] wrote; `None` where it is no manifest of this form.
    pub fn parse(text: &str) -> Option<Self> {
        let manifest: Self = serde_json::from_str(text).ok()?;
        let fits = (manifest.form, manifest.part_bytes) == (FORM, PART_BYTES)
            && (1..=MAX_LEN_BYTES).contains(&manifest.len_bytes)
            && manifest.hashes.len() as u64 == manifest.len_bytes.div_ceil(PART_BYTES);
        fits.then_some(manifest)
    }

    /// As it is stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts")
    }

    /// Number of parts.
    pub fn n_parts(&self) -> usize {
        self.hashes.len()
    }

    /// Whether all parts are there.
    pub fn is_complete(&self) -> bool {
        self.hashes.iter().all(Option::is_some)
    }

    /// Bytes that are there.
    pub fn kept_bytes(&self) -> u64 {
        let kept = (0..self.n_parts()).filter(|part| self.hashes[*part].is_some());
        kept.map(|part| self.range(part)).map(|range| range.end - range.start).sum()
    }

    /// The hash of a part, if it is there.
    pub fn hash(&self, part: usize) -> Option<&Hash> {
        self.hashes[part].as_ref()
    }

    /// Notes that a part is there, or is not any more.
    pub fn set_hash(&mut self, part: usize, hash: Option<Hash>) {
        self.hashes[part] = hash;
    }

    /// Bytes of the file that a part holds.
    pub fn range(&self, part: usize) -> Range<u64> {
        let start = part as u64 * PART_BYTES;
        start..(start + PART_BYTES).min(self.len_bytes)
    }

    /// Parts that hold some bytes of the file.
    pub fn parts_of(&self, bytes: &Range<u64>) -> Range<usize> {
        (bytes.start / PART_BYTES) as usize..bytes.end.div_ceil(PART_BYTES) as usize
    }

    /// Whether the file at its source is still this one. A server without names for versions is believed by the length.
    pub fn is_of(&self, len_bytes: u64, version: Option<&str>) -> bool {
        let is_same = |then: &str| version.is_none_or(|now| then == now);
        self.len_bytes == len_bytes && self.version.as_deref().is_none_or(is_same)
    }
}
