//! What of a layer reads or writes its cache beside the projection of q, k and v.
//!
//! Invariant: of three dispatches in a row none reads the buffer that it writes: queries and what is attended lie in two
//! buffers, and what becomes of spans in the third.

use super::{Constants, Dispatch, Grid, Lowering, Rows};
use crate::gpu::attend_text::heads_for;
use crate::gpu::batch_words::attention_tile_rows;
use crate::gpu::shader::{ShaderKey, Variant};
use crate::plan::{Norm, Rotation};

impl Lowering<'_> {
    pub(super) fn rotate(
        &mut self,
        layer: usize,
        norms: Option<&[Norm; 2]>,
        rotation: Option<Rotation>,
        rows: Rows,
    ) {
        let sizes = self.plan.sizes;
        let constants = Constants {
            x: self.layout.projected.start,
            x_stride: self.qkv_width() as u32,
            y: self.layout.query.start,
            y_stride: (sizes.n_heads * sizes.head_dim) as u32,
            weight: self.vector(norms.map(|[query, _]| query.weight)),
            key_weight: self.vector(norms.map(|[_, key]| key.weight)),
            value: norms.map_or(0.0, |[query, _]| query.epsilon),
            ..self.rotated(rotation, self.of_cache(layer, self.constants(rows)))
        };
        let n_items = (sizes.n_heads + 2 * sizes.n_kv_heads) as u32;
        self.dispatches.push(Dispatch {
            shader: ShaderKey::Rotate(self.target.variant, self.plan.kv, sizes.head_dim as u32),
            rows,
            constants,
            inputs: self.layout.projected.buffer,
            outputs: self.layout.query.buffer,
            matrix: None,
            positions: None,
            layer: Some(layer),
            grid: self.grid_of_heads(n_items),
        });
    }

    fn grid_of_heads(&self, n_items: u32) -> Grid {
        match self.target.variant {
            Variant::Serial => Grid::Flat { n_items },
            _ => Grid::Groups { n_items, items: 1, rows: 1 },
        }
    }

    pub(super) fn attend(&mut self, layer: usize, scale: f32, softcap: Option<f32>, rows: Rows) {
        let sizes = self.plan.sizes;
        let (n_heads, head_dim) = (sizes.n_heads as u32, sizes.head_dim as u32);
        let width = n_heads * head_dim;
        let constants = Constants {
            x: self.layout.query.start,
            x_stride: width,
            y: self.layout.attended.start,
            y_stride: width,
            value: scale,
            softcap: softcap.unwrap_or(0.0),
            ..self.of_cache(layer, self.constants(rows))
        };
        let shares_work = self.target.variant.shares_work();
        let tiled = rows == Rows::Prefill && shares_work && attention_tile_rows(&sizes) > 0;
        let (shader, grid) = if tiled {
            let n_kv_heads = sizes.n_kv_heads as u32;
            (ShaderKey::AttendTiled(self.plan.kv, head_dim), Grid::AttentionTiles { n_kv_heads })
        } else {
            let shader = ShaderKey::Attend(self.target.variant, self.plan.kv, head_dim);
            (shader, self.grid_of_heads(n_heads))
        };
        let whole = Dispatch {
            shader,
            rows,
            constants,
            inputs: self.layout.query.buffer,
            outputs: self.layout.attended.buffer,
            matrix: None,
            positions: None,
            layer: Some(layer),
            grid,
        };
        if rows == Rows::Prefill || !shares_work {
            self.dispatches.push(whole);
            return;
        }
        let spans = self.layout.spans;
        let spans_stride = n_heads * self.layout.n_spans * (head_dim + 4);
        let constants = Constants { n_ranges: self.layout.span_ranges, ..constants };
        let n_sharing = n_heads / sizes.n_kv_heads as u32;
        let heads = heads_for(n_sharing, head_dim);
        let n_items = sizes.n_kv_heads as u32 * n_sharing.div_ceil(heads);
        let window = self.plan.caches[self.plan.layer_caches[layer]].window;
        self.dispatches.push(Dispatch {
            shader: ShaderKey::AttendSplit(self.plan.kv, head_dim, heads),
            constants: Constants { y: spans.start, y_stride: spans_stride, ..constants },
            outputs: spans.buffer,
            grid: Grid::Spans { n_items, span: self.layout.span(), window },
            ..whole.clone()
        });
        self.dispatches.push(Dispatch {
            shader: ShaderKey::AttendMerge(head_dim),
            constants: Constants { x: spans.start, x_stride: spans_stride, ..constants },
            inputs: spans.buffer,
            layer: None,
            grid: self.grid_of_heads(n_heads),
            ..whole
        });
    }
}
