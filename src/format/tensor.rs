//! Where a tensor lies in a file and how it is packed. Every offset and size here was checked against the file's length.

use super::block::{self, BlockType};
use super::cursor::{Cursor, Fault};
use super::decode::decoded_names;

/// A tensor of a model file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Sizes, innermost (a row's length) first; one to four of them, none 0.
    pub shape: Vec<u64>,
    /// How its values are packed.
    pub block_type: BlockType,
    /// Where its bytes start, from the start of the file.
    pub offset_bytes: u64,
    /// How many bytes it has.
    pub n_bytes: u64,
}

impl TensorInfo {
    /// Values in a row.
    pub fn row_len(&self) -> u64 {
        self.shape[0]
    }

    /// Number of rows.
    pub fn n_rows(&self) -> u64 {
        self.shape[1..].iter().product()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.n_bytes / self.n_rows()
    }

    /// The byte after the last one.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.n_bytes
    }
}

/// A tensor's entry in the header, whose offset counts from where the data starts.
pub(super) struct Entry {
    shape: Vec<u64>,
    block_type: BlockType,
    n_bytes: u64,
    relative_offset: u64,
}

/// Bytes of the shortest entry: a name of one character, one size, a type and an offset.
pub(super) const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

const MAX_DIMENSIONS: u32 = 4;

impl Entry {
    /// Reads what follows the name.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Fault> {
        let n_dimensions = cursor.u32()?;
        if n_dimensions == 0 || n_dimensions > MAX_DIMENSIONS {
            return Err(Fault::Damaged(format!(
                "it has {n_dimensions} dimensions, but 1 to {MAX_DIMENSIONS} are possible"
            )));
        }
        let shape = cursor.numbers(n_dimensions.into(), u64::from_le_bytes)?;
        let type_id = cursor.u32()?;
        let relative_offset = cursor.u64()?;
        let block_type = BlockType::from_id(type_id).ok_or_else(|| unknown_type(type_id))?;
        let n_bytes = size_in_bytes(&shape, block_type)?;
        Ok(Self { shape, block_type, n_bytes, relative_offset })
    }

    /// Places the tensor in the file.
    pub(super) fn place(self, name: &str, data_start: u64, alignment: u64) -> Result<TensorInfo, Fault> {
        let Self { shape, block_type, n_bytes, relative_offset } = self;
        if !relative_offset.is_multiple_of(alignment) {
            return Err(Fault::Damaged(format!(
                "its offset {relative_offset} is not a multiple of the file's alignment {alignment}"
            )));
        }
        let offset_bytes = data_start.saturating_add(relative_offset);
        if offset_bytes.checked_add(n_bytes).is_none() {
            return Err(Fault::Damaged(format!("its offset {relative_offset} is beyond any file")));
        }
        Ok(TensorInfo { name: name.to_owned(), shape, block_type, offset_bytes, n_bytes })
    }
}

fn unknown_type(type_id: u32) -> Fault {
    Fault::Damaged(match block::removed_name(type_id) {
        Some(name) => {
            format!("its block type {type_id} ({name}) was given up by GGML; use a file quantized anew")
        }
        None => format!(
            "its block type {type_id} is unknown to this version; use a file whose tensors are {}",
            decoded_names()
        ),
    })
}

fn size_in_bytes(shape: &[u64], block_type: BlockType) -> Result<u64, Fault> {
    if shape.contains(&0) {
        return Err(Fault::Damaged(format!("its shape {shape:?} has a 0")));
    }
    let row_len = shape[0];
    if !row_len.is_multiple_of(block_type.block_len().into()) {
        return Err(Fault::Damaged(format!(
            "its rows of {row_len} values are no whole number of {block_type} blocks of {}",
            block_type.block_len()
        )));
    }
    let n_values = shape.iter().try_fold(1, |product: u64, size| product.checked_mul(*size));
    // With whole blocks a row, the values of all rows are whole blocks too.
    n_values
        .and_then(|n_values| block_type.row_bytes(n_values))
        .ok_or_else(|| Fault::Damaged(format!("its shape {shape:?} overflows 64 bits")))
}
