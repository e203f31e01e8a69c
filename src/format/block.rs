//! How tensors pack values: the GGML block types, each by its id, its name and its size. A size here is the one on disk.

use std::fmt;

/// A GGML storage type. Every type that a file may name is listed, so that one the device cannot run is refused by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(non_camel_case_types, reason = "GGML's own names are the standard ones")]
#[expect(missing_docs, reason = "the names are GGML's; `Layout` tells what there is to tell")]
pub enum BlockType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ2_XXS,
    IQ2_XS,
    IQ3_XXS,
    IQ1_S,
    IQ4_NL,
    IQ3_S,
    IQ2_S,
    IQ4_XS,
    I8,
    I16,
    I32,
    I64,
    F64,
    IQ1_M,
    BF16,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
}

/// What is known about a block type.
struct Layout {
    block_type: BlockType,
    id: u32,
    name: &'static str,
    len: u32,
    bytes: u32,
}

const fn layout(block_type: BlockType, id: u32, name: &'static str, len: u32, bytes: u32) -> Layout {
    Layout { block_type, id, name, len, bytes }
}

/// In the order of [`BlockType`]: id in the file, name, values a block, bytes a block.
const LAYOUTS: [Layout; 34] = [
    layout(BlockType::F32, 0, "F32", 1, 4),
    layout(BlockType::F16, 1, "F16", 1, 2),
    layout(BlockType::Q4_0, 2, "Q4_0", 32, 18),
    layout(BlockType::Q4_1, 3, "Q4_1", 32, 20),
    layout(BlockType::Q5_0, 6, "Q5_0", 32, 22),
    layout(BlockType::Q5_1, 7, "Q5_1", 32, 24),
    layout(BlockType::Q8_0, 8, "Q8_0", 32, 34),
    layout(BlockType::Q8_1, 9, "Q8_1", 32, 36),
    layout(BlockType::Q2_K, 10, "Q2_K", 256, 84),
    layout(BlockType::Q3_K, 11, "Q3_K", 256, 110),
    layout(BlockType::Q4_K, 12, "Q4_K", 256, 144),
    layout(BlockType::Q5_K, 13, "Q5_K", 256, 176),
    layout(BlockType::Q6_K, 14, "Q6_K", 256, 210),
    layout(BlockType::Q8_K, 15, "Q8_K", 256, 292),
    layout(BlockType::IQ2_XXS, 16, "IQ2_XXS", 256, 66),
    layout(BlockType::IQ2_XS, 17, "IQ2_XS", 256, 74),
    layout(BlockType::IQ3_XXS, 18, "IQ3_XXS", 256, 98),
    layout(BlockType::IQ1_S, 19, "IQ1_S", 256, 50),
    layout(BlockType::IQ4_NL, 20, "IQ4_NL", 32, 18),
    layout(BlockType::IQ3_S, 21, "IQ3_S", 256, 110),
    layout(BlockType::IQ2_S, 22, "IQ2_S", 256, 82),
    layout(BlockType::IQ4_XS, 23, "IQ4_XS", 256, 136),
    layout(BlockType::I8, 24, "I8", 1, 1),
    layout(BlockType::I16, 25, "I16", 1, 2),
    layout(BlockType::I32, 26, "I32", 1, 4),
    layout(BlockType::I64, 27, "I64", 1, 8),
    layout(BlockType::F64, 28, "F64", 1, 8),
    layout(BlockType::IQ1_M, 29, "IQ1_M", 256, 56),
    layout(BlockType::BF16, 30, "BF16", 1, 2),
    layout(BlockType::TQ1_0, 34, "TQ1_0", 256, 54),
    layout(BlockType::TQ2_0, 35, "TQ2_0", 256, 66),
    layout(BlockType::MXFP4, 39, "MXFP4", 32, 17),
    layout(BlockType::NVFP4, 40, "NVFP4", 64, 36),
    layout(BlockType::Q1_0, 41, "Q1_0", 128, 18),
];

/// Ids that GGML gave out and took back.
const REMOVED: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl BlockType {
    fn layout(self) -> &'static Layout {
        &LAYOUTS[self as usize]
    }

    /// Every known type, by rising id.
    pub fn all() -> impl Iterator<Item = Self> {
        LAYOUTS.iter().map(|layout| layout.block_type)
    }

    /// The type with a GGML id, if there is one.
    pub fn from_id(id: u32) -> Option<Self> {
        LAYOUTS.iter().find(|layout| layout.id == id).map(|layout| layout.block_type)
    }

    /// The GGML id, as files carry it.
    pub fn id(self) -> u32 {
        self.layout().id
    }

    /// GGML's name, such as `Q4_1`.
    pub fn name(self) -> &'static str {
        self.layout().name
    }

    /// Values in a block; a row is a whole number of blocks.
    pub fn block_len(self) -> u32 {
        self.layout().len
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> u32 {
        self.layout().bytes
    }

    /// Bytes of a row of `n_values` values; `None` where that is no whole number of blocks, or overflows.
    pub fn row_bytes(self, n_values: u64) -> Option<u64> {
        let block_len = u64::from(self.block_len());
        if !n_values.is_multiple_of(block_len) {
            return None;
        }
        (n_values / block_len).checked_mul(u64::from(self.block_bytes()))
    }
}

impl fmt::Display for BlockType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of an id that GGML took back.
pub(super) fn removed_name(id: u32) -> Option<&'static str> {
    REMOVED.iter().find(|(removed, _)| *removed == id).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_enum() {
        for (index, layout) in LAYOUTS.iter().enumerate() {
            assert_eq!(layout.block_type as usize, index, "{}", layout.name);
            assert_eq!(format!("{:?}", layout.block_type), layout.name);
            assert_eq!(BlockType::from_id(layout.id), Some(layout.block_type));
            assert_eq!(removed_name(layout.id), None);
        }
        assert!(LAYOUTS.is_sorted_by_key(|layout| layout.id));
        assert_eq!(BlockType::all().count(), LAYOUTS.len());
        assert_eq!(BlockType::from_id(4), None);
        assert_eq!(removed_name(4), Some("Q4_2"));
    }

    #[test]
    fn row_bytes_counts_whole_blocks() {
        assert_eq!(BlockType::F32.row_bytes(576), Some(2304));
        assert_eq!(BlockType::F16.row_bytes(3), Some(6));
        assert_eq!(BlockType::Q4_1.row_bytes(576), Some(360));
        assert_eq!(BlockType::Q8_0.row_bytes(576), Some(612));
        assert_eq!(BlockType::Q6_K.row_bytes(512), Some(420));
        assert_eq!(BlockType::Q8_0.row_bytes(33), None);
        assert_eq!(BlockType::F64.row_bytes(u64::MAX), None);
    }
}
