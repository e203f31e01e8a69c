//! One loaded model on a GPU: its weights, its cache, and its plan compiled to pipelines and bind groups.
//!
//! Invariant: after loading no GPU object but a command buffer is made; a step is one write and, unless it is a long prefill
//! on a slow device, one submit.

use std::collections::VecDeque;
use std::rc::Rc;

use futures_channel::oneshot;

use super::buffers::Buffers;
use super::layout::{Buffer, Capacity, Layout};
use super::lower::{Grid, Rows, Target, lower};
use super::maker::{Activations, Compiled, Maker, MatrixBuffers};
use super::serial_tile::pairs_for;
use super::shader::{GRID_LIMIT, TILES, Variant, WORKGROUP, tile_for};
use super::weights::{device_bytes, file_row_bytes, repack};
use super::{Gpu, GpuError, batch_words, packed};
use crate::plan::batch::{BLOCK_TOKENS, Batch};
use crate::plan::{Device, MatrixId, Plan, Ticket, VectorId};

/// Steps that may be submitted and not yet read.
pub const STEPS_IN_FLIGHT: usize = 2;

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
    gpu: Rc<Gpu>,
    plan: Plan,
    layout: Layout,
    capacity: Capacity,
    compiled: Vec<Compiled>,
    matrices: Vec<Vec<MatrixBuffers>>,
    /// Blocks of each cache of the plan.
    cache_blocks: Vec<usize>,
    weight_bytes: u64,
    activations: Activations,
    readbacks: Vec<wgpu::Buffer>,
    words: Vec<u32>,
    in_flight: VecDeque<InFlight>,
    next_ticket: u64,
    prefill_submits: usize,
    counters: Counters,
    buffers: Buffers,
}

#[derive(Debug)]
struct InFlight {
    ticket: Ticket,
    readback: usize,
    n_values: usize,
    /// Bytes that are mapped.
    end: u64,
    mapped: Mapped,
}

impl GpuModel {
    /// Makes room for a plan's weights and a cache of `kv_tokens` (halved while memory does not suffice), and compiles it.
    pub async fn new(
        gpu: Rc<Gpu>,
        plan: Plan,
        capacity: Capacity,
        kv_tokens: usize,
    ) -> Result<Self, GpuError> {
        let max_binding_bytes = gpu.max_binding_bytes();
        let layout = Layout::new(&plan, &capacity, max_binding_bytes)?;
        let target = Target { variant: gpu.variant(), max_matrix_bytes: gpu.max_matrix_bytes() };
        let lowered = lower(&plan, &layout, target)?;
        let mut maker = Maker { gpu: &gpu, n_objects: 0, buffers: Buffers::new(&gpu.live) };
        let (matrices, weight_bytes) = maker.matrices(&plan, lowered.segments).await?;
        let activations = maker.activations(&layout, &capacity, plan.caches.len()).await?;
        let (kv, cache_blocks) = maker.kv(&plan, &capacity, kv_tokens).await?;
        let compiled = maker.compile(&lowered.dispatches, &activations, &matrices, &kv);
        let readback_bytes = (capacity.padded_logit_rows() * plan.sizes.vocab_size * 4) as u64;
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
        let readbacks =
            (0..STEPS_IN_FLIGHT).map(|_| maker.buffer("readback", readback_bytes, usage)).collect();
        let counters = Counters { gpu_objects: maker.n_objects, ..Counters::default() };
        let buffers = maker.buffers;
        let model = Self {
            plan,
            layout,
            capacity,
            compiled,
            matrices,
            cache_blocks,
            weight_bytes,
            activations,
            readbacks,
            words: Vec::new(),
            in_flight: VecDeque::new(),
            next_ticket: 0,
            prefill_submits: 1,
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
        let (done, finished) = oneshot::channel();
        self.gpu.queue.on_submitted_work_done(move || {
            let _ = done.send(());
        });
        self.gpu.drive()?;
        if finished.await.is_err() {
            return Err(self.gpu.lost("it stopped answering while weights were written"));
        }
        self.gpu.fault().map_or(Ok(()), Err)
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
        self.gpu.queue.submit([encoder.finish()]);
        let mapped = map(&copy, source.size());
        self.gpu.drive()?;
        self.gpu.take(&copy, source.size(), mapped).await
    }

    /// How many rows a step may have.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// What steps cost since loading.
    pub fn counters(&self) -> Counters {
        self.counters
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
        let mut n_dispatches = 0;
        for dispatch in compiled {
            let n_rows = n_rows(batch, dispatch.rows);
            if n_rows == 0 {
                continue;
            }
            let tile = tile_for(n_rows);
            let tile_idx = TILES.iter().position(|t| *t == tile).expect("tile_for gives a tile");
            let pipeline = dispatch.pipelines.get(tile_idx).unwrap_or(&dispatch.pipelines[0]);
            let [x, y, z] = workgroups(dispatch.grid, n_rows as u32, tile);
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &dispatch.bind_group, &[]);
            pass.dispatch_workgroups(x, y, z);
            n_dispatches += 1;
        }
        n_dispatches
    }
}

fn n_rows(batch: &Batch, rows: Rows) -> usize {
    match rows {
        Rows::Decode => batch.n_decode,
        Rows::Prefill => batch.n_prefill(),
        Rows::Logits => batch.logit_rows.len(),
    }
}

