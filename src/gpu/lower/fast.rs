//! What `fast` adds to the lowering of an operation: activations are packed before the matmuls that read them so.
//!
//! Invariant: a matrix reads packed activations if its block type has codes, and f32 ones otherwise, whatever its neighbours
//! do; what several matrices read is packed once.

use super::ops::Lowering;
use super::{Constants, Dispatch, Grid, NONE, Rows};
use crate::format::block::BlockType;
use crate::gpu::layout::Region;
use crate::gpu::packed::{GROUP_WORDS, has_codes};
use crate::gpu::shader::{Emit, ShaderKey, Variant};
use crate::gpu::weights::GROUP;
use crate::plan::{MatrixId, Norm, NormKind, Precision};

impl Lowering<'_> {
    /// Whether a matrix multiplies packed activations.
    pub(super) fn is_fast(&self, id: MatrixId) -> bool {
        self.plan.precision == Precision::Fast && has_codes(self.plan.matrices[id.0].block_type)
    }

    /// Where a matrix finds what lies in `from`.
    pub(super) fn source(&self, id: MatrixId, from: Region) -> Region {
        if self.is_fast(id) { self.layout.packed(from) } else { from }
    }

    /// The norm of the stream, in the forms that these matrices read.
    pub(super) fn norm_before(&mut self, weights: &[MatrixId], norm: &Norm, to: Region, rows: Rows) {
        if !weights.iter().any(|id| self.is_fast(*id)) {
            self.norm(norm, self.layout.hidden, to, false, rows);
            return;
        }
        let is_read = weights.iter().any(|id| !self.is_fast(*id));
        let from = self.layout.hidden;
        let packed = self.layout.packed(to);
        let width = self.plan.sizes.width;
        let constants = Constants {
            n_blocks: (width / GROUP) as u32,
            x: from.start,
            x_stride: width as u32,
            y: packed.start,
            y_stride: (width / GROUP * GROUP_WORDS) as u32,
            plain: if is_read { to.start } else { NONE },
            weight: self.layout.vectors[norm.weight.0],
            value: norm.epsilon,
            is_layer_norm: u32::from(norm.kind == NormKind::Layer),
            ..self.with_bias(norm.bias, rows)
        };
        self.dispatches.push(Dispatch {
            shader: ShaderKey::NormFast(self.target.variant),
            rows,
            constants,
            inputs: from.buffer,
            outputs: packed.buffer,
            matrix: None,
            positions: None,
            layer: None,
            grid: match self.target.variant {
                Variant::Serial => Grid::Items { n_items: (width / GROUP) as u32 },
                _ => Grid::Groups { n_items: 1, items: 1, rows: 1 },
            },
        });
    }

    /// Packs what attention or the MLP made, where the matrix reads it so.
    pub(super) fn pack_before(&mut self, id: MatrixId, from: Region, rows: Rows) {
        if !self.is_fast(id) {
            return;
        }
        let packed = self.layout.packed(from);
        let width = self.plan.matrices[id.0].n_columns;
        let n_blocks = (width / GROUP) as u32;
        let constants = Constants {
            n_blocks,
            x: from.start,
            x_stride: width as u32,
            y: packed.start,
            y_stride: n_blocks * GROUP_WORDS as u32,
            ..self.constants(rows)
        };
        self.dispatches.push(Dispatch {
            shader: ShaderKey::Quantize(self.target.variant),
            rows,
            constants,
            inputs: from.buffer,
            outputs: packed.buffer,
            matrix: None,
            positions: None,
            layer: None,
            grid: Grid::Items { n_items: n_blocks },
        });
    }

    /// The kernel that multiplies packed activations, the same for all kinds of rows.
    pub(super) fn packed_matmul(&self, block: BlockType, emit: Emit, n_pairs: u32) -> (ShaderKey, Grid) {
        let grid = match self.target.variant {
            Variant::Serial => Grid::PackedPairs { n_pairs, block },
            _ => Grid::TiledRows { n_items: n_pairs, items: 4 },
        };
        (ShaderKey::MatmulFast(self.target.variant, block, 1, emit), grid)
    }
}
