//! One loaded model on a GPU: its weights, its cache, and its plan compiled to pipelines and bind groups.
//!
//! Invariant: after loading no GPU object but a command buffer is made; a step is one write and, unless it is a long prefill
//! on a slow device, one submit.

use std::collections::VecDeque;
use std::rc::Rc;

use super::buffers::Buffers;
use super::layout::{Buffer, Capacity, Layout, n_spans};
use super::lower::{Grid, Rows, lower};
use super::maker::{Activations, Compiled, Maker, MatrixBuffers};
use super::pipelines::{Pipelines, tile_idx};
use super::readback::{Mapping, Readback};
use super::sampled_words::{self, SAMPLED_WORDS};
use super::serial_tile::pairs_for;
use super::shader::{GRID_LIMIT, TILES, TileSize, Variant, WORKGROUP, tile_for};
use super::weights::{device_bytes, file_row_bytes, repack};
use super::{Gpu, GpuError, batch_words, packed};
use crate::plan::batch::{BLOCK_TOKENS, Batch, STEPS_IN_FLIGHT, SampledAt};
use crate::plan::sample::Sampling;
use crate::plan::{Device, MatrixId, Plan, StepOutput, Ticket, VectorId};

/// What steps cost the host, counted since loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Steps submitted.
    pub steps: u64,
    /// Dispatches recorded.
    pub dispatches: u64,
    /// Command buffers submitted.
    pub submits: u64,
    /// Writes from the host.
    pub host_writes: u64,
    /// Buffers, pipelines and bind groups made.
    pub gpu_objects: u64,
}

/// A loaded model.
#[derive(Debug)]
pub struct GpuModel {
    pub(super) gpu: Rc<Gpu>,
    pub(super) plan: Plan,
    layout: Layout,
    capacity: Capacity,
    pub(super) compiled: Vec<Compiled>,
    pub(super) pipelines: Pipelines,
    matrices: Vec<Vec<MatrixBuffers>>,
    /// Blocks of each cache of the plan.
    cache_blocks: Vec<usize>,
    weight_bytes: u64,
    activations: Activations,
    readbacks: Vec<Readback>,
    words: Vec<u32>,
    /// Of the batch that was written last.
    n_attention_tiles: u32,
    in_flight: VecDeque<InFlight>,
    next_ticket: u64,
    prefill_submits: usize,
    /// Dispatches are recorded without a workgroup: the host does all that it does, and the device nothing.
    is_hollow: bool,
    /// Of tiles of prompts, where a check wants one.
    tile_size: Option<TileSize>,
    pub(super) counters: Counters,
    buffers: Buffers,
}

#[derive(Debug)]
struct InFlight {
    ticket: Ticket,
    /// How each row with logits was sampled: (logit rows)
    samplings: Vec<Option<Sampling>>,
    mapping: Mapping,
}

/// Bytes that a step's results take on their way back, at most.
pub fn readback_bytes(capacity: &Capacity, vocab_size: usize) -> u64 {
    (capacity.padded_logit_rows() * vocab_size + capacity.logit_rows * SAMPLED_WORDS) as u64 * 4
}

impl GpuModel {
    /// Makes room for a plan's weights and a cache of `kv_tokens` (halved while memory does not suffice), and compiles it.
    pub async fn new(
        gpu: Rc<Gpu>,
        plan: Plan,
        capacity: Capacity,
        kv_tokens: usize,
    ) -> Result<Self, GpuError> {
        let mut model = Self::for_first_token(gpu, plan, capacity, kv_tokens).await?;
        model.make_pipelines();
        model.gpu.fault().map_or(Ok(model), Err)
    }

