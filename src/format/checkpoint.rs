//! A model as everything above the files sees it: metadata by GGUF's keys and tensors by GGUF's names, whatever the files
//! are. Names are unique, and a tensor's bytes are those of whole rows of its block type.

use std::collections::HashMap;

use super::block::BlockType;
use super::gguf::Header;
use super::metadata::Metadata;
use super::stored::{Arrangement, Stored};
use super::value::Value;

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
    /// Bytes of a file.
    Stored(Stored),
    /// Numbers that follow from the configuration; the tensor is F32.
    Computed(Vec<f32>),
}

/// Which tensors [`Checkpoint::quantize`] packs anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repack {
    /// Those stored as F32, F16 or BF16.
    Floats,
    /// All.
    All,
}

/// The values of `general.file_type` (llama.cpp's `llama_ftype`) for files whose matrices are mostly of one type.
const FILE_TYPES: [(BlockType, u32); 5] = [
    (BlockType::F32, 0),
    (BlockType::F16, 1),
    (BlockType::Q4_0, 2),
    (BlockType::Q8_0, 7),
    (BlockType::BF16, 32),
];

/// The version of GGML's block layouts, in `general.quantization_version`.
const QUANTIZATION_VERSION: u32 = 2;

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

    /// File and byte where it begins; nothing comes before what is computed.
    pub fn place(&self) -> (usize, u64) {
        match &self.origin {
            Origin::Stored(stored) => (stored.file, stored.offset_bytes),
            Origin::Computed(_) => (0, 0),
        }
    }

    /// Bytes in all, when it is read.
    pub fn n_bytes(&self) -> u64 {
        self.row_bytes * self.n_rows()
    }

    /// Whether it is a matrix of weights, which may be packed in another type: positions are looked up and stay as they are.
    fn is_matrix(&self) -> bool {
        self.shape.len() == 2 && self.name.ends_with(".weight") && self.name != "position_embd.weight"
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
        let tensors = header.tensors.into_iter().map(|info| Tensor::from_gguf(info, 0));
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

    /// Presents matrices in another block type; they are packed while they are read. With Q4_0 the matrix that makes the
    /// logits (the output, or the embedding where there is none) becomes Q8_0, since errors there are not averaged out by
    /// further layers; vectors and learned positions keep their type, and so do rows that are no whole number of blocks.
    pub fn quantize(&mut self, block_type: BlockType, which: Repack) {
        let head =
            if self.index.contains_key("output.weight") { "output.weight" } else { "token_embd.weight" };
        for tensor in &mut self.tensors {
            let Origin::Stored(stored) = &tensor.origin else { continue };
            let is_float = matches!(stored.block_type, BlockType::F32 | BlockType::F16 | BlockType::BF16);
            if !tensor.is_matrix() || !(is_float || which == Repack::All) {
                continue;
            }
            let of_head = block_type == BlockType::Q4_0 && tensor.name == head;
            let wanted = if of_head { BlockType::Q8_0 } else { block_type };
            if let Some(row_bytes) = wanted.row_bytes(tensor.row_len()) {
                (tensor.block_type, tensor.row_bytes) = (wanted, row_bytes);
            }
        }
        self.name_file_type();
    }

    /// How most values of matrices are packed; nothing without a matrix.
    pub fn main_block_type(&self) -> Option<BlockType> {
        let matrices = self.tensors.iter().filter(|tensor| tensor.is_matrix());
        matrices.map(|matrix| matrix.block_type).max_by_key(|block_type| self.n_values_in(*block_type))
    }

    fn n_values_in(&self, block_type: BlockType) -> u64 {
        let matrices = self.tensors.iter().filter(|tensor| tensor.is_matrix());
        matrices.filter(|tensor| tensor.block_type == block_type).map(Tensor::n_values).sum()
    }

    /// Writes down in the metadata what most matrices are, where llama.cpp has a number for it.
    pub(super) fn name_file_type(&mut self) {
        let most = FILE_TYPES.into_iter().max_by_key(|(block_type, _)| self.n_values_in(*block_type));
        if let Some((block_type, number)) = most
            && self.n_values_in(block_type) > 0
        {
            self.metadata.set("general.file_type", Value::U32(number));
        }
        self.metadata.set("general.quantization_version", Value::U32(QUANTIZATION_VERSION));
    }
}

impl Tensor {
    /// Of a GGUF file, the `file`-th of a model.
    pub(super) fn from_gguf(info: super::tensor::TensorInfo, file: usize) -> Self {
        let stored = Stored {
            file,
            name: info.name.clone(),
            offset_bytes: info.offset_bytes,
            block_type: info.block_type,
            arrangement: Arrangement::AsIs,
        };
        Self {
            row_bytes: info.row_bytes(),
            name: info.name,
            shape: info.shape,
            block_type: info.block_type,
            origin: Origin::Stored(stored),
        }
    }
}
