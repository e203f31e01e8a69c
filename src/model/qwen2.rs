//! Qwen 2 and 2.5: Llama's shape with biases on q, k and v, and rotary pairs half a head apart.

use super::error::ModelError;
use super::recorder::Recorder;
use crate::plan::{Activation, Nonlinearity, Plan, RotaryPairs};

/// One step: every row's token becomes its next-token logits.
pub(super) fn forward(mut r: Recorder<'_>) -> Result<Plan, ModelError> {
    let embedding = r.embedding()?; // (vocab, width)
    r.embed(embedding, 1.0); // hidden (rows, width)
    let rotation = r.rotation(RotaryPairs::SplitHalf)?;
    for layer in 0..r.n_layers() {
        let norm = r.rms_norm(layer, "attn_norm")?;
        let qkv = r.stack_qkv(layer, ["attn_q", "attn_k", "attn_v"])?;
        let bias = r.qkv_bias(layer, &["attn_q", "attn_k", "attn_v"])?;
        r.project_qkv(layer, norm, qkv, Some(bias), Some(rotation)); // q (rows, heads, head_dim); k, v → cache
        r.attend(layer); // attended (rows, heads · head_dim)
        let output = r.attention_output(layer, "attn_output")?;
        r.project_add(output, None, Activation::Attended, None); // hidden += …

        let norm = r.rms_norm(layer, "ffn_norm")?;
        let gate_up = r.stack_gate_up(layer, "ffn_gate", "ffn_up")?;
        r.gated_mlp(norm, gate_up, None, Nonlinearity::Silu); // mlp (rows, mlp_width)
        let down = r.mlp_output(layer, "ffn_down")?;
        r.project_add(down, None, Activation::Mlp, None); // hidden += …
    }
    let norm = r.output_rms_norm()?;
    let head = r.head(embedding)?; // (vocab, width), the embedding where it is tied
    r.logits(norm, head); // logits (logit rows, vocab)
    r.finish()
}
