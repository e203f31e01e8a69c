//! GPT-2: learned positions, layer norms, biases everywhere, one tensor for q, k and v, and a GELU between two matrices.

use super::error::ModelError;
use super::recorder::Recorder;
use crate::plan::{Activation, Nonlinearity, Plan};

/// One step: every row's token becomes its next-token logits.
pub(super) fn forward(mut r: Recorder<'_>) -> Result<Plan, ModelError> {
    let embedding = r.embedding()?; // (vocab, width)
    r.embed(embedding, 1.0); // hidden (rows, width)
    let positions = r.position_embedding()?; // (context, width)
    r.add_position(positions); // hidden += …
    for layer in 0..r.n_layers() {
        let norm = r.layer_norm(layer, "attn_norm")?;
        let qkv = r.fused_qkv(layer, "attn_qkv")?;
        let bias = r.qkv_bias(layer, &["attn_qkv"])?;
        r.project_qkv(layer, norm, vec![qkv], Some(bias), None); // q (rows, heads, head_dim); k, v → cache
        r.attend(layer); // attended (rows, heads · head_dim)
        let output = r.attention_output(layer, "attn_output")?;
        let bias = r.output_bias(layer, "attn_output")?;
        r.project_add(output, Some(bias), Activation::Attended, None); // hidden += …

        let norm = r.layer_norm(layer, "ffn_norm")?;
        let up = r.mlp_input(layer, "ffn_up")?;
        let bias = r.mlp_bias(layer, "ffn_up")?;
        r.mlp(norm, up, bias, Nonlinearity::GeluTanh); // mlp (rows, mlp_width)
        let down = r.mlp_output(layer, "ffn_down")?;
        let bias = r.output_bias(layer, "ffn_down")?;
        r.project_add(down, Some(bias), Activation::Mlp, None); // hidden += …
    }
    let norm = r.output_layer_norm()?;
    let head = r.head(embedding)?; // (vocab, width), the embedding where it is tied
    r.logits(norm, head); // logits (logit rows, vocab)
    r.finish()
}
