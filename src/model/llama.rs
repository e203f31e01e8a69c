//! Llama 1 to 3, Mistral, and what is shaped like them (SmolLM): grouped queries, rotary positions, RMS norms, a gated MLP.

use super::error::ModelError;
use super::recorder::Recorder;
use crate::plan::{Activation, Nonlinearity, Plan, RotaryPairs};

/// One step: every row's token becomes its next-token logits.
pub(super) fn forward(mut r: Recorder<'_>) -> Result<Plan, ModelError> {
    let embedding = r.embedding()?; // (vocab, width)
    r.embed(embedding, 1.0); // hidden (rows, width)
    let rotation = r.rotation(RotaryPairs::Adjacent)?;
    for layer in 0..r.n_layers() {
        let norm = r.rms_norm(layer, "attn_norm")?;
        let qkv = r.stack_qkv(layer, ["attn_q", "attn_k", "attn_v"])?;
        let bias = r.opt_qkv_bias(layer, ["attn_q", "attn_k", "attn_v"])?;
        r.project_qkv(layer, norm, qkv, bias, Some(rotation)); // q (rows, heads, head_dim); k, v → cache
        r.attend(layer); // attended (rows, heads · head_dim)
        let output = r.attention_output(layer, "attn_output")?;
        let bias = r.opt_output_bias(layer, "attn_output")?;
        r.project_add(output, bias, Activation::Attended, None); // hidden += …

        let norm = r.rms_norm(layer, "ffn_norm")?;
        let gate_up = r.stack_gate_up(layer, "ffn_gate", "ffn_up")?;
        let bias = r.opt_gate_up_bias(layer, "ffn_gate", "ffn_up")?;
        r.gated_mlp(norm, gate_up, bias, Nonlinearity::Silu); // mlp (rows, mlp_width)
        let down = r.mlp_output(layer, "ffn_down")?;
        let bias = r.opt_output_bias(layer, "ffn_down")?;
        r.project_add(down, bias, Activation::Mlp, None); // hidden += …
    }
    let norm = r.output_rms_norm()?;
    let head = r.head(embedding)?; // (vocab, width), the embedding where it is tied
    r.logits(norm, head); // logits (logit rows, vocab)
    r.finish()
}