    /// The same with the pipelines that a first token needs; [`Self::make_pipeline`] makes the others, which are faster
    /// for several rows.
    pub async fn for_first_token(
        gpu: Rc<Gpu>,
        plan: Plan,
        capacity: Capacity,
        kv_tokens: usize,
    ) -> Result<Self, GpuError> {
        let max_binding_bytes = gpu.max_binding_bytes();
        let layout = Layout::new(&plan, &capacity, gpu.variant(), max_binding_bytes)?;
        let target = gpu.target();
        let lowered = lower(&plan, &layout, target)?;
        let mut maker = Maker { gpu: &gpu, n_objects: 0, buffers: Buffers::new(&gpu.live) };
        let (matrices, weight_bytes) = maker.matrices(&plan, lowered.segments).await?;
        let activations = maker.activations(&layout, &capacity, plan.caches.len()).await?;
        let (kv, cache_blocks) = maker.kv(&plan, &capacity, kv_tokens).await?;
        let (compiled, pipelines) = maker.compile(&plan, &lowered.dispatches, &activations, &matrices, &kv);
        let readback_bytes = readback_bytes(&capacity, plan.sizes.vocab_size);
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
        let readback = |_| Readback::new(maker.buffer("readback", readback_bytes, usage));
        let readbacks = (0..STEPS_IN_FLIGHT).map(readback).collect();
        let counters = Counters { gpu_objects: maker.n_objects, ..Counters::default() };
        let buffers = maker.buffers;
        let model = Self {
            plan,
            layout,
            capacity,
            compiled,
            pipelines,
            matrices,
            cache_blocks,
            weight_bytes,
            activations,
            readbacks,
            words: Vec::new(),
            n_attention_tiles: 0,
            in_flight: VecDeque::new(),
            next_ticket: 0,
            prefill_submits: 1,
            is_hollow: false,
            tile_size: None,
            counters,
            buffers,
            gpu,
        };
        match model.gpu.fault() {
            Some(fault) => Err(fault),
            None => Ok(model),
        }
    }

    /// Writes whole rows of a matrix, as the file stores them, from `first_row` on.
    ///
    /// # Panics
    /// If the bytes are not whole rows of the matrix.
    pub fn write_rows(&self, id: MatrixId, first_row: usize, file: &[u8]) {
        let matrix = &self.plan.matrices[id.0];
        let row_bytes = file_row_bytes(matrix.block_type, matrix.n_columns);
        assert!(file.len().is_multiple_of(row_bytes), "weights arrive in whole rows");
        let written = first_row..first_row + file.len() / row_bytes;
        for buffers in &self.matrices[id.0] {
            let mut segment_row = 0;
            for rows in &buffers.segment.rows {
                let start = rows.start.max(written.start);
                let end = rows.end.min(written.end);
                if start < end {
                    let (mut quants, mut scales) = (Vec::new(), Vec::new());
                    let from = (start - first_row) * row_bytes;
                    repack(
                        matrix.block_type,
                        matrix.n_columns,
                        &file[from..from + (end - start) * row_bytes],
                        &mut quants,
                        &mut scales,
                    );
                    let above = segment_row + start - rows.start;
                    let to = device_bytes(matrix.block_type, above, matrix.n_columns);
                    self.gpu.queue.write_buffer(&buffers.quants, to.quants, &quants);
                    if let Some(buffer) = &buffers.scales {
                        self.gpu.queue.write_buffer(buffer, to.scales, &scales);
                    }
                }
                segment_row += rows.len();
            }
        }
    }

    /// Writes a vector.
    pub fn write_vector(&self, id: VectorId, values: &[f32]) {
        let offset = u64::from(self.layout.vectors[id.0]) * 4;
        self.gpu.queue.write_buffer(&self.activations.tables, offset, bytemuck::cast_slice(values));
    }

    /// Waits until what was written has reached the device, so that staging memory is used again.
    pub async fn flush(&self) -> Result<(), GpuError> {
        self.gpu.queue.submit([]);
        self.gpu.settle().await
    }

    /// What its steps do.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Blocks of each cache of the plan: (caches)
    pub fn cache_blocks(&self) -> &[usize] {
        &self.cache_blocks
    }

    /// Tokens of all sequences that the roomiest cache holds.
    pub fn kv_tokens(&self) -> usize {
        self.cache_blocks.iter().max().expect("a plan has a cache") * BLOCK_TOKENS
    }

    /// Bytes of the keys and values of all layers.
    pub fn kv_bytes(&self) -> u64 {
        self.plan.kv_bytes(&self.cache_blocks)
    }

    /// Bytes of the weights on the device.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// Bytes of all its buffers.
    pub fn gpu_bytes(&self) -> u64 {
        self.buffers.n_bytes()
    }

