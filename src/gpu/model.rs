//! One loaded model on a GPU: its weights, its cache, and its plan compiled to pipelines and bind groups.
//!
//! Invariant: after loading no GPU object but a command buffer is made; a step is one write and, unless it is a long prefill
//! on a slow device, one submit.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use futures_channel::oneshot;

use super::layout::{Buffer, Capacity, Layout, Segment};
use super::lower::{Dispatch, Grid, Rows, Target, lower};
use super::shader::{GRID_LIMIT, ShaderKey, TILES, Variant, WORKGROUP, tile_for};
use super::weights::{group_bytes, repack};
use super::{Gpu, GpuError, batch_words};
use crate::plan::batch::{BLOCK_TOKENS, Batch};
use crate::plan::{Device, MatrixId, Plan, Ticket, VectorId};

/// Steps that may be submitted and not yet read.
pub const STEPS_IN_FLIGHT: usize = 2;

/// The smallest cache worth having, in tokens.
const MIN_KV_TOKENS: usize = 64;

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
    n_kv_blocks: usize,
    weight_bytes: u64,
    activations: Activations,
    readbacks: Vec<wgpu::Buffer>,
    words: Vec<u32>,
    in_flight: VecDeque<InFlight>,
    next_ticket: u64,
    prefill_submits: usize,
    counters: Cell<Counters>,
}

/// The rows of a matrix that share a binding.
#[derive(Debug)]
struct MatrixBuffers {
    segment: Segment,
    quants: wgpu::Buffer,
    scales: Option<wgpu::Buffer>,
}

