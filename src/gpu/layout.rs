//! Where everything lies: activation regions in three buffers, vectors in the tables, rows of a matrix in bindings.
//!
//! Invariant: rows of a region are padded to whole tiles, so a tile never writes into another kind's rows.

use std::ops::Range;

use super::attend_text::RANGE;
use super::lower::LowerError;
use super::packed::GROUP_WORDS;
use super::shader::Variant;
use super::weights::{GROUP, row_bytes};
pub use crate::plan::batch::Capacity;
use crate::plan::{KvType, Matrix, Op, Plan, Precision};

/// Rows that start a tile: decode rows are padded to this, then come prefill rows.
pub const TILE_ROWS: usize = 8;

/// An activation buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// The residual stream.
    Hidden,
    /// What matmuls read: norms and attention write it.
    Inputs,
    /// What projections make: queries, the gated MLP, logits.
    Outputs,
}

impl Capacity {
    /// Activation rows, each kind padded to whole tiles of its kernels.
    pub fn rows(&self) -> usize {
        self.decode_rows.next_multiple_of(TILE_ROWS) + self.prefill_rows.next_multiple_of(TILE_ROWS)
    }

    /// Rows of the logits' regions.
    pub fn padded_logit_rows(&self) -> usize {
        self.logit_rows.next_multiple_of(TILE_ROWS)
    }
}

/// Where an activation lies; its rows follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// In which buffer.
    pub buffer: Buffer,
    /// From its start, in f32 values.
    pub start: u32,
}

/// Offsets in f32 values, sizes in bytes.
///
/// Where whole heads are needed (norms of q and k, a cache in 8 bits), projections are not yet queries: they lie where queries do otherwise, and queries and
/// what is attended change buffers with each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// In [`Buffer::Hidden`]: (rows, width)
    pub hidden: Region,
    /// In [`Buffer::Hidden`], since neither queries nor what is attended are there: what attention makes of each span of
    /// positions that a decode row sees, where it is split: (decode rows, n_heads, spans, head_dim + greatest total 0 0)
    pub spans: Region,
    /// Most spans that a row sees.
    pub n_spans: u32,
    /// Ranges of positions in a span: as few as memory allows, since they come one after the other.
    pub span_ranges: u32,
    /// In [`Buffer::Inputs`]: (rows, width)
    pub normed: Region,
    /// In [`Buffer::Outputs`], where whole heads are needed: (rows, (n_heads + 2 n_kv_heads) · head_dim)
    pub projected: Region,
    /// (rows, n_heads · head_dim)
    pub query: Region,
    /// In the buffer that queries are not in: (rows, n_heads · head_dim)
    pub attended: Region,
    /// What is normed before it is added to the stream, in the buffer that it is not projected from: (rows, width)
    pub added: [Region; 2],
    /// In [`Buffer::Outputs`]: (rows, mlp_width)
    pub mlp: Region,
    /// In [`Buffer::Inputs`]: (logit rows, width)
    pub logits_normed: Region,
    /// In [`Buffer::Outputs`]: (logit rows, vocab_size)
    pub logits: Region,
    /// Regions that matmuls read, and where each lies in packed blocks: (rows, width / 32, [`GROUP_WORDS`]). A norm writes both
    /// in [`Buffer::Inputs`]; others are packed from one buffer into another.
    pub packed: [(Region, Region); 4],
    /// In the tables, one a vector of the plan.
    pub vectors: Vec<u32>,
    /// In the tables, one a rotary of the plan: (context, head_dim / 2, cos sin)
    pub rotaries: Vec<u32>,
    /// Size of [`Buffer::Hidden`].
    pub hidden_bytes: u64,
    /// Size of [`Buffer::Inputs`].
    pub inputs_bytes: u64,
    /// Size of [`Buffer::Outputs`].
    pub outputs_bytes: u64,
    /// Size of the tables.
    pub tables_bytes: u64,
}