    /// The kernels in use.
    pub fn variant(&self) -> Variant {
        self.gpu.variant()
    }

    /// Where activations lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A copy of an activation buffer, as the last step left it: for tests and for looking inside.
    pub async fn read_activations(&self, buffer: Buffer) -> Result<Vec<f32>, GpuError> {
        let source = self.activations.buffer(buffer);
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
        let descriptor = wgpu::BufferDescriptor {
            label: Some("copy"),
            size: source.size(),
            usage,
            mapped_at_creation: false,
        };
        let copy = self.gpu.device.create_buffer(&descriptor);
        let mut encoder = self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(source, 0, &copy, 0, source.size());
        let submission = self.gpu.queue.submit([encoder.finish()]);
        let mapping = Readback::new(copy).map(source.size(), submission);
        mapping.take(&self.gpu, |words| bytemuck::cast_slice(words).to_vec()).await
    }

    /// How many rows a step may have.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// What steps cost since loading.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Has the device do nothing from now on, so that what steps cost the host can be timed: what is read is not right.
    pub fn hollow_out(&mut self) {
        self.is_hollow = true;
    }

    /// Computes prompts in tiles of this size, whatever the size of the matrix: both must be right.
    pub fn set_tile_size(&mut self, size: TileSize) {
        self.tile_size = Some(size);
    }

    /// Splits a step with prefill rows into so many submits, so that a slow device stays responsive.
    pub fn set_prefill_submits(&mut self, n_submits: usize) {
        self.prefill_submits = n_submits.max(1);
    }

    /// Writes a rotary's table; `divisors` are the values of the tensor that the plan names for it.
    ///
    /// # Panics
    /// If there are not as many as the rotary has frequencies.
    pub fn write_rotary(&self, index: usize, divisors: Option<&[f32]>) {
        let rotary = &self.plan.rotaries[index];
        assert!(divisors.is_none_or(|divisors| divisors.len() == rotary.frequencies.len()));
        let frequency =
            |(i, frequency): (usize, &f32)| frequency / divisors.map_or(1.0, |divisors| divisors[i]);
        let frequencies: Vec<f32> = rotary.frequencies.iter().enumerate().map(frequency).collect();
        let mut table = Vec::with_capacity(frequencies.len() * 2 * 256);
        let mut offset = u64::from(self.layout.rotaries[index]) * 4;
        for position in 0..self.capacity.context {
            for frequency in &frequencies {
                // f32 throughout, as the models were trained with.
                let angle = position as f32 * frequency;
                table.extend([angle.cos() * rotary.magnitude, angle.sin() * rotary.magnitude]);
            }
            if position % 256 == 255 || position + 1 == self.capacity.context {
                self.gpu.queue.write_buffer(&self.activations.tables, offset, bytemuck::cast_slice(&table));
                offset += (table.len() * 4) as u64;
                table.clear();
            }
        }
    }

    fn record(&self, batch: &Batch, compiled: &[Compiled], encoder: &mut wgpu::CommandEncoder) -> u64 {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        compiled.iter().filter(|dispatch| self.dispatch(batch, dispatch, &mut pass)).count() as u64
    }

    /// Records a dispatch, if it has rows.
    pub(super) fn dispatch(
        &self,
        batch: &Batch,
        dispatch: &Compiled,
        pass: &mut wgpu::ComputePass<'_>,
    ) -> bool {
        let n_rows = n_rows(batch, dispatch.rows);
        if n_rows == 0 {
            return false;
        }
        let (pipeline, [x, y, z]) = match dispatch.grid {
            Grid::AttentionTiles { n_kv_heads } => (0, [n_kv_heads, self.n_attention_tiles, 1]),
            grid => {
                let grid = self.with_tile_size(grid);
                let tile_idx = tile_idx(&dispatch.pipelines, tile_for(n_rows));
                workgroups(grid, n_rows as u32, tile_idx, &batch.positions[..batch.n_decode])
            }
        };
        let pipeline = dispatch.pipelines.get(pipeline).unwrap_or(&dispatch.pipelines[0]);
        pass.set_pipeline(pipeline.get().expect("what a first token needs is made"));
        pass.set_bind_group(0, &dispatch.bind_group, &[]);
        pass.dispatch_workgroups(if self.is_hollow { 0 } else { x }, y, z);
        true
    }

