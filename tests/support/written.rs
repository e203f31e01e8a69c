//! An open model as the GGUF file that `pagelm convert` writes of it, in memory.
#![allow(unreachable_pub, reason = "every test file uses its own part of this")]

use pagelm::format::checkpoint::Tensor;
use pagelm::format::gguf_writer as writer;
use pagelm::store::files::ModelFiles;

use crate::memory_source::MemorySource;

/// All rows of a tensor, so many at a time.
pub async fn rows_by(files: &ModelFiles<MemorySource>, tensor: &Tensor, piece_rows: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for first in (0..tensor.n_rows()).step_by(piece_rows as usize) {
        let n_rows = piece_rows.min(tensor.n_rows() - first);
        bytes.extend(files.read_rows(tensor, first, n_rows).await.unwrap());
    }
    assert_eq!(bytes.len() as u64, tensor.n_bytes(), "{}", tensor.name);
    bytes
}

/// A checkpoint as a GGUF file.
pub async fn written(files: &ModelFiles<MemorySource>) -> Vec<u8> {
    let mut out = writer::header(&files.checkpoint);
    for tensor in files.checkpoint.tensors() {
        out.extend(rows_by(files, tensor, 7).await);
        out.resize(writer::padded(out.len() as u64) as usize, 0);
    }
    out
}
