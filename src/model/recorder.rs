//! What a `forward()` writes to: it keeps the operations in order, and names each tensor to [`super::tensors`].

use std::collections::HashSet;

use super::config::Config;
use super::error::ModelError;
use super::rotary::Scaling;
use crate::format::checkpoint::Checkpoint;
use crate::plan::{
    Activation, Cache, KvType, MatrixId, Nonlinearity, Norm, Op, Plan, Precision, Rotary, RotaryPairs,
    Rotation, Sizes, VectorId,
};

/// A plan being written.
pub(super) struct Recorder<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) config: &'a Config,
    pub(super) plan: Plan,
    context: usize,
    /// Tensors that have a place though this plan does not read them.
    pub(super) set_aside: HashSet<String>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint, config: &'a Config, kv: KvType, context: usize) -> Self {
        let sizes = Sizes {
            n_layers: config.n_layers,
            width: config.width,
            n_heads: config.n_heads,
            n_kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            mlp_width: config.mlp_width,
            vocab_size: config.vocab_size,
        };
        let (caches, layer_caches) = caches(&config.windows);
        let plan = Plan {
            sizes,
            rotaries: Vec::new(),
            kv,
            precision: Precision::Exact,
            caches,
            layer_caches,
            matrices: Vec::new(),
            vectors: Vec::new(),
            ops: Vec::new(),
        };
        Self { checkpoint, config, plan, context, set_aside: HashSet::new() }
    }

    pub(super) fn sizes(&self) -> Sizes {
        self.plan.sizes
    }

    pub(super) fn n_layers(&self) -> usize {
        self.plan.sizes.n_layers
    }

    /// Whether a layer sees only its last positions.
    pub(super) fn has_window(&self, layer: usize) -> bool {
        self.config.windows[layer].is_some()
    }

    /// The plan, once every tensor of the file has its place in it.
    pub(super) fn finish(self) -> Result<Plan, ModelError> {
        let plan = self.plan;
        let matrices = plan.matrices.iter().flat_map(|matrix| &matrix.parts).map(|part| &part.tensor);
        let vectors = plan.vectors.iter().flat_map(|vector| &vector.parts).map(|part| &part.tensor);
        let divisors = plan.rotaries.iter().filter_map(|rotary| rotary.divisors.as_ref());
        let used: HashSet<&String> = matrices.chain(vectors).chain(divisors).chain(&self.set_aside).collect();
        match self.checkpoint.tensors().iter().find(|tensor| !used.contains(&tensor.name)) {
            None => Ok(plan),
            Some(tensor) => Err(ModelError::UnusedTensor {
                name: tensor.name.clone(),
                architecture: self.config.architecture.clone(),
            }),
        }
    }

    pub(super) fn embed(&mut self, table: MatrixId, scale: f32) {
        self.plan.ops.push(Op::Embed { table, scale });
    }

    pub(super) fn add_position(&mut self, table: MatrixId) {
        self.plan.ops.push(Op::AddPosition { table });
    }

    pub(super) fn project_qkv(
        &mut self,
        layer: usize,
        norm: Norm,
        weights: Vec<MatrixId>,
        bias: Option<VectorId>,
        rotation: Option<Rotation>,
    ) {
        self.plan.ops.push(Op::ProjectQkv { layer, norm, weights, bias, head_norms: None, rotation });
    }

    /// The same with norms of each head of q and of k.
    pub(super) fn project_qkv_normed(
        &mut self,
        layer: usize,
        norm: Norm,
        weights: Vec<MatrixId>,
        head_norms: [Norm; 2],
        rotation: Rotation,
    ) {
        self.plan.ops.push(Op::ProjectQkv {
            layer,
            norm,
            weights,
            bias: None,
            head_norms: Some(head_norms),
            rotation: Some(rotation),
        });
    }

    pub(super) fn attend(&mut self, layer: usize) {
        let Config { attention_scale: scale, attention_softcap: softcap, .. } = *self.config;
        self.plan.ops.push(Op::Attend { layer, scale, softcap });
    }

    pub(super) fn project_add(
        &mut self,
        weights: MatrixId,
        bias: Option<VectorId>,
        input: Activation,
        post_norm: Option<Norm>,
    ) {
        self.plan.ops.push(Op::ProjectAdd { weights, bias, input, post_norm });
    }

    pub(super) fn gated_mlp(
        &mut self,
        norm: Norm,
        weights: Vec<MatrixId>,
        bias: Option<VectorId>,
        nonlinearity: Nonlinearity,
    ) {
        self.plan.ops.push(Op::GatedMlp { norm, weights, bias, nonlinearity });
    }

    pub(super) fn mlp(&mut self, norm: Norm, weights: MatrixId, bias: VectorId, nonlinearity: Nonlinearity) {
        self.plan.ops.push(Op::Mlp { norm, weights, bias: Some(bias), nonlinearity });
    }

    pub(super) fn logits(&mut self, norm: Norm, weights: MatrixId) {
        self.plan.ops.push(Op::Logits { norm, weights, softcap: self.config.logit_softcap });
    }

    /// The model's own rotation, with the divisors that its file has.
    pub(super) fn rotation(&mut self, pairs: RotaryPairs) -> Result<Rotation, ModelError> {
        let scaling = self.config.scaling;
        let (frequencies, magnitude) = self.config.rotary(self.config.rotary_base, scaling);
        let divisors = match scaling {
            Scaling::Long { original_context, .. } => self.long_divisors(original_context)?,
            _ => self.divisors("rope_freqs.weight")?,
        };
        Ok(self.push_rotary(Rotary { frequencies, divisors, magnitude }, pairs))
    }

    /// The rotation of layers with a window, which is never stretched.
    pub(super) fn window_rotation(&mut self, pairs: RotaryPairs, default_base: f32) -> Rotation {
        let base = self.config.window_rotary_base.unwrap_or(default_base);
        let (frequencies, magnitude) = self.config.rotary(base, Scaling::None);
        self.push_rotary(Rotary { frequencies, divisors: None, magnitude }, pairs)
    }

    fn push_rotary(&mut self, rotary: Rotary, pairs: RotaryPairs) -> Rotation {
        self.plan.rotaries.push(rotary);
        Rotation { rotary: self.plan.rotaries.len() - 1, pairs }
    }

    /// Those for the context that the model runs with, as llama.cpp chooses; the others are set aside.
    fn long_divisors(&mut self, original_context: usize) -> Result<Option<String>, ModelError> {
        let names = ["rope_factors_short.weight", "rope_factors_long.weight"];
        let [short, long] = [self.divisors(names[0])?, self.divisors(names[1])?];
        self.set_aside.extend([short.clone(), long.clone()].into_iter().flatten());
        Ok(if self.context > original_context { long } else { short })
    }
}

/// Every kind of layer by its window, those without first, and the kind of each layer.
fn caches(windows: &[Option<usize>]) -> (Vec<Cache>, Vec<usize>) {
    let mut kinds: Vec<Option<usize>> = windows.to_vec();
    kinds.sort_unstable();
    kinds.dedup();
    let of_layer = |window| kinds.iter().position(|kind| kind == window).expect("each window has its kind");
    let layer_caches = windows.iter().map(of_layer).collect();
    (kinds.iter().map(|window| Cache { window: *window }).collect(), layer_caches)
}