    fn with_tile_size(&self, grid: Grid) -> Grid {
        match (grid, self.tile_size) {
            (Grid::Tiled { n_pairs, .. }, Some(TileSize::Small)) => {
                Grid::Tiled { n_pairs, least_groups: u32::MAX }
            }
            (Grid::Tiled { n_pairs, .. }, Some(TileSize::Large)) => Grid::Tiled { n_pairs, least_groups: 0 },
            (grid, _) => grid,
        }
    }

    /// Puts a batch on the device, with one write.
    pub(super) fn write_batch(&mut self, batch: &Batch) {
        let mut words = std::mem::take(&mut self.words);
        let tile_rows = batch_words::attention_tile_rows(&self.plan.sizes);
        self.n_attention_tiles = batch_words::attention_tiles(batch, tile_rows).count() as u32;
        batch_words::encode(batch, &self.capacity, self.plan.caches.len(), tile_rows, &mut words);
        self.gpu.queue.write_buffer(&self.activations.batch, 0, bytemuck::cast_slice(&words));
        self.words = words;
    }
}

pub(super) fn n_rows(batch: &Batch, rows: Rows) -> usize {
    match rows {
        Rows::Decode => batch.n_decode,
        Rows::Prefill => batch.n_prefill(),
        Rows::Logits => batch.logit_rows.len(),
        Rows::Sampled => batch.n_sampled(),
    }
}

impl GpuModel {
    /// Copies what the host reads of a step, and returns how many bytes that is: logits row by row, then what is sampled.
    fn copy_results(&self, batch: &Batch, to: &wgpu::Buffer, encoder: &mut wgpu::CommandEncoder) -> u64 {
        let row_bytes = self.plan.sizes.vocab_size as u64 * 4;
        let logits = u64::from(self.layout.logits.start) * 4;
        let mut end = 0;
        let mut first = 0;
        for rows in batch.samplings.chunk_by(|a, b| a.is_some() == b.is_some()) {
            if rows[0].is_none() {
                let n_bytes = rows.len() as u64 * row_bytes;
                let from = logits + first * row_bytes;
                encoder.copy_buffer_to_buffer(&self.activations.outputs, from, to, end, n_bytes);
                end += n_bytes;
            }
            first += rows.len() as u64;
        }
        if batch.n_sampled() > 0 {
            let slot = SampledAt { slot_of_step: batch.slot_of_step, logit_row: 0 };
            let from = sampled_words::place(slot, &self.capacity) as u64 * 4;
            let n_bytes = (batch.logit_rows.len() * SAMPLED_WORDS * 4) as u64;
            encoder.copy_buffer_to_buffer(&self.activations.sampled, from, to, end, n_bytes);
            end += n_bytes;
        }
        if end == 0 {
            // Mapping waits only for work that uses the buffer.
            encoder.copy_buffer_to_buffer(&self.activations.outputs, logits, to, 0, 4);
            end = 4;
        }
        end
    }
}

/// A step's results from what [`GpuModel::copy_results`] copied.
fn output_of(words: &[u32], samplings: &[Option<Sampling>], vocab_size: usize) -> StepOutput {
    let n_host_rows = samplings.iter().filter(|sampling| sampling.is_none()).count();
    let (logits, sampled) = words.split_at(n_host_rows * vocab_size);
    let rows = sampled.chunks_exact(SAMPLED_WORDS).zip(samplings);
    let decode = |(words, sampling): (&[u32], &Option<Sampling>)| {
        sampling.map(|sampling| sampled_words::decode(words, sampling.n_logprobs, vocab_size))
    };
    StepOutput { logits: bytemuck::cast_slice(logits).to_vec(), sampled: rows.filter_map(decode).collect() }
}

impl Device for GpuModel {
    type Error = GpuError;

    fn samples(&self) -> bool {
        self.gpu.samples()
    }