impl Device for GpuModel {
    type Error = GpuError;

    fn submit(&mut self, batch: &Batch) -> Ticket {
        assert!(self.in_flight.len() < STEPS_IN_FLIGHT, "a step is read before a third is submitted");
        assert!(
            batch.n_decode <= self.capacity.decode_rows && batch.n_prefill() <= self.capacity.prefill_rows
        );
        assert!(batch.logit_rows.len() <= self.capacity.logit_rows, "the scheduler knows the capacity");
        let mut words = std::mem::take(&mut self.words);
        batch_words::encode(batch, self.plan.caches.len(), &mut words);
        self.gpu.queue.write_buffer(&self.activations.batch, 0, bytemuck::cast_slice(&words));
        self.words = words;

        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let readback = (ticket.0 % STEPS_IN_FLIGHT as u64) as usize;
        let n_values = batch.logit_rows.len() * self.plan.sizes.vocab_size;
        // A step without logits copies one value: mapping waits only for work that uses the buffer.
        let end = (n_values as u64 * 4).max(4);
        let n_submits = if batch.n_prefill() > 0 { self.prefill_submits } else { 1 };
        let mut counters = self.counters;
        counters.steps += 1;
        counters.host_writes += 1;
        let pieces = self.compiled.chunks(self.compiled.len().div_ceil(n_submits));
        let n_pieces = pieces.len();
        for (i, piece) in pieces.enumerate() {
            let mut encoder =
                self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            counters.dispatches += self.record(batch, piece, &mut encoder);
            if i + 1 == n_pieces {
                let offset = u64::from(self.layout.logits.start) * 4;
                encoder.copy_buffer_to_buffer(
                    &self.activations.outputs,
                    offset,
                    &self.readbacks[readback],
                    0,
                    end,
                );
            }
            self.gpu.queue.submit([encoder.finish()]);
            counters.submits += 1;
        }
        self.counters = counters;

        let mapped = map(&self.readbacks[readback], end);
        self.in_flight.push_back(InFlight { ticket, readback, n_values, end, mapped });
        ticket
    }

    async fn read(&mut self, ticket: Ticket) -> Result<Vec<f32>, GpuError> {
        let step = self.in_flight.pop_front().expect("a ticket is read once");
        assert_eq!(step.ticket, ticket, "tickets are read in their order");
        self.gpu.drive()?;
        let mut logits = self.gpu.take(&self.readbacks[step.readback], step.end, step.mapped).await?;
        logits.truncate(step.n_values);
        Ok(logits)
    }
}

type Mapped = oneshot::Receiver<Result<(), wgpu::BufferAsyncError>>;

/// Asks for the first `end` bytes of a buffer.
fn map(buffer: &wgpu::Buffer, end: u64) -> Mapped {
    let (done, mapped) = oneshot::channel();
    buffer.slice(..end).map_async(wgpu::MapMode::Read, move |result| {
        // Nobody waits for a step whose model is gone.
        let _ = done.send(result);
    });
    mapped
}

impl Gpu {
    /// Waits for what [`map`] asked for, copies it and gives the buffer back.
    async fn take(&self, buffer: &wgpu::Buffer, end: u64, mapped: Mapped) -> Result<Vec<f32>, GpuError> {
        let mapped = mapped.await;
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        let view = match mapped {
            Ok(Ok(())) => buffer.slice(..end).get_mapped_range().ok(),
            _ => None,
        };
        let Some(view) = view else { return Err(self.lost("a step's result could not be read")) };
        let values = bytemuck::cast_slice(&view).to_vec();
        drop(view);
        buffer.unmap();
        Ok(values)
    }

    /// Natively lets callbacks run once all submitted work is done; a browser does that by itself.
    fn drive(&self) -> Result<(), GpuError> {
        match self.device.poll(wgpu::PollType::wait_indefinitely()) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    fn lost(&self, reason: &str) -> GpuError {
        self.fault().unwrap_or_else(|| GpuError::Lost { reason: reason.into() })
    }
}

fn workgroups(grid: Grid, n_rows: u32, tile: u32) -> [u32; 3] {
    let wide = |groups: u32| (groups.min(GRID_LIMIT), groups.div_ceil(GRID_LIMIT).max(1));
    match grid {
        Grid::Items { n_items } => [n_items.div_ceil(WORKGROUP), n_rows, 1],
        Grid::Pairs { n_pairs } => {
            [n_pairs.div_ceil(pairs_for(tile)).div_ceil(WORKGROUP), n_rows.div_ceil(tile), 1]
        }
        Grid::PackedPairs { n_pairs, block } => [
            n_pairs.div_ceil(packed::pairs_for(block, tile)).div_ceil(packed::SERIAL_WORKGROUP),
            n_rows.div_ceil(tile),
            1,
        ],
        Grid::Groups { n_items, items, rows } => {
            let (x, z) = wide(n_items.div_ceil(items));
            [x, n_rows.div_ceil(rows.unwrap_or(tile)), z]
        }
        Grid::Flat { n_items } => [(n_rows * n_items).div_ceil(WORKGROUP), 1, 1],
    }
}
