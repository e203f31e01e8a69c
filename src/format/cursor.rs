//! Reads little-endian fields from bytes that may end too early. Nothing is allocated for bytes that are not there.

/// Why a field could not be read; the caller knows which field it was.
#[derive(Debug)]
pub(super) enum Fault {
    /// The field ends at this byte of the file, which is past the bytes at hand.
    Short {
        /// End of the field, counted from the start of the file.
        needed: u64,
    },
    /// The field's bytes make no sense; a clause that tells why.
    Damaged(String),
}

/// A place in the first bytes of a file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.position as u64
    }

    /// Checks that `n_bytes` more are at hand.
    pub(super) fn expect(&self, n_bytes: u64) -> Result<usize, Fault> {
        let left = self.bytes.len() - self.position;
        match usize::try_from(n_bytes) {
            Ok(n_bytes) if n_bytes <= left => Ok(n_bytes),
            _ => Err(Fault::Short { needed: self.position().saturating_add(n_bytes) }),
        }
    }

    /// The next `n_bytes`.
    pub(super) fn take(&mut self, n_bytes: u64) -> Result<&'a [u8], Fault> {
        let n_bytes = self.expect(n_bytes)?;
        let taken = &self.bytes[self.position..self.position + n_bytes];
        self.position += n_bytes;
        Ok(taken)
    }

    /// The next `N` bytes, for `from_le_bytes`.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let taken = self.take(N as u64)?;
        Ok(taken.try_into().expect("N bytes were taken"))
    }

    /// An unsigned 32-bit number.
    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// An unsigned 64-bit number.
    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// `count` numbers of `N` bytes each.
    pub(super) fn numbers<const N: usize, T>(
        &mut self,
        count: u64,
        from_le_bytes: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Fault> {
        let taken = self.take(count.saturating_mul(N as u64))?;
        let (numbers, _) = taken.as_chunks::<N>();
        Ok(numbers.iter().map(|number| from_le_bytes(*number)).collect())
    }

    /// A string with its 64-bit length before it, as bytes.
    pub(super) fn string_bytes(&mut self) -> Result<&'a [u8], Fault> {
        let start = self.position;
        let n_bytes = self.u64()?;
        self.take(n_bytes).inspect_err(|_| self.position = start)
    }

    /// A string that must be UTF-8.
    pub(super) fn string(&mut self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.string_bytes()?)
            .map_err(|error| Fault::Damaged(format!("its text is not UTF-8 ({error})")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_lengths_ask_for_bytes_and_allocate_nothing() {
        let mut cursor = Cursor::new(&[0xff; 16]);
        assert!(matches!(cursor.string_bytes(), Err(Fault::Short { needed: u64::MAX })));
        assert!(matches!(
            cursor.numbers(u64::MAX, u64::from_le_bytes),
            Err(Fault::Short { needed: u64::MAX })
        ));
        assert_eq!(cursor.position(), 0);
        assert!(matches!(cursor.numbers(2, u64::from_le_bytes), Ok(numbers) if numbers == [u64::MAX; 2]));
        assert!(matches!(cursor.u32(), Err(Fault::Short { needed: 20 })));
    }
}
