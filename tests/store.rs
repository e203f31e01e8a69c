//! Model files read by ranges: a header comes whole in few pieces, and a bad range or file is an error that names it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![cfg(feature = "native")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

use gguf_writer::{GgufWriter, Meta, llama_tiny_gguf};
use pagelm::format::block::BlockType;
use pagelm::format::checkpoint::{Checkpoint, Origin, Tensor};
use pagelm::format::metadata::Metadata;
use pagelm::format::stored::{Arrangement, Stored};
use pagelm::store::files::ModelFiles;
use pagelm::store::native::FileSource;
use pagelm::store::{MAX_HEADER_BYTES, Source, StoreError, read_header, read_safetensors_header};
use pollster::block_on;

/// A file of which the first bytes exist and the rest are zeros; remembers what was read.
struct Memory {
    bytes: Vec<u8>,
    len_bytes: u64,
    reads: RefCell<Vec<(u64, usize)>>,
}

impl Memory {
    fn new(bytes: Vec<u8>, len_bytes: u64) -> Self {
        Self { bytes, len_bytes, reads: RefCell::default() }
    }
}

impl Source for Memory {
    fn name(&self) -> &str {
        "memory.gguf"
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    async fn read(&self, offset_bytes: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        assert!(offset_bytes + len as u64 <= self.len_bytes, "{offset_bytes} + {len}");
        self.reads.borrow_mut().push((offset_bytes, len));
        let start = usize::try_from(offset_bytes).unwrap().min(self.bytes.len());
        let mut piece = self.bytes[start..self.bytes.len().min(start + len)].to_vec();
        piece.resize(len, 0);
        Ok(piece)
    }
}

/// A file in the system's temporary folder, removed at the end.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("pagelm-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_small_header_takes_one_read_and_a_large_one_few() {
    let small = llama_tiny_gguf();
    let source = Memory::new(small.clone(), small.len() as u64);
    assert_eq!(block_on(read_header(&source)).unwrap().tensors.len(), 21);
    assert_eq!(*source.reads.borrow(), [(0, small.len())]);

    let tokens: Vec<String> = (0..400_000).map(|id| format!("token {id}")).collect();
    let large = GgufWriter::new(3).meta("tokenizer.ggml.tokens", Meta::Strs(tokens.clone())).write();
    let source = Memory::new(large.clone(), large.len() as u64 + (1 << 33));
    let mut header = block_on(read_header(&source)).unwrap();
    assert_eq!(header.metadata.take_strings("tokenizer.ggml.tokens").unwrap(), tokens);
    let reads = source.reads.borrow();
    assert!(reads.len() <= 6, "{reads:?}");
    assert!(reads.windows(2).all(|pair| pair[0].0 + pair[0].1 as u64 == pair[1].0), "{reads:?}");
    assert!(reads.iter().map(|read| read.1).sum::<usize>() <= 2 * large.len(), "{reads:?}");
}

#[test]
fn a_header_of_absurd_length_is_not_read() {
    let absurd = Meta::Raw(8, (1u64 << 32).to_le_bytes().to_vec());
    let source = Memory::new(GgufWriter::new(3).meta("x.y", absurd).write(), 1 << 33);
    let error = block_on(read_header(&source)).unwrap_err().to_string();
    assert!(error.contains("memory.gguf") && error.contains(&MAX_HEADER_BYTES.to_string()), "{error}");
    assert!(source.reads.borrow().iter().map(|read| read.1).sum::<usize>() <= 1 << 20);
}

/// 6 GiB of zeros behind the header: the last tensor starts where 32 bits do not reach.
#[test]
fn tensors_beyond_32_bits_are_read_where_they_are() {
    let (n_large, n_bytes) = (3u64 << 30, 6u64 << 30);
    let json = format!(
        r#"{{"large": {{"dtype": "BF16", "shape": [{n_large}], "data_offsets": [0, {n_bytes}]}},
            "last": {{"dtype": "F32", "shape": [2], "data_offsets": [{n_bytes}, {}]}}}}"#,
        n_bytes + 8
    );
    let header: Vec<u8> = [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
    let data_start = header.len() as u64;
    let source = Memory::new(header, data_start + n_bytes + 8);
    let header = block_on(read_safetensors_header(&source)).unwrap();
    assert_eq!(header.tensors[1].offset_bytes, data_start + n_bytes);

    let stored = Stored {
        file: 0,
        name: "last".into(),
        offset_bytes: header.tensors[1].offset_bytes,
        block_type: BlockType::F32,
        arrangement: Arrangement::AsIs,
    };
    let tensor = Tensor {
        name: "last".into(),
        shape: vec![2],
        block_type: BlockType::F32,
        row_bytes: 8,
        origin: Origin::Stored(stored),
    };
    let checkpoint = Checkpoint::new(Metadata::default(), vec![tensor]);
    let files = ModelFiles::new("large".into(), vec![source], checkpoint);
    assert_eq!(block_on(files.read_rows(&files.checkpoint.tensors()[0], 0, 1)).unwrap(), [0; 8]);
    assert_eq!(files.len_bytes(), data_start + n_bytes + 8);
}

#[test]
fn what_is_not_a_model_is_named() {
    for (bytes, wanted) in [(&b""[..], "empty"), (b"<html>", "web page"), (b"GGUF\x03\0\0\0", "truncated")] {
        let error =
            block_on(read_header(&Memory::new(bytes.to_vec(), bytes.len() as u64))).unwrap_err().to_string();
        assert!(error.starts_with("memory.gguf: ") && error.contains(wanted), "{error}");
    }
}

#[test]
fn a_file_is_read_by_ranges() {
    let bytes = llama_tiny_gguf();
    let file = TemporaryFile::new("whole.gguf", &bytes);
    let source = FileSource::open(&file.0).unwrap();
    assert_eq!((source.name(), source.len_bytes()), (file.0.to_str().unwrap(), bytes.len() as u64));
    let header = block_on(read_header(&source)).unwrap();
    for tensor in &header.tensors {
        let read = block_on(source.read(tensor.offset_bytes, tensor.n_bytes as usize)).unwrap();
        assert!(read == bytes[tensor.offset_bytes as usize..tensor.end_bytes() as usize], "{}", tensor.name);
    }
    let len = bytes.len();
    assert_eq!(block_on(source.read(len as u64, 0)).unwrap(), [0u8; 0]);
    for (offset_bytes, n_bytes) in
        [(len as u64, 1), (0, len + 1), (len as u64 - 1, 2), (u64::MAX, 1), (1, usize::MAX)]
    {
        let error = block_on(source.read(offset_bytes, n_bytes)).unwrap_err();
        assert!(matches!(error, StoreError::PastEnd { .. }), "{error}");
        assert!(error.to_string().contains("whole.gguf"), "{error}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = FileSource::open("no/such/model.gguf").unwrap_err().to_string();
    assert!(error.contains("no/such/model.gguf"), "{error}");
    let folder = std::env::temp_dir();
    let error = FileSource::open(&folder).unwrap_err().to_string();
    assert!(error.contains(folder.to_str().unwrap()), "{error}");

    let file = TemporaryFile::new("shrinks.gguf", &[7; 100]);
    let source = FileSource::open(&file.0).unwrap();
    fs::write(&file.0, [7; 10]).unwrap();
    assert_eq!(block_on(source.read(2, 8)).unwrap(), [7; 8]);
    let error = block_on(source.read(2, 98)).unwrap_err();
    assert!(matches!(error, StoreError::Changed { .. }), "{error}");
    assert!(error.to_string().contains("shrinks.gguf"), "{error}");
}