/// A dispatch ready to be recorded.
#[derive(Debug)]
struct Compiled {
    rows: Rows,
    grid: Grid,
    /// One a tile, or one.
    pipelines: Vec<Rc<wgpu::ComputePipeline>>,
    bind_group: wgpu::BindGroup,
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
        let mut maker = Maker { gpu: &gpu, n_objects: 0 };
        let (matrices, weight_bytes) = maker.matrices(&plan, lowered.segments).await?;
        let activations = maker.activations(&layout, &capacity).await?;
        let (kv, n_kv_blocks) = maker.kv(&plan, kv_tokens).await?;
        let compiled = maker.compile(&lowered.dispatches, &activations, &matrices, &kv);
        let readback_bytes = (capacity.padded_logit_rows() * plan.sizes.vocab_size * 4) as u64;
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
        let readbacks =
            (0..STEPS_IN_FLIGHT).map(|_| maker.buffer("readback", readback_bytes, usage)).collect();
        let counters = Counters { gpu_objects: maker.n_objects, ..Counters::default() };
        let model = Self {
            plan,
            layout,
            capacity,
            compiled,
            matrices,
            n_kv_blocks,
            weight_bytes,
            activations,
            readbacks,
            words: Vec::new(),
            in_flight: VecDeque::new(),
            next_ticket: 0,
            prefill_submits: 1,
            counters: Cell::new(counters),
            gpu,
        };
        model.write_rotary();
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
        let bytes = group_bytes(matrix.block_type).expect("lowering refuses block types without kernels");
        let groups = matrix.n_columns / 32;
        let row_bytes = groups * bytes.file;
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
                        &file[from..from + (end - start) * row_bytes],
                        &mut quants,
                        &mut scales,
                    );
                    let to = (segment_row + start - rows.start) * groups;
                    self.gpu.queue.write_buffer(&buffers.quants, (to * bytes.quants) as u64, &quants);
                    if let Some(buffer) = &buffers.scales {
                        self.gpu.queue.write_buffer(buffer, (to * bytes.scales) as u64, &scales);
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

    /// Tokens that the cache holds.
    pub fn kv_tokens(&self) -> usize {
        self.n_kv_blocks * BLOCK_TOKENS
    }

    /// Bytes of the cache.
    pub fn kv_bytes(&self) -> u64 {
        (self.n_kv_blocks * self.plan.sizes.kv_block_bytes(self.plan.kv) * self.plan.sizes.n_layers) as u64
    }

    /// Bytes of the weights on the device.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
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
        self.counters.get()
    }

    /// Splits a step with prefill rows into so many submits, so that a slow device stays responsive.
    pub fn set_prefill_submits(&mut self, n_submits: usize) {
        self.prefill_submits = n_submits.max(1);
    }

    fn write_rotary(&self) {
        let frequencies = &self.plan.rotary_frequencies;
        let mut table = Vec::with_capacity(frequencies.len() * 2 * 256);
        let mut offset = u64::from(self.layout.rotary) * 4;
        for position in 0..self.capacity.context {
            for frequency in frequencies {
                // f32 throughout, as the models were trained with.
                let angle = position as f32 * frequency;
                table.extend([angle.cos(), angle.sin()]);
            }
            if position % 256 == 255 || position + 1 == self.capacity.context {
                self.gpu.queue.write_buffer(&self.activations.tables, offset, bytemuck::cast_slice(&table));
                offset += (table.len() * 4) as u64;
                table.clear();
            }
        }
    }

    fn n_rows(&self, batch: &Batch, rows: Rows) -> usize {
        match rows {
            Rows::Decode => batch.n_decode,
            Rows::Prefill => batch.n_prefill(),
            Rows::Logits => batch.logit_rows.len(),
        }
    }

    fn record(&self, batch: &Batch, compiled: &[Compiled], encoder: &mut wgpu::CommandEncoder) -> u64 {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        let mut n_dispatches = 0;
        for dispatch in compiled {
            let n_rows = self.n_rows(batch, dispatch.rows);
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

impl Device for GpuModel {
    type Error = GpuError;

    fn submit(&mut self, batch: &Batch) -> Ticket {
        assert!(self.in_flight.len() < STEPS_IN_FLIGHT, "a step is read before a third is submitted");
        assert!(
            batch.n_decode <= self.capacity.decode_rows && batch.n_prefill() <= self.capacity.prefill_rows
        );
        assert!(batch.logit_rows.len() <= self.capacity.logit_rows, "the scheduler knows the capacity");
        let mut words = std::mem::take(&mut self.words);
        batch_words::encode(batch, &mut words);
        self.gpu.queue.write_buffer(&self.activations.batch, 0, bytemuck::cast_slice(&words));
        self.words = words;

        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let readback = (ticket.0 % STEPS_IN_FLIGHT as u64) as usize;
        let n_values = batch.logit_rows.len() * self.plan.sizes.vocab_size;
        // A step without logits copies one value: mapping waits only for work that uses the buffer.
        let end = (n_values as u64 * 4).max(4);
        let n_submits = if batch.n_prefill() > 0 { self.prefill_submits } else { 1 };
        let mut counters = self.counters.get();
        counters.steps += 1;
        counters.host_writes += 1;
        let pieces = self.compiled.chunks(self.compiled.len().div_ceil(n_submits));
        let n_pieces = pieces.len();
        for (i, piece) in pieces.enumerate() {
            let mut encoder =
                self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            counters.dispatches += self.record(batch, piece, &mut encoder);
            if i + 1 == n_pieces {
                let offset = u64::from(self.layout.logits) * 4;
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
        self.counters.set(counters);

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
        Grid::Items { n_items, rows } => {
            [n_items.div_ceil(WORKGROUP), n_rows.div_ceil(rows.unwrap_or(tile)), 1]
        }
        Grid::Groups { n_items, items, rows } => {
            let (x, z) = wide(n_items.div_ceil(items));
            [x, n_rows.div_ceil(rows.unwrap_or(tile)), z]
        }
        Grid::Flat { n_items } => [(n_rows * n_items).div_ceil(WORKGROUP), 1, 1],
    }
}

/// Buffers that every dispatch may bind.
#[derive(Debug)]
struct Activations {
    batch: wgpu::Buffer,
    tables: wgpu::Buffer,
    hidden: wgpu::Buffer,
    inputs: wgpu::Buffer,
    outputs: wgpu::Buffer,
    /// Bound where a dispatch reads no weights.
    no_weights: wgpu::Buffer,
    /// Bound where a dispatch has no cache.
    no_kv: wgpu::Buffer,
}

impl Activations {
    fn buffer(&self, buffer: Buffer) -> &wgpu::Buffer {
        match buffer {
            Buffer::Hidden => &self.hidden,
            Buffer::Inputs => &self.inputs,
            Buffer::Outputs => &self.outputs,
        }
    }
}

/// Makes GPU objects, and counts them.
struct Maker<'a> {
    gpu: &'a Gpu,
    n_objects: u64,
}

impl Maker<'_> {
    fn buffer(&mut self, label: &str, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.n_objects += 1;
        let descriptor =
            wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
        self.gpu.device.create_buffer(&descriptor)
    }

    /// Runs `make`, which asks for `needed_bytes`; what it made is unusable if memory did not suffice.
    async fn within_memory<T>(
        &mut self,
        what: &'static str,
        needed_bytes: u64,
        make: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, GpuError> {
        let scope = self.gpu.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let made = make(self);
        match scope.pop().await {
            Some(_) => Err(GpuError::OutOfMemory { what, needed_bytes }),
            None => Ok(made),
        }
    }

    async fn matrices(
        &mut self,
        plan: &Plan,
        segments: Vec<Vec<Segment>>,
    ) -> Result<(Vec<Vec<MatrixBuffers>>, u64), GpuError> {
        let mut total = 0;
        for (matrix, segments) in plan.matrices.iter().zip(&segments) {
            let bytes = group_bytes(matrix.block_type).expect("lowering refuses block types without kernels");
            let groups: usize = segments.iter().map(|s| s.n_rows() * matrix.n_columns / 32).sum();
            total += (groups * (bytes.quants + bytes.scales)) as u64;
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let made = self.within_memory("the weights", total, |maker| {
            let each = plan.matrices.iter().zip(segments);
            each.map(|(matrix, segments)| {
                let bytes = group_bytes(matrix.block_type).expect("checked above");
                let label = matrix.parts.first().map_or("weights", |part| &part.tensor);
                let to_buffers = |segment: Segment| {
                    let groups = (segment.n_rows() * matrix.n_columns / 32) as u64;
                    let quants = maker.buffer(label, groups * bytes.quants as u64, usage);
                    let scales =
                        (bytes.scales > 0).then(|| maker.buffer(label, groups * bytes.scales as u64, usage));
                    MatrixBuffers { segment, quants, scales }
                };
                segments.into_iter().map(to_buffers).collect()
            })
            .collect()
        });
        Ok((made.await?, total))
    }

    async fn activations(&mut self, layout: &Layout, capacity: &Capacity) -> Result<Activations, GpuError> {
        let batch_bytes = (batch_words::capacity_words(capacity) * 4) as u64;
        let needed = batch_bytes
            + layout.tables_bytes
            + layout.hidden_bytes
            + layout.inputs_bytes
            + layout.outputs_bytes;
        let storage = wgpu::BufferUsages::STORAGE;
        let written = storage | wgpu::BufferUsages::COPY_DST;
        let made = self.within_memory("activations", needed, |maker| Activations {
            batch: maker.buffer("batch", batch_bytes, written),
            tables: maker.buffer("tables", layout.tables_bytes, written),
            hidden: maker.buffer("hidden", layout.hidden_bytes, storage | wgpu::BufferUsages::COPY_SRC),
            inputs: maker.buffer("inputs", layout.inputs_bytes, storage | wgpu::BufferUsages::COPY_SRC),
            outputs: maker.buffer("outputs", layout.outputs_bytes, storage | wgpu::BufferUsages::COPY_SRC),
            no_weights: maker.buffer("no weights", 16, storage),
            no_kv: maker.buffer("no cache", 16, storage),
        });
        made.await
    }

    /// One buffer a layer: (blocks, K V, 32 slots, kv heads, head_dim). Half the tokens while memory does not suffice.
    async fn kv(&mut self, plan: &Plan, kv_tokens: usize) -> Result<(Vec<wgpu::Buffer>, usize), GpuError> {
        let block_bytes = plan.sizes.kv_block_bytes(plan.kv) as u64;
        let most = (self.gpu.max_binding_bytes() / block_bytes).max(1) as usize;
        let mut n_blocks = kv_tokens.div_ceil(BLOCK_TOKENS).clamp(1, most);
        loop {
            let size = block_bytes * n_blocks as u64;
            let needed = size * plan.sizes.n_layers as u64;
            let made = self.within_memory("the KV cache", needed, |maker| {
                (0..plan.sizes.n_layers)
                    .map(|_| maker.buffer("kv", size, wgpu::BufferUsages::STORAGE))
                    .collect()
            });
            match made.await {
                Ok(buffers) => return Ok((buffers, n_blocks)),
                Err(error) if n_blocks * BLOCK_TOKENS <= MIN_KV_TOKENS => return Err(error),
                Err(_) => n_blocks = (n_blocks / 2).max(1),
            }
        }
    }

    fn compile(
        &mut self,
        dispatches: &[Dispatch],
        activations: &Activations,
        matrices: &[Vec<MatrixBuffers>],
        kv: &[wgpu::Buffer],
    ) -> Vec<Compiled> {
        let layout = bind_group_layout(&self.gpu.device);
        let mut pipelines = Pipelines::new(&self.gpu.device, &layout);
        let stride = u64::from(self.gpu.limits.min_uniform_buffer_offset_alignment.max(64));
        let mut bytes = vec![0; dispatches.len() * stride as usize];
        for (i, dispatch) in dispatches.iter().enumerate() {
            let at = i * stride as usize;
            bytes[at..at + 64].copy_from_slice(bytemuck::bytes_of(&dispatch.constants));
        }
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let constants = self.buffer("constants", bytes.len() as u64, usage);
        self.gpu.queue.write_buffer(&constants, 0, &bytes);
        let compiled = dispatches.iter().enumerate().map(|(i, dispatch)| {
            let weights = dispatch.matrix.map(|(id, segment)| &matrices[id.0][segment]);
            let quants = weights.map_or(&activations.no_weights, |weights| &weights.quants);
            let scales =
                weights.and_then(|weights| weights.scales.as_ref()).unwrap_or(&activations.no_weights);
            let kv = dispatch.layer.map_or(&activations.no_kv, |layer| &kv[layer]);
            let buffers = [
                &activations.batch,
                &activations.tables,
                activations.buffer(dispatch.inputs),
                activations.buffer(dispatch.outputs),
                quants,
                scales,
                kv,
            ];
            let mut entries: Vec<wgpu::BindGroupEntry<'_>> = buffers
                .iter()
                .zip(0..)
                .map(|(buffer, binding)| wgpu::BindGroupEntry {
                    binding,
                    resource: buffer.as_entire_binding(),
                })
                .collect();
            let uniform = wgpu::BufferBinding {
                buffer: &constants,
                offset: i as u64 * stride,
                size: wgpu::BufferSize::new(64),
            };
            entries
                .push(wgpu::BindGroupEntry { binding: 7, resource: wgpu::BindingResource::Buffer(uniform) });
            let label = Some(dispatch.shader.entry_point());
            let descriptor = wgpu::BindGroupDescriptor { label, layout: &layout, entries: &entries };
            Compiled {
                rows: dispatch.rows,
                grid: dispatch.grid,
                pipelines: pipelines.of(dispatch.shader),
                bind_group: self.gpu.device.create_bind_group(&descriptor),
            }
        });
        let compiled: Vec<Compiled> = compiled.collect();
        self.n_objects += compiled.len() as u64 + pipelines.made.len() as u64;
        compiled
    }
}

/// Pipelines by their text, each made once.
struct Pipelines<'a> {
    device: &'a wgpu::Device,
    layout: wgpu::PipelineLayout,
    made: HashMap<ShaderKey, Rc<wgpu::ComputePipeline>>,
}

impl<'a> Pipelines<'a> {
    fn new(device: &'a wgpu::Device, bind_group_layout: &wgpu::BindGroupLayout) -> Self {
        let descriptor = wgpu::PipelineLayoutDescriptor {
            label: Some("pagelm"),
            bind_group_layouts: &[Some(bind_group_layout)],
            ..Default::default()
        };
        Self { device, layout: device.create_pipeline_layout(&descriptor), made: HashMap::new() }
    }

    /// A matmul's pipelines, one a tile, or the one of another kernel.
    fn of(&mut self, shader: ShaderKey) -> Vec<Rc<wgpu::ComputePipeline>> {
        match shader {
            ShaderKey::Matmul(variant, block, _, emit) => {
                TILES.map(|tile| self.make(ShaderKey::Matmul(variant, block, tile, emit))).to_vec()
            }
            other => vec![self.make(other)],
        }
    }

    fn make(&mut self, key: ShaderKey) -> Rc<wgpu::ComputePipeline> {
        let make = || {
            let label = Some(key.entry_point());
            let source = wgpu::ShaderSource::Wgsl(key.source().into());
            let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
            Rc::new(self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label,
                layout: Some(&self.layout),
                module: &module,
                entry_point: label,
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            }))
        };
        Rc::clone(self.made.entry(key).or_insert_with(make))
    }
}

/// The one layout of common.wgsl: 7 storage buffers and a uniform.
fn bind_group_layout(device: &wgpu::Device) -> wgpu::BindGroupLayout {
    let read = wgpu::BufferBindingType::Storage { read_only: true };
    let write = wgpu::BufferBindingType::Storage { read_only: false };
    let types = [read, read, read, write, read, read, write, wgpu::BufferBindingType::Uniform];
    let entries: Vec<wgpu::BindGroupLayoutEntry> = types
        .into_iter()
        .zip(0..)
        .map(|(ty, binding)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        })
        .collect();
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some("pagelm"),
        entries: &entries,
    })
}
