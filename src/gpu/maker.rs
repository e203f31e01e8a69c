//! Makes a model's GPU objects: buffers, pipelines, bind groups. All are made here, once, and counted.
//!
//! Invariant: memory that does not suffice is an error to the caller, never a fault of the device.

use std::rc::Rc;

use super::buffers::Buffers;
use super::layout::{Buffer, Capacity, Layout, Segment};
use super::lower::{Constants, Dispatch, Grid, Rows};
use super::pipelines::{Pipeline, Pipelines};
use super::shader::ShaderKey;
use super::weights::device_bytes;
use super::{Gpu, GpuError, batch_words, sampled_words};
use crate::plan::{Plan, kv_sizes};

/// Bytes of a dispatch's constants.
const CONSTANTS_BYTES: usize = size_of::<Constants>();

/// The rows of a matrix that share a binding.
#[derive(Debug)]
pub(super) struct MatrixBuffers {
    pub(super) segment: Segment,
    pub(super) quants: wgpu::Buffer,
    pub(super) scales: Option<wgpu::Buffer>,
}

/// A dispatch ready to be recorded.
#[derive(Debug)]
pub(super) struct Compiled {
    /// Its kernel, and what it multiplies with.
    pub(super) name: String,
    /// Bytes of weights that it reads.
    pub(super) weight_bytes: u64,
    pub(super) rows: Rows,
    pub(super) grid: Grid,
    /// One a tile or tile size, or one.
    pub(super) pipelines: Vec<Rc<Pipeline>>,
    pub(super) bind_group: wgpu::BindGroup,
}

/// Buffers that every dispatch may bind.
#[derive(Debug)]
pub(super) struct Activations {
    pub(super) batch: wgpu::Buffer,
    pub(super) tables: wgpu::Buffer,
    pub(super) hidden: wgpu::Buffer,
    pub(super) inputs: wgpu::Buffer,
    pub(super) outputs: wgpu::Buffer,
    /// Bound where a dispatch reads no weights.
    no_weights: wgpu::Buffer,
    /// What steps in flight sampled, bound where a dispatch has no cache.
    pub(super) sampled: wgpu::Buffer,
}

impl Activations {
    pub(super) fn buffer(&self, buffer: Buffer) -> &wgpu::Buffer {
        match buffer {
            Buffer::Hidden => &self.hidden,
            Buffer::Inputs => &self.inputs,
            Buffer::Outputs => &self.outputs,
        }
    }
}

/// Makes GPU objects, and counts them.
pub(super) struct Maker<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) n_objects: u64,
    pub(super) buffers: Buffers,
}

