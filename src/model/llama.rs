//! Llama 1 and 2, and what is shaped like them (SmolLM2): grouped queries, rotary positions, RMS norms, a gated MLP.

use super::config::ModelError;
use super::recorder::Recorder;
use crate::plan::{Activation, Plan, RotaryPairs};

/// One step: every row's token becomes its next-token logits.
pub(super) fn forward(mut r: Recorder<'_>) -> Result<Plan, ModelError> {
    let scale = 1.0 / (r.sizes().head_dim as f32).sqrt();
    let embedding = r.embedding("token_embd.weight")?; // (vocab, width)
    r.embed(embedding); // hidden (rows, width)
    for layer in 0..r.sizes().n_layers {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");

        let norm = r.rms_norm(&name("attn_norm"))?;
        let qkv = r.stack_qkv([&name("attn_q"), &name("attn_k"), &name("attn_v")])?;
        r.project_qkv(layer, norm, qkv, RotaryPairs::Adjacent); // q (rows, heads, head_dim); k, v → cache
        r.attend(layer, scale); // attended (rows, heads · head_dim)
        let output = r.attention_output(&name("attn_output"))?;
        r.project_add(output, Activation::Attended); // hidden += …

        let norm = r.rms_norm(&name("ffn_norm"))?;
        let gate_up = r.stack_gate_up(&name("ffn_gate"), &name("ffn_up"))?;
        r.gated_mlp(norm, gate_up); // gated (rows, mlp_width)
        let down = r.mlp_output(&name("ffn_down"))?;
        r.project_add(down, Activation::Gated); // hidden += …
    }
    let norm = r.rms_norm("output_norm.weight")?;
    let head = r.head("output.weight", embedding)?; // (vocab, width), the embedding where it is tied
    r.logits(norm, head); // logits (logit rows, vocab)
    r.finish()
}