impl Layout {
    /// Lays a plan out for so many rows; refuses what does not fit one binding.
    pub fn new(
        plan: &Plan,
        capacity: &Capacity,
        variant: Variant,
        max_binding_bytes: u64,
    ) -> Result<Self, LowerError> {
        let sizes = &plan.sizes;
        let rows = capacity.rows();
        let logit_rows = capacity.padded_logit_rows();
        let attention = sizes.n_heads * sizes.head_dim;
        let whole_heads = has(plan, |op| takes_whole_heads(plan, op));
        let norms_added = has(plan, |op| matches!(op, Op::ProjectAdd { post_norm: Some(_), .. }));
        let width_if = |is_used: bool, width: usize| if is_used { rows * width } else { 0 };
        let mut hidden = Regions::of(Buffer::Hidden);
        let mut inputs = Regions::of(Buffer::Inputs);
        let mut outputs = Regions::of(Buffer::Outputs);
        let stream = hidden.take(rows * sizes.width);
        let per_span = capacity.decode_rows * sizes.n_heads * (sizes.head_dim + 4);
        let most_span_bytes = (max_binding_bytes / 8).min(MOST_SPAN_BYTES);
        let n_spans_of =
            |n_ranges| if variant.shares_work() { most_spans(plan, capacity, n_ranges) } else { 0 };
        let fits = |n_ranges: &usize| (n_spans_of(*n_ranges) * per_span * 4) as u64 <= most_span_bytes;
        let span_ranges = (0..16).map(|power| 1 << power).find(fits).unwrap_or(1);
        let n_spans = n_spans_of(span_ranges);
        let spans = hidden.take(n_spans * per_span);
        let normed = inputs.take(rows * sizes.width);
        let projected =
            outputs.take(width_if(whole_heads, attention + 2 * sizes.n_kv_heads * sizes.head_dim));
        let (queries, others) =
            if whole_heads { (&mut inputs, &mut outputs) } else { (&mut outputs, &mut inputs) };
        let query = queries.take(rows * attention);
        let attended = others.take(rows * attention);
        let added = [
            inputs.take(width_if(norms_added, sizes.width)),
            outputs.take(width_if(norms_added, sizes.width)),
        ];
        let mlp = outputs.take(rows * sizes.mlp_width);
        let logits_normed = inputs.take(logit_rows * sizes.width);
        let logits = outputs.take(logit_rows * sizes.vocab_size);
        let words = |rows: usize, width: usize| match plan.precision {
            Precision::Exact => 0,
            Precision::Fast => rows * width / GROUP * GROUP_WORDS,
        };
        let beside_attended = if whole_heads { &mut inputs } else { &mut outputs };
        let packed_attended = beside_attended.take(words(rows, attention));
        let packed = [
            (normed, inputs.take(words(rows, sizes.width))),
            (attended, packed_attended),
            (mlp, inputs.take(words(rows, sizes.mlp_width))),
            (logits_normed, inputs.take(words(logit_rows, sizes.width))),
        ];
        let mut tables = Starts::default();
        let vectors = plan.vectors.iter().map(|vector| tables.take(vector.len())).collect();
        let rotary_len = capacity.context * sizes.head_dim;
        let rotaries = plan.rotaries.iter().map(|_| tables.take(rotary_len)).collect();
        let layout = Self {
            hidden: stream,
            spans,
            n_spans: n_spans as u32,
            span_ranges: span_ranges as u32,
            normed,
            projected,
            query,
            attended,
            added,
            mlp,
            logits_normed,
            logits,
            packed,
            vectors,
            rotaries,
            hidden_bytes: hidden.bytes(),
            inputs_bytes: inputs.bytes(),
            outputs_bytes: outputs.bytes(),
            tables_bytes: tables.bytes(),
        };
        let buffers = [
            ("the residual stream and attention to so long a context", layout.hidden_bytes),
            ("the activations", layout.inputs_bytes),
            ("the logits and activations", layout.outputs_bytes),
            ("the table of rotary positions", layout.tables_bytes),
        ];
        for (what, needed_bytes) in buffers {
            if needed_bytes > max_binding_bytes {
                return Err(LowerError::Binding {
                    what: what.into(),
                    needed_bytes,
                    limit_bytes: max_binding_bytes,
                });
            }
        }
        Ok(layout)
    }

    /// Positions in a span.
    pub fn span(&self) -> usize {
        (self.span_ranges * RANGE) as usize
    }
}

