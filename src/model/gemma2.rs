//! Gemma 2: a scaled embedding, norms before and after each half of a layer, every other layer with a window, capped
//! scores and logits.

use super::error::ModelError;
use super::recorder::Recorder;
use crate::plan::{Activation, Nonlinearity, Plan, RotaryPairs};

/// One step: every row's token becomes its next-token logits.
pub(super) fn forward(mut r: Recorder<'_>) -> Result<Plan, ModelError> {
    let embedding = r.embedding()?; // (vocab, width)
    r.embed(embedding, (r.sizes().width as f32).sqrt()); // hidden (rows, width)
    let rotation = r.rotation(RotaryPairs::SplitHalf)?;
    for layer in 0..r.n_layers() {
        let norm = r.rms_norm(layer, "attn_norm")?;
        let qkv = r.stack_qkv(layer, ["attn_q", "attn_k", "attn_v"])?;
        r.project_qkv(layer, norm, qkv, None, Some(rotation)); // q (rows, heads, head_dim); k, v → cache
        r.attend(layer); // attended (rows, heads · head_dim), scores capped
        let output = r.attention_output(layer, "attn_output")?;
        let after = r.rms_norm(layer, "post_attention_norm")?;
        r.project_add(output, None, Activation::Attended, Some(after)); // hidden += norm(…)

        let norm = r.rms_norm(layer, "ffn_norm")?;
        let gate_up = r.stack_gate_up(layer, "ffn_gate", "ffn_up")?;
        r.gated_mlp(norm, gate_up, None, Nonlinearity::GeluTanh); // mlp (rows, mlp_width)
        let down = r.mlp_output(layer, "ffn_down")?;
        let after = r.rms_norm(layer, "post_ffw_norm")?;
        r.project_add(down, None, Activation::Mlp, Some(after)); // hidden += norm(…)
    }
    let norm = r.output_rms_norm()?;
    let head = r.head(embedding)?; // (vocab, width), the embedding where it is tied
    r.logits(norm, head); // logits (logit rows, vocab), capped
    r.finish()
}
