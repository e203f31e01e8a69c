//! Compute pipelines by their text, each made once for all models of a device: what a first token needs before the weights
//! come, the rest in quiet moments.
//!
//! Invariant: a step makes none. A tile that is not made has a smaller one in its place, which adds in the same order.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::Gpu;
use super::model::GpuModel;
use super::noise::Noise;
use super::shader::{Matvec, ShaderKey, TILES, TileSize, Variant};

/// A pipeline, made or not.
#[derive(Debug)]
pub(super) struct Pipeline {
    key: ShaderKey,
    made: OnceCell<wgpu::ComputePipeline>,
}

impl Pipeline {
    /// The pipeline, if it is made.
    pub(super) fn get(&self) -> Option<&wgpu::ComputePipeline> {
        self.made.get()
    }
}

/// Pipelines of all models of a device, and whether they return noise.
pub(super) type Known = Rc<RefCell<HashMap<(ShaderKey, bool), Rc<Pipeline>>>>;

/// All pipelines of a model.
#[derive(Debug)]
pub(super) struct Pipelines {
    device: wgpu::Device,
    has_dot4: bool,
    variant: Variant,
    noise: Option<Noise>,
    known: Known,
    layout: wgpu::PipelineLayout,
    by_key: HashMap<ShaderKey, Rc<Pipeline>>,
    /// Not made yet.
    left: Vec<Rc<Pipeline>>,
    n_made: usize,
}

impl Pipelines {
    pub(super) fn new(gpu: &Gpu, bind_group_layout: &wgpu::BindGroupLayout) -> Self {
        let layout = gpu.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some("pagelm"),
            bind_group_layouts: &[Some(bind_group_layout)],
            ..Default::default()
        });
        Self {
            device: gpu.device.clone(),
            has_dot4: gpu.has_dot4,
            variant: gpu.variant,
            noise: gpu.noise,
            known: Rc::clone(&gpu.known),
            layout,
            by_key: HashMap::new(),
            left: Vec::new(),
            n_made: 0,
        }
    }

    /// A matmul's pipelines, one a tile or tile size, or the one of another kernel.
    pub(super) fn of(&mut self, shader: ShaderKey) -> Vec<Rc<Pipeline>> {
        match shader {
            ShaderKey::Matmul(block, _, emit) => {
                TILES.map(|tile| self.one(ShaderKey::Matmul(block, tile, emit))).to_vec()
            }
            ShaderKey::Matvec(matvec) => {
                TILES.map(|tile| self.one(ShaderKey::Matvec(Matvec { tile, ..matvec }))).to_vec()
            }
            ShaderKey::MatmulTiled(block, emit, _) => [TileSize::Small, TileSize::Large]
                .map(|size| self.one(ShaderKey::MatmulTiled(block, emit, size)))
                .to_vec(),
            ShaderKey::MatmulFast(variant, block, _, emit) => {
                TILES.map(|tile| self.one(ShaderKey::MatmulFast(variant, block, tile, emit))).to_vec()
            }
            other => vec![self.one(other)],
        }
    }

    /// The pipeline of a key, made at once where a first token needs it and no model before did.
    fn one(&mut self, key: ShaderKey) -> Rc<Pipeline> {
        if let Some(own) = self.by_key.get(&key) {
            return Rc::clone(own);
        }
        let new = || Rc::new(Pipeline { key, made: OnceCell::new() });
        let known = (key, self.is_noise(key));
        let pipeline = Rc::clone(self.known.borrow_mut().entry(known).or_insert_with(new));
        if is_first(key) {
            self.make(&pipeline);
        } else {
            self.left.push(Rc::clone(&pipeline));
        }
        self.by_key.insert(key, Rc::clone(&pipeline));
        pipeline
    }

    fn is_noise(&self, key: ShaderKey) -> bool {
        self.noise.is_some_and(|noise| noise.covers(key, self.variant))
    }

    /// How many it made.
    pub(super) fn n_made(&self) -> usize {
        self.n_made
    }

    /// How many are not made yet.
    pub(super) fn n_left(&self) -> usize {
        self.left.iter().filter(|pipeline| pipeline.get().is_none()).count()
    }

    /// Makes one of those that are left.
    pub(super) fn make_next(&mut self) {
        while let Some(next) = self.left.pop() {
            if next.get().is_none() {
                return self.make(&next);
            }
        }
    }

    fn make(&mut self, pipeline: &Pipeline) {
        if pipeline.get().is_some() {
            return;
        }
        self.n_made += 1;
        let key = pipeline.key;
        let label = Some(key.entry_point());
        let text = if self.is_noise(key) { key.noise_source() } else { key.source(self.has_dot4) };
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
        pipeline.made.get_or_init(|| {
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label,
                layout: Some(&self.layout),
                module: &module,
                entry_point: label,
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: key.needs_zeroed_memory(),
                    ..Default::default()
                },
                cache: None,
            })
        });
    }
}

impl GpuModel {
    /// How many pipelines are left to be made.
    pub fn n_pipelines_left(&self) -> usize {
        self.pipelines.n_left()
    }

    /// Makes a pipeline that is left, if any; the future is done when the device has it.
    pub fn make_pipeline(&mut self) -> impl Future<Output = ()> + use<> {
        self.make_next_pipeline();
        let gpu = Rc::clone(&self.gpu);
        // A loss is noticed by whoever waits for a result.
        async move { _ = gpu.settle().await }
    }

    /// Makes all that are left.
    pub(super) fn make_pipelines(&mut self) {
        while self.n_pipelines_left() > 0 {
            self.make_next_pipeline();
        }
    }

    fn make_next_pipeline(&mut self) {
        let n_made = self.pipelines.n_made();
        self.pipelines.make_next();
        self.counters.gpu_objects += (self.pipelines.n_made() - n_made) as u64;
    }
}

/// Which of a matmul's pipelines serves so many rows: the tile made for them, or the largest below it that is made.
pub(super) fn tile_idx(pipelines: &[Rc<Pipeline>], tile: u32) -> usize {
    let made = TILES.iter().zip(pipelines).enumerate().filter(|(_, (_, pipeline))| pipeline.get().is_some());
    made.filter(|(_, (found, _))| **found <= tile).map(|(idx, _)| idx).next_back().unwrap_or(0)
}

/// Whether a first token needs it: of each decode kernel one row, and what reads prompts. On software adapters those are
/// decode kernels too; compiling all tiles of eight rows takes SwiftShader as long as reading 100 tokens, so four rows begin.
fn is_first(key: ShaderKey) -> bool {
    match key {
        ShaderKey::Matmul(_, tile, _) | ShaderKey::MatmulFast(_, _, tile, _) => matches!(tile, 1 | 4),
        ShaderKey::Matvec(matvec) => matvec.tile == 1,
        _ => true,
    }
}
