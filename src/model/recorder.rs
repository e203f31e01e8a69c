//! What a `forward()` writes to: it checks each tensor's shape as it is named, and keeps the operations in order.

use std::collections::HashSet;

use super::config::{Config, ModelError};
use crate::format::block::BlockType;
use crate::format::checkpoint::Checkpoint;
use crate::plan::{
    Activation, KvType, Matrix, MatrixId, MatrixPart, Op, Plan, RmsNorm, RotaryPairs, Sizes, Vector, VectorId,
};

/// A plan being written.
pub(super) struct Recorder<'a> {
    checkpoint: &'a Checkpoint,
    config: &'a Config,
    plan: Plan,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint, config: &'a Config, kv: KvType) -> Self {
        let sizes = Sizes {
            n_layers: config.n_layers,
            width: config.width,
            n_heads: config.n_heads,
            n_kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            mlp_width: config.mlp_width,
            vocab_size: config.vocab_size,
        };
        let plan = Plan {
            sizes,
            rotary_frequencies: config.rotary_frequencies(),
            kv,
            matrices: Vec::new(),
            vectors: Vec::new(),
            ops: Vec::new(),
        };
        Self { checkpoint, config, plan }
    }

    pub(super) fn sizes(&self) -> Sizes {
        self.plan.sizes
    }

    /// The plan, once every tensor of the file has its place in it.
    pub(super) fn finish(self) -> Result<Plan, ModelError> {
        let plan = self.plan;
        let matrices =
            plan.matrices.iter().flat_map(|matrix| matrix.parts.iter().map(|part| part.tensor.as_str()));
        let used: HashSet<&str> =
            matrices.chain(plan.vectors.iter().map(|vector| vector.tensor.as_str())).collect();
        match self.checkpoint.tensors().iter().find(|tensor| !used.contains(tensor.name.as_str())) {
            None => Ok(plan),
            Some(tensor) => Err(ModelError::UnusedTensor {
                name: tensor.name.clone(),
                architecture: self.config.architecture.clone(),
            }),
        }
    }

    pub(super) fn embed(&mut self, table: MatrixId) {
        self.plan.ops.push(Op::Embed { table });
    }

    pub(super) fn project_qkv(
        &mut self,
        layer: usize,
        norm: RmsNorm,
        weights: Vec<MatrixId>,
        pairs: RotaryPairs,
    ) {
        self.plan.ops.push(Op::ProjectQkv { layer, norm, weights, pairs });
    }

    pub(super) fn attend(&mut self, layer: usize, scale: f32) {
        self.plan.ops.push(Op::Attend { layer, scale });
    }

    pub(super) fn project_add(&mut self, weights: MatrixId, input: Activation) {
        self.plan.ops.push(Op::ProjectAdd { weights, input });
    }

    pub(super) fn gated_mlp(&mut self, norm: RmsNorm, weights: MatrixId) {
        self.plan.ops.push(Op::GatedMlp { norm, weights });
    }

    pub(super) fn logits(&mut self, norm: RmsNorm, weights: MatrixId) {
        self.plan.ops.push(Op::Logits { norm, weights });
    }

    /// (vocab, width)
    pub(super) fn embedding(&mut self, name: &str) -> Result<MatrixId, ModelError> {
        self.matrix(name, self.config.vocab_size, self.config.width)
    }

    /// (vocab, width); the embedding's own matrix where the file has no other.
    pub(super) fn head(&mut self, name: &str, embedding: MatrixId) -> Result<MatrixId, ModelError> {
        match self.checkpoint.tensor(name) {
            Some(_) => self.matrix(name, self.config.vocab_size, self.config.width),
            None => Ok(embedding),
        }
    }

    /// (width, n_heads · head_dim)
    pub(super) fn attention_output(&mut self, name: &str) -> Result<MatrixId, ModelError> {
        self.matrix(name, self.config.width, self.config.n_heads * self.config.head_dim)
    }

    /// (width, mlp_width)
    pub(super) fn mlp_output(&mut self, name: &str) -> Result<MatrixId, ModelError> {
        self.matrix(name, self.config.width, self.config.mlp_width)
    }

    /// q, k and v below each other: ((n_heads + 2 n_kv_heads) · head_dim, width), a matrix for each run of one block type.
    pub(super) fn stack_qkv(&mut self, names: [&str; 3]) -> Result<Vec<MatrixId>, ModelError> {
        let config = self.config;
        let heads = [config.n_heads, config.n_kv_heads, config.n_kv_heads];
        let mut stacked: Vec<MatrixId> = Vec::new();
        for (name, n_heads) in names.into_iter().zip(heads) {
            let n_rows = n_heads * config.head_dim;
            let block_type = self.check(name, &[config.width, n_rows])?;
            let part = MatrixPart { tensor: name.into(), n_rows };
            match stacked.last().map(|id| &mut self.plan.matrices[id.0]) {
                Some(matrix) if matrix.block_type == block_type => matrix.parts.push(part),
                _ => stacked.push(self.push(vec![part], config.width, block_type)),
            }
        }
        Ok(stacked)
    }

    /// gate above up: (2 · mlp_width, width)
    pub(super) fn stack_gate_up(&mut self, gate: &str, up: &str) -> Result<MatrixId, ModelError> {
        let (n_columns, n_rows) = (self.config.width, self.config.mlp_width);
        let block_type = self.check(gate, &[n_columns, n_rows])?;
        let other = self.check(up, &[n_columns, n_rows])?;
        if block_type != other {
            let found = format!("{gate} is {}, {up} is {}", block_type.name(), other.name());
            let help = "take the model in a quantization that stores both alike".into();
            return Err(ModelError::Unsupported {
                what: "gate and up of different block types".into(),
                found,
                help,
            });
        }
        let parts = [gate, up].map(|tensor| MatrixPart { tensor: tensor.into(), n_rows });
        Ok(self.push(parts.into(), n_columns, block_type))
    }

    /// (width), f32
    pub(super) fn rms_norm(&mut self, name: &str) -> Result<RmsNorm, ModelError> {
        let len = self.config.width;
        let block_type = self.check(name, &[len])?;
        if block_type != BlockType::F32 {
            let help = "take a file whose norms are F32, as converters write them".into();
            let found = format!("{name} is {}", block_type.name());
            return Err(ModelError::Unsupported { what: "a norm that is not F32".into(), found, help });
        }
        self.plan.vectors.push(Vector { tensor: name.into(), len });
        Ok(RmsNorm { weight: VectorId(self.plan.vectors.len() - 1), epsilon: self.config.norm_epsilon })
    }

    fn matrix(&mut self, name: &str, n_rows: usize, n_columns: usize) -> Result<MatrixId, ModelError> {
        let block_type = self.check(name, &[n_columns, n_rows])?;
        Ok(self.push(vec![MatrixPart { tensor: name.into(), n_rows }], n_columns, block_type))
    }

    fn push(&mut self, parts: Vec<MatrixPart>, n_columns: usize, block_type: BlockType) -> MatrixId {
        self.plan.matrices.push(Matrix { parts, n_columns, block_type });
        MatrixId(self.plan.matrices.len() - 1)
    }

    /// The tensor's block type, once its shape (innermost first) is as expected.
    fn check(&self, name: &str, shape: &[usize]) -> Result<BlockType, ModelError> {
        let architecture = &self.config.architecture;
        let missing = || ModelError::MissingTensor { name: name.into(), architecture: architecture.clone() };
        let tensor = self.checkpoint.tensor(name).ok_or_else(missing)?;
        let expected: Vec<u64> = shape.iter().map(|size| *size as u64).collect();
        if tensor.shape != expected {
            return Err(ModelError::Shape { name: name.into(), found: tensor.shape.clone(), expected });
        }
        Ok(tensor.block_type)
    }
}