/// Most bytes for what attention makes of spans.
const MOST_SPAN_BYTES: u64 = 32 << 20;

/// Spans of so many positions that a row at a position sees; a window begins anywhere in one.
pub(super) fn n_spans(position: usize, window: Option<usize>, span: usize) -> usize {
    let all = position / span + 1;
    window.map_or(all, |window| all.min(window.saturating_sub(2) / span + 2))
}

/// Most spans of so many ranges that a row sees.
fn most_spans(plan: &Plan, capacity: &Capacity, n_ranges: usize) -> usize {
    let last = capacity.context.saturating_sub(1);
    let of_caches = plan.caches.iter().map(|cache| n_spans(last, cache.window, n_ranges * RANGE as usize));
    of_caches.max().unwrap_or(0)
}

/// Whether a projection of q, k and v is finished by a dispatch that sees whole heads: their norm needs all values, and so
/// does a scale that they share in the cache.
pub(super) fn takes_whole_heads(plan: &Plan, op: &Op) -> bool {
    matches!(op, Op::ProjectQkv { head_norms, .. } if head_norms.is_some() || plan.kv == KvType::Q8)
}

impl Layout {
    /// Where what lies in `region` lies in packed blocks.
    ///
    /// # Panics
    /// If no matmul reads the region.
    pub fn packed(&self, region: Region) -> Region {
        let found = self.packed.iter().find(|(plain, _)| *plain == region);
        found.expect("matmuls read what norms, attention and the MLP made").1
    }
}

fn has(plan: &Plan, is_wanted: impl Fn(&Op) -> bool) -> bool {
    plan.ops.iter().any(is_wanted)
}

/// Regions of an activation buffer.
struct Regions {
    buffer: Buffer,
    starts: Starts,
}

impl Regions {
    fn of(buffer: Buffer) -> Self {
        Self { buffer, starts: Starts::default() }
    }

    fn take(&mut self, len: usize) -> Region {
        Region { buffer: self.buffer, start: self.starts.take(len) }
    }

    fn bytes(&self) -> u64 {
        self.starts.bytes()
    }
}

/// Where things start that lie one after the other, each at a multiple of 4 values.
#[derive(Default)]
struct Starts {
    end: usize,
}

impl Starts {
    fn take(&mut self, len: usize) -> u32 {
        let start = self.end;
        self.end = (start + len).next_multiple_of(4);
        start as u32
    }

    fn bytes(&self) -> u64 {
        (self.end * 4).max(16) as u64
    }
}

/// Rows of a matrix that share a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Where its first row stands among the matrix's outputs.
    pub first_output: usize,
    /// Rows of the matrix it holds, in order.
    pub rows: Vec<Range<usize>>,
}

impl Segment {
    /// Rows in all.
    pub fn n_rows(&self) -> usize {
        self.rows.iter().map(Range::len).sum()
    }
}

/// Splits a matrix by rows so that each part fits a binding. `unit` rows stay together; with `halves` (gate and up) a part
/// holds the same rows of the upper and of the lower half.
pub fn segments(
    matrix: &Matrix,
    unit: usize,
    halves: bool,
    max_binding_bytes: u64,
) -> Result<Vec<Segment>, LowerError> {
    let n_halves = if halves { 2 } else { 1 };
    let n_outputs = matrix.n_rows() / n_halves;
    let output_bytes = row_bytes(matrix.block_type, matrix.n_columns) * n_halves as u64;
    let most = (max_binding_bytes / output_bytes.max(1)) as usize / unit * unit;
    if most == 0 {
        return Err(LowerError::Binding {
            what: format!("tensor {}", matrix.parts.first().map_or("", |part| &part.tensor)),
            needed_bytes: output_bytes * unit as u64,
            limit_bytes: max_binding_bytes,
        });
    }
    let starts = (0..n_outputs).step_by(most);
    Ok(starts
        .map(|first| {
            let end = n_outputs.min(first + most);
            let rows = (0..n_halves).map(|half| half * n_outputs + first..half * n_outputs + end).collect();
            Segment { first_output: first, rows }
        })
        .collect())
}
