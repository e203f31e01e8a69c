//! Any bytes at all: the GGUF reader never panics, and what it accepts is consistent, however the bytes are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagelm::format::gguf::{Header, Parsed};

/// Bytes that a file may have beyond those at hand, as where a host has read the first piece only.
const FURTHER_BYTES: u64 = 1 << 33;

fuzz_target!(|bytes: &[u8]| {
    let len = bytes.len() as u64;
    let whole = Header::parse(bytes, len);
    assert!(!matches!(whole, Ok(Parsed::NeedMore { .. })), "a whole file needs no more");
    check(bytes, len);
    check(bytes, len + FURTHER_BYTES);
    check(&bytes[..bytes.len() / 2], len);
});

fn check(bytes: &[u8], file_len: u64) {
    match Header::parse(bytes, file_len) {
        Ok(Parsed::Complete(header)) => check_header(&header, file_len),
        Ok(Parsed::NeedMore { at_least }) => assert!((bytes.len() as u64) < at_least && at_least <= file_len),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_header(header: &Header, file_len: u64) {
    assert!(header.alignment.is_power_of_two());
    let mut ranges: Vec<_> =
        header.tensors.iter().map(|tensor| (tensor.offset_bytes, tensor.end_bytes())).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "tensors overlap");
    for tensor in &header.tensors {
        assert!(header.data_start <= tensor.offset_bytes && tensor.end_bytes() <= file_len);
        assert_eq!(tensor.row_bytes() * tensor.n_rows(), tensor.n_bytes);
        assert_eq!(tensor.block_type.row_bytes(tensor.row_len()), Some(tensor.row_bytes()));
        assert_eq!(header.tensor(&tensor.name), Some(tensor));
    }
    for (key, value) in header.metadata.iter() {
        let found = header.metadata.get(key).map(|found| std::ptr::eq(found, value));
        assert_eq!(found, Some(true), "keys are unique");
    }
}
