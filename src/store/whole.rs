//! The SHA-256 that a whole file is promised to have: written behind its address, and compared once all of it came.
//!
//! Invariant: bytes count once, in their order.

use sha2::{Digest as _, Sha256};

use super::manifest::Hash;

/// What stands before the hash at the end of an address. Servers never see it.
pub const BEFORE_HASH: &str = "#sha256=";

/// A file of which so many parts were read.
pub(super) struct Whole {
    promised: Hash,
    hasher: Sha256,
    n_parts: usize,
}

impl Whole {
    /// A file of which nothing was read.
    pub(super) fn new(promised: Hash) -> Self {
        Self { promised, hasher: Sha256::new(), n_parts: 0 }
    }

    /// Parts that were read, from the first on.
    pub(super) fn n_parts(&self) -> usize {
        self.n_parts
    }

    /// Takes in a part, if it is the next one.
    pub(super) fn add(&mut self, part: usize, bytes: &[u8]) {
        if part == self.n_parts {
            self.hasher.update(bytes);
            self.n_parts += 1;
        }
    }

    /// The hash, or the promised and the found one where they differ.
    pub(super) fn compare(self) -> Result<Hash, (Hash, Hash)> {
        let found: Hash = self.hasher.finalize().into();
        if found == self.promised { Ok(found) } else { Err((self.promised, found)) }
    }
}

/// An address without the hash behind it, and that hash. The error says what it should be.
pub fn split_hash(url: &str) -> Result<(&str, Option<Hash>), String> {
    let Some((address, digits)) = url.split_once(BEFORE_HASH) else { return Ok((url, None)) };
    let hash = from_hex(digits)
        .ok_or_else(|| format!("{url}: what follows {BEFORE_HASH} has to be 64 hexadecimal digits"))?;
    Ok((address, Some(hash)))
}

/// An address without the hash behind it, if there is one.
pub fn without_hash(url: &str) -> &str {
    url.split_once(BEFORE_HASH).map_or(url, |(address, _)| address)
}

/// A hash in hexadecimal digits.
pub(super) fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Option<Hash> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = Hash::default();
    for (byte, pair) in hash.iter_mut().zip(0..) {
        *byte = u8::from_str_radix(&digits[2 * pair..2 * pair + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_stands_behind_an_address() {
        let digits = "00ff".repeat(16);
        let (address, hash) = split_hash("a/b.gguf#sha256=").map_or(("", None), |found| found);
        assert_eq!((address, hash), ("", None), "none is no hash");
        let url = format!("a/b.gguf{BEFORE_HASH}{digits}");
        let (address, hash) = split_hash(&url).unwrap();
        assert_eq!((address, hex(&hash.unwrap())), ("a/b.gguf", digits.clone()));
        assert_eq!(split_hash("a/b#part").unwrap(), ("a/b#part", None));
        for wrong in
            [&digits[1..], &format!("{digits}0"), &digits.replace('f', "g"), &digits.replace("00", "ä")]
        {
            let sentence = split_hash(&format!("a{BEFORE_HASH}{wrong}")).unwrap_err();
            assert!(sentence.contains("64 hexadecimal digits"), "{sentence}");
        }
    }

    #[test]
    fn parts_count_once_and_in_order() {
        let promised: Hash = Sha256::digest(b"abcdef").into();
        let mut whole = Whole::new(promised);
        for (part, bytes) in [(0, b"abc"), (0, b"abc"), (2, b"xyz"), (1, b"def"), (0, b"abc")] {
            whole.add(part, bytes);
        }
        assert_eq!((whole.n_parts(), whole.compare()), (2, Ok(promised)));
        let mut whole = Whole::new(promised);
        whole.add(0, b"abcdeF");
        assert!(whole.compare().is_err());
    }
}