    fn submit(&mut self, batch: &Batch) -> Ticket {
        assert!(
            batch.n_decode <= self.capacity.decode_rows && batch.n_prefill() <= self.capacity.prefill_rows
        );
        assert!(batch.logit_rows.len() <= self.capacity.logit_rows, "the scheduler knows the capacity");
        assert!(batch.n_sampled() == 0 || self.samples(), "the scheduler knows who samples");
        self.write_batch(batch);
        let readback = self.readbacks.iter().find(|readback| readback.is_free());
        let readback = readback.expect("a step is read before a third is submitted");

        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let n_submits = if batch.n_prefill() > 0 { self.prefill_submits } else { 1 };
        let mut counters = self.counters;
        counters.steps += 1;
        counters.host_writes += 1;
        let mut pieces = self.compiled.chunks(self.compiled.len().div_ceil(n_submits)).peekable();
        let mapping = loop {
            let piece = pieces.next().expect("a plan has dispatches");
            let mut encoder =
                self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            counters.dispatches += self.record(batch, piece, &mut encoder);
            let is_last = pieces.peek().is_none();
            let end = if is_last { self.copy_results(batch, &readback.buffer, &mut encoder) } else { 0 };
            let submission = self.gpu.queue.submit([encoder.finish()]);
            counters.submits += 1;
            if is_last {
                break readback.map(end, submission);
            }
        };
        self.counters = counters;
        self.in_flight.push_back(InFlight { ticket, samplings: batch.samplings.clone(), mapping });
        ticket
    }

    fn read(
        &mut self,
        ticket: Ticket,
    ) -> impl Future<Output = Result<StepOutput, GpuError>> + 'static + use<> {
        let InFlight { ticket: oldest, samplings, mapping } =
            self.in_flight.pop_front().expect("a ticket is read once");
        assert_eq!(oldest, ticket, "tickets are read in their order");
        let (gpu, vocab_size) = (Rc::clone(&self.gpu), self.plan.sizes.vocab_size);
        async move { mapping.take(&gpu, |words| output_of(words, &samplings, vocab_size)).await }
    }
}

/// Which of a dispatch's pipelines, and how many workgroups of it.
fn workgroups(grid: Grid, n_rows: u32, by_tile: usize, decode_positions: &[u32]) -> (usize, [u32; 3]) {
    let wide = |groups: u32| (groups.min(GRID_LIMIT), groups.div_ceil(GRID_LIMIT).max(1));
    let tile = TILES[by_tile];
    match grid {
        Grid::Items { n_items } => (0, [n_items.div_ceil(WORKGROUP), n_rows, 1]),
        Grid::Pairs { n_pairs } => {
            let x = n_pairs.div_ceil(pairs_for(tile)).div_ceil(WORKGROUP);
            (by_tile, [x, n_rows.div_ceil(tile), 1])
        }
        Grid::PackedPairs { n_pairs, block } => {
            let x = n_pairs.div_ceil(packed::pairs_for(block, tile)).div_ceil(packed::SERIAL_WORKGROUP);
            (by_tile, [x, n_rows.div_ceil(tile), 1])
        }
        Grid::TiledRows { n_items, items } => {
            let (x, z) = wide(n_items.div_ceil(items));
            (by_tile, [x, n_rows.div_ceil(tile), z])
        }
        Grid::Groups { n_items, items, rows } => {
            let (x, z) = wide(n_items.div_ceil(items));
            (0, [x, n_rows.div_ceil(rows), z])
        }
        Grid::Cut { n_pairs, cut } => {
            let (x, z) = wide(n_pairs.div_ceil(cut.pairs(tile)));
            (by_tile, [x, n_rows.div_ceil(tile), z])
        }
        Grid::Spans { n_items, span, window } => {
            let seen = decode_positions.iter().map(|position| n_spans(*position as usize, window, span));
            (0, [seen.max().unwrap_or(0) as u32, n_rows, n_items])
        }
        Grid::Tiled { n_pairs, least_groups } => {
            let size = TileSize::for_size(n_pairs, n_rows, least_groups);
            let [pairs, rows] = size.pairs_and_rows();
            let (x, z) = wide(n_pairs.div_ceil(pairs));
            (size as usize, [x, n_rows.div_ceil(rows), z])
        }
        Grid::AttentionTiles { .. } => unreachable!("their number is the batch's"),
        Grid::Flat { n_items } => (0, [(n_rows * n_items).div_ceil(WORKGROUP), 1, 1]),
    }
}
