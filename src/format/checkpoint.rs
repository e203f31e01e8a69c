//! A model as everything above the files sees it: metadata by GGUF's keys and tensors by GGUF's names, whatever the files
//! are. Names are unique, and a tensor's bytes are those of whole rows of its block type.

use std::collections::HashMap;

use super::block::BlockType;
use super::gguf::Header;
use super::metadata::Metadata;

/// What a model's files say, before any weight is read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checkpoint {
    /// The key-value pairs.
    pub metadata: Metadata,
    tensors: Vec<Tensor>,
    index: HashMap<String, usize>,
}

/// A tensor of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Sizes, innermost (a row's length) first; none is 0.
    pub shape: Vec<u64>,
    /// How its values are packed when they are read.
    pub block_type: BlockType,
    /// Bytes of a row when it is read.
    pub row_bytes: u64,
    /// Where its values come from.
    pub origin: Origin,
}

/// Where a tensor's values come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// Bytes of a file, as they lie there.
    Stored {
        /// Which of the model's files.
        file: usize,
        /// Where they start, from the start of the file.
        offset_bytes: u64,
    },
}

impl Tensor {
    /// Values in a row.
    pub fn row_len(&self) -> u64 {
        self.shape[0]
    }

    /// Number of rows.
    pub fn n_rows(&self) -> u64 {
        self.shape[1..].iter().product()
    }

    /// Values in all.
    pub fn n_values(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes in all, when it is read.
    pub fn n_bytes(&self) -> u64 {
        self.row_bytes * self.n_rows()
    }
}

impl Checkpoint {
    /// Of metadata and tensors with unique names.
    ///
    /// # Panics
    /// If two tensors have one name.
    pub fn new(metadata: Metadata, tensors: Vec<Tensor>) -> Self {
        let index: HashMap<String, usize> =
            tensors.iter().enumerate().map(|(index, tensor)| (tensor.name.clone(), index)).collect();
        assert_eq!(index.len(), tensors.len(), "the reader of the files refuses a name that occurs twice");
        Self { metadata, tensors, index }
    }

    /// Of a single GGUF file.
    pub fn from_gguf(header: Header) -> Self {
        let tensors = header.tensors.into_iter().map(|info| Tensor {
            row_bytes: info.row_bytes(),
            name: info.name,
            shape: info.shape,
            block_type: info.block_type,
            origin: Origin::Stored { file: 0, offset_bytes: info.offset_bytes },
        });
        Self::new(header.metadata, tensors.collect())
    }

    /// The tensors, in the files' order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.index.get(name).map(|index| &self.tensors[*index])
    }
}
