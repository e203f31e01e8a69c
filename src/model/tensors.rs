//! The tensors of a plan: each is looked up by its GGUF name, and its shape and block type are checked as it is named.

use super::error::ModelError;
use super::recorder::Recorder;
use crate::format::block::BlockType;
use crate::plan::{Matrix, MatrixId, MatrixPart, Norm, NormKind, Vector, VectorId, VectorPart};

impl Recorder<'_> {
    /// (vocab, width)
    pub(super) fn embedding(&mut self) -> Result<MatrixId, ModelError> {
        self.matrix("token_embd.weight", self.config.vocab_size, self.config.width)
    }

    /// (context, width)
    pub(super) fn position_embedding(&mut self) -> Result<MatrixId, ModelError> {
        self.matrix("position_embd.weight", self.config.context, self.config.width)
    }

    /// (vocab, width); the embedding's own matrix where the file has no other.
    pub(super) fn head(&mut self, embedding: MatrixId) -> Result<MatrixId, ModelError> {
        match self.checkpoint.tensor("output.weight") {
            Some(_) => self.matrix("output.weight", self.config.vocab_size, self.config.width),
            None => Ok(embedding),
        }
    }

    /// (width, n_heads · head_dim)
    pub(super) fn attention_output(&mut self, layer: usize, part: &str) -> Result<MatrixId, ModelError> {
        let n_columns = self.config.n_heads * self.config.head_dim;
        self.matrix(&weight(layer, part), self.config.width, n_columns)
    }

    /// (mlp_width, width)
    pub(super) fn mlp_input(&mut self, layer: usize, part: &str) -> Result<MatrixId, ModelError> {
        self.matrix(&weight(layer, part), self.config.mlp_width, self.config.width)
    }

    /// (width, mlp_width)
    pub(super) fn mlp_output(&mut self, layer: usize, part: &str) -> Result<MatrixId, ModelError> {
        self.matrix(&weight(layer, part), self.config.width, self.config.mlp_width)
    }

    /// q, k and v below each other: ((n_heads + 2 n_kv_heads) · head_dim, width), a matrix for each run of one block type.
    pub(super) fn stack_qkv(&mut self, layer: usize, parts: [&str; 3]) -> Result<Vec<MatrixId>, ModelError> {
        let n_rows = self.qkv_rows();
        self.stack(&parts.map(|part| weight(layer, part)), &n_rows)
    }

    /// The same of one tensor.
    pub(super) fn fused_qkv(&mut self, layer: usize, part: &str) -> Result<MatrixId, ModelError> {
        self.matrix(&weight(layer, part), self.qkv_rows().iter().sum(), self.config.width)
    }

    /// gate above up: (2 · mlp_width, width), a matrix each where their block types differ.
    pub(super) fn stack_gate_up(
        &mut self,
        layer: usize,
        gate: &str,
        up: &str,
    ) -> Result<Vec<MatrixId>, ModelError> {
        self.stack(&[weight(layer, gate), weight(layer, up)], &[self.config.mlp_width; 2])
    }

    /// The same of one tensor.
    pub(super) fn fused_gate_up(&mut self, layer: usize, part: &str) -> Result<MatrixId, ModelError> {
        self.matrix(&weight(layer, part), 2 * self.config.mlp_width, self.config.width)
    }

    /// (width)
    pub(super) fn rms_norm(&mut self, layer: usize, part: &str) -> Result<Norm, ModelError> {
        self.norm(NormKind::RootMeanSquare, &format!("blk.{layer}.{part}"))
    }

    /// (width)
    pub(super) fn output_rms_norm(&mut self) -> Result<Norm, ModelError> {
        self.norm(NormKind::RootMeanSquare, "output_norm")
    }

    /// (width), with a bias.
    pub(super) fn layer_norm(&mut self, layer: usize, part: &str) -> Result<Norm, ModelError> {
        self.norm(NormKind::Layer, &format!("blk.{layer}.{part}"))
    }

    /// (width), with a bias.
    pub(super) fn output_layer_norm(&mut self) -> Result<Norm, ModelError> {
        self.norm(NormKind::Layer, "output_norm")
    }

    /// Of each head of q and of k: (head_dim)
    pub(super) fn head_norms(&mut self, layer: usize, parts: [&str; 2]) -> Result<[Norm; 2], ModelError> {
        let [q, k] = parts.map(|part| self.vector(&[(weight(layer, part), self.config.head_dim)]));
        let (kind, bias, epsilon) = (NormKind::RootMeanSquare, None, self.config.norm_epsilon);
        Ok([q?, k?].map(|weight| Norm { kind, weight, bias, epsilon }))
    }

    /// Of q, k and v, in one tensor or in three: ((n_heads + 2 n_kv_heads) · head_dim)
    pub(super) fn qkv_bias(&mut self, layer: usize, parts: &[&str]) -> Result<VectorId, ModelError> {
        let rows = self.qkv_rows();
        let named = |(part, len): (&&str, usize)| (bias(layer, part), len);
        match parts {
            [fused] => self.vector(&[(bias(layer, fused), rows.iter().sum())]),
            parts => self.vector(&parts.iter().zip(rows).map(named).collect::<Vec<_>>()),
        }
    }

    /// The same where the file has it.
    pub(super) fn opt_qkv_bias(
        &mut self,
        layer: usize,
        parts: [&str; 3],
    ) -> Result<Option<VectorId>, ModelError> {
        self.some_layer_has(&parts).then(|| self.qkv_bias(layer, &parts)).transpose()
    }

    /// (width)
    pub(super) fn output_bias(&mut self, layer: usize, part: &str) -> Result<VectorId, ModelError> {
        self.vector(&[(bias(layer, part), self.config.width)])
    }

    /// The same where the file has it.
    pub(super) fn opt_output_bias(
        &mut self,
        layer: usize,
        part: &str,
    ) -> Result<Option<VectorId>, ModelError> {
        self.some_layer_has(&[part]).then(|| self.output_bias(layer, part)).transpose()
    }

    /// Of gate, then up, where the file has them: (2 · mlp_width)
    pub(super) fn opt_gate_up_bias(
        &mut self,
        layer: usize,
        gate: &str,
        up: &str,
    ) -> Result<Option<VectorId>, ModelError> {
        let parts = [gate, up].map(|part| (bias(layer, part), self.config.mlp_width));
        self.some_layer_has(&[gate, up]).then(|| self.vector(&parts)).transpose()
    }

    /// (mlp_width)
    pub(super) fn mlp_bias(&mut self, layer: usize, part: &str) -> Result<VectorId, ModelError> {
        self.vector(&[(bias(layer, part), self.config.mlp_width)])
    }

    /// The name of a tensor of divisors of rotary frequencies, where the file has it: (head_dim / 2)
    pub(super) fn divisors(&self, name: &str) -> Result<Option<String>, ModelError> {
        if self.checkpoint.tensor(name).is_none() {
            return Ok(None);
        }
        self.check_f32(name, self.config.head_dim / 2)?;
        Ok(Some(name.into()))
    }

    /// Whether a bias is there in any layer: then it has to be there in all.
    fn some_layer_has(&self, parts: &[&str]) -> bool {
        let has = |layer| parts.iter().any(|part| self.checkpoint.tensor(&bias(layer, part)).is_some());
        (0..self.config.n_layers).any(has)
    }

    fn qkv_rows(&self) -> [usize; 3] {
        let config = self.config;
        [config.n_heads, config.n_kv_heads, config.n_kv_heads].map(|n_heads| n_heads * config.head_dim)
    }

    fn norm(&mut self, kind: NormKind, name: &str) -> Result<Norm, ModelError> {
        let width = self.config.width;
        let weight = self.vector(&[(format!("{name}.weight"), width)])?;
        let bias = match kind {
            NormKind::RootMeanSquare => None,
            NormKind::Layer => Some(self.vector(&[(format!("{name}.bias"), width)])?),
        };
        Ok(Norm { kind, weight, bias, epsilon: self.config.norm_epsilon })
    }

    /// Tensors of f32 values, one after the other.
    fn vector(&mut self, parts: &[(String, usize)]) -> Result<VectorId, ModelError> {
        for (name, len) in parts {
            self.check_f32(name, *len)?;
        }
        let part = |(tensor, len): &(String, usize)| VectorPart { tensor: tensor.clone(), len: *len };
        self.plan.vectors.push(Vector { parts: parts.iter().map(part).collect() });
        Ok(VectorId(self.plan.vectors.len() - 1))
    }

    /// Tensors of `width` columns below each other, a matrix for each run of one block type.
    fn stack(&mut self, names: &[String], n_rows: &[usize]) -> Result<Vec<MatrixId>, ModelError> {
        let n_columns = self.config.width;
        let mut stacked: Vec<MatrixId> = Vec::new();
        for (name, n_rows) in names.iter().zip(n_rows) {
            let block_type = self.check(name, &[n_columns, *n_rows])?;
            let part = MatrixPart { tensor: name.clone(), n_rows: *n_rows };
            match stacked.last().map(|id| &mut self.plan.matrices[id.0]) {
                Some(matrix) if matrix.block_type == block_type => matrix.parts.push(part),
                _ => stacked.push(self.push(vec![part], n_columns, block_type)),
            }
        }
        Ok(stacked)
    }

    fn matrix(&mut self, name: &str, n_rows: usize, n_columns: usize) -> Result<MatrixId, ModelError> {
        let block_type = self.check(name, &[n_columns, n_rows])?;
        Ok(self.push(vec![MatrixPart { tensor: name.into(), n_rows }], n_columns, block_type))
    }

    fn push(&mut self, parts: Vec<MatrixPart>, n_columns: usize, block_type: BlockType) -> MatrixId {
        self.plan.matrices.push(Matrix { parts, n_columns, block_type });
        MatrixId(self.plan.matrices.len() - 1)
    }

    fn check_f32(&self, name: &str, len: usize) -> Result<(), ModelError> {
        let block_type = self.check(name, &[len])?;
        if block_type == BlockType::F32 {
            return Ok(());
        }
        Err(ModelError::Unsupported {
            what: "a norm or bias that is not F32".into(),
            found: format!("{name} is {}", block_type.name()),
            help: "take a file whose norms and biases are F32, as converters write them".into(),
        })
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

fn weight(layer: usize, part: &str) -> String {
    format!("blk.{layer}.{part}.weight")
}

fn bias(layer: usize, part: &str) -> String {
    format!("blk.{layer}.{part}.bias")
}