impl Maker<'_> {
    pub(super) fn buffer(&mut self, label: &str, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.n_objects += 1;
        let descriptor =
            wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
        let buffer = self.gpu.device.create_buffer(&descriptor);
        self.buffers.push(&buffer);
        buffer
    }

    /// Runs `make`, which asks for `needed_bytes`; what it made is unusable if memory did not suffice.
    async fn within_memory<T>(
        &mut self,
        what: &'static str,
        needed_bytes: u64,
        make: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, GpuError> {
        let scope = self.gpu.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let n_buffers = self.buffers.len();
        let made = make(self);
        match scope.pop().await {
            Some(_) => {
                self.buffers.truncate(n_buffers);
                Err(GpuError::OutOfMemory { what, needed_bytes })
            }
            None => Ok(made),
        }
    }

    pub(super) async fn matrices(
        &mut self,
        plan: &Plan,
        segments: Vec<Vec<Segment>>,
    ) -> Result<(Vec<Vec<MatrixBuffers>>, u64), GpuError> {
        let mut total = 0;
        for (matrix, segments) in plan.matrices.iter().zip(&segments) {
            let n_rows = segments.iter().map(Segment::n_rows).sum();
            let bytes = device_bytes(matrix.block_type, n_rows, matrix.n_columns);
            total += bytes.quants + bytes.scales;
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let made = self.within_memory("the weights", total, |maker| {
            let each = plan.matrices.iter().zip(segments);
            each.map(|(matrix, segments)| {
                let label = matrix.parts.first().map_or("weights", |part| &part.tensor);
                let to_buffers = |segment: Segment| {
                    let bytes = device_bytes(matrix.block_type, segment.n_rows(), matrix.n_columns);
                    let quants = maker.buffer(label, bytes.quants, usage);
                    let scales = (bytes.scales > 0).then(|| maker.buffer(label, bytes.scales, usage));
                    MatrixBuffers { segment, quants, scales }
                };
                segments.into_iter().map(to_buffers).collect()
            })
            .collect()
        });
        Ok((made.await?, total))
    }

    pub(super) async fn activations(
        &mut self,
        layout: &Layout,
        capacity: &Capacity,
        n_caches: usize,
    ) -> Result<Activations, GpuError> {
        let batch_bytes = (batch_words::capacity_words(capacity, n_caches) * 4) as u64;
        let sampled_bytes = (sampled_words::capacity_words(capacity) * 4) as u64;
        let needed = batch_bytes
            + sampled_bytes
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
            sampled: maker.buffer("sampled", sampled_bytes, storage | wgpu::BufferUsages::COPY_SRC),
        });
        made.await
    }

    /// One buffer a layer: (blocks of its cache, K V, 32 slots, kv heads, head_dim). Half the tokens while memory does not
    /// suffice. Gives the blocks of each cache too.
    pub(super) async fn kv(
        &mut self,
        plan: &Plan,
        capacity: &Capacity,
        kv_tokens: usize,
    ) -> Result<(Vec<wgpu::Buffer>, Vec<usize>), GpuError> {
        let block_bytes = plan.sizes.kv_block_bytes(plan.kv) as u64;
        let asked = plan.sizes.kv_blocks(plan.kv, kv_tokens, self.gpu.max_binding_bytes());
        let mut full = None;
        for n_blocks in kv_sizes(asked) {
            let blocks = plan.cache_blocks(n_blocks, capacity.decode_rows, capacity.prefill_rows);
            let sizes: Vec<u64> =
                plan.layer_caches.iter().map(|cache| block_bytes * blocks[*cache] as u64).collect();
            let made = self.within_memory("the KV cache", sizes.iter().sum(), |maker| {
                sizes.iter().map(|size| maker.buffer("kv", *size, wgpu::BufferUsages::STORAGE)).collect()
            });
            match made.await {
                Err(error @ GpuError::OutOfMemory { .. }) => full = Some(error),
                made => return made.map(|buffers| (buffers, blocks)),
            }
        }
        Err(full.expect("one size is tried at least"))
    }

    pub(super) fn compile(
        &mut self,
        plan: &Plan,
        dispatches: &[Dispatch],
        activations: &Activations,
        matrices: &[Vec<MatrixBuffers>],
        kv: &[wgpu::Buffer],
    ) -> (Vec<Compiled>, Pipelines) {
        let layout = bind_group_layout(&self.gpu.device);
        let mut pipelines = Pipelines::new(self.gpu, &layout);
        let alignment = u64::from(self.gpu.limits.min_uniform_buffer_offset_alignment);
        let stride = (CONSTANTS_BYTES as u64).next_multiple_of(alignment);
        let mut bytes = vec![0; dispatches.len() * stride as usize];
        for (i, dispatch) in dispatches.iter().enumerate() {
            let at = i * stride as usize;
            bytes[at..at + CONSTANTS_BYTES].copy_from_slice(bytemuck::bytes_of(&dispatch.constants));
        }
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let constants = self.buffer("constants", bytes.len() as u64, usage);
        self.gpu.queue.write_buffer(&constants, 0, &bytes);
        let compiled = dispatches.iter().enumerate().map(|(i, dispatch)| {
            let weights = dispatch.matrix.map(|(id, segment)| &matrices[id.0][segment]);
            let quants = weights.map_or(&activations.no_weights, |weights| &weights.quants);
            let scales =
                weights.and_then(|weights| weights.scales.as_ref()).unwrap_or(&activations.no_weights);
            let kv = dispatch.layer.map_or(&activations.sampled, |layer| &kv[layer]);
            let inputs = match dispatch.positions {
                Some(id) => &matrices[id.0][0].quants,
                None => activations.buffer(dispatch.inputs),
            };
            let buffers = [
                &activations.batch,
                &activations.tables,
                inputs,
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
                size: wgpu::BufferSize::new(CONSTANTS_BYTES as u64),
            };
            entries
                .push(wgpu::BindGroupEntry { binding: 7, resource: wgpu::BindingResource::Buffer(uniform) });
            let label = Some(dispatch.shader.entry_point());
            let tensor = dispatch.matrix.map(|(id, _)| plan.matrices[id.0].parts[0].tensor.as_str());
            let bytes = weights.map_or(0, |weights| {
                weights.quants.size() + weights.scales.as_ref().map_or(0, wgpu::Buffer::size)
            });
            let is_one_row = matches!(dispatch.shader, ShaderKey::Embed(..));
            let n_rows = weights.filter(|_| is_one_row).map_or(1, |weights| weights.segment.n_rows());
            let descriptor = wgpu::BindGroupDescriptor { label, layout: &layout, entries: &entries };
            Compiled {
                name: name_of(dispatch.shader.entry_point(), tensor),
                weight_bytes: bytes / n_rows as u64,
                rows: dispatch.rows,
                grid: dispatch.grid,
                pipelines: pipelines.of(dispatch.shader),
                bind_group: self.gpu.device.create_bind_group(&descriptor),
            }
        });
        let compiled: Vec<Compiled> = compiled.collect();
        self.n_objects += compiled.len() as u64 + pipelines.n_made() as u64;
        (compiled, pipelines)
    }
}

/// A kernel and the kind of tensor it reads, as `matmul_reduce attn_q`: alike in all layers.
fn name_of(entry_point: &str, tensor: Option<&str>) -> String {
    let kind = tensor.map(|tensor| {
        let stem = tensor.strip_suffix(".weight").unwrap_or(tensor);
        stem.rsplit('.').next().unwrap_or(stem)
    });
    kind.map_or_else(|| entry_point.to_owned(), |kind| format!("{entry_point} {kind}"))
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
