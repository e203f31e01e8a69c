//! The `Content-Range` header of an HTTP answer, which tells what part of a file the answer holds.

/// Which bytes of a file an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    /// The first byte.
    pub(super) first: u64,
    /// The last byte, inclusive.
    pub(super) last: u64,
    /// Length of the file.
    pub(super) total: u64,
}

impl ContentRange {
    /// Reads `bytes FIRST-LAST/TOTAL`; `None` for anything else, an unknown total too.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let (range, total) = header.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let number = |text: &str| text.trim().parse().ok();
        let range = Self { first: number(first)?, last: number(last)?, total: number(total)? };
        (range.first <= range.last && range.last < range.total).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::ContentRange;

    #[test]
    fn only_complete_ranges_are_read() {
        let check = |header, expected: Option<(u64, u64, u64)>| {
            let expected = expected.map(|(first, last, total)| ContentRange { first, last, total });
            assert_eq!(ContentRange::parse(header), expected, "{header}");
        };
        check("bytes 0-15/98362432", Some((0, 15, 98_362_432)));
        check("bytes 16-16/17", Some((16, 16, 17)));
        check("bytes 0-5000000000/5000000001", Some((0, 5_000_000_000, 5_000_000_001)));
        check("bytes 0-15/*", None);
        check("bytes */98362432", None);
        check("bytes 5-4/10", None);
        check("bytes 0-10/10", None);
        check("bytes 0-99999999999999999999/100000000000000000000", None);
        check("items 0-1/2", None);
        check("", None);
    }
}
