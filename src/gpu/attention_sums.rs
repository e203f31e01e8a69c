//! WGSL of what `attend_tiled` sums, by 32 columns of a head, unrolled: an indexed array of sums would leave the registers.
//!
//! Invariant: every chunk's sums add position by position, so their order depends on nothing but the position.

use std::fmt::Write as _;

/// `CHUNKS`, and the `Sums` and functions that attend_tiled.wgsl is written with.
pub(super) fn text(head_dim: u32) -> String {
    let n_chunks = head_dim.div_ceil(32);
    let fields: String = (0..n_chunks).map(|c| format!(" a{c}: vec4<f32>, b{c}: vec4<f32>,")).collect();
    let mut text = format!("const CHUNKS: u32 = {n_chunks}u;\n\nstruct Sums {{{fields} }}\n\n");
    text.push_str(
        "fn weigh_values(sums: ptr<function, Sums>, shrink: vec2<f32>, table: u32, block: u32, last: u32, kv_head: u32, lane: u32) {\n    var two = Two();\n",
    );
    for c in 0..n_chunks {
        let _ = write!(
            text,
            "    workgroupBarrier();
    stage_values(table, block, last, kv_head, {c}u, lane);
    workgroupBarrier();
    two = weigh(Two((*sums).a{c} * shrink.x, (*sums).b{c} * shrink.y), lane / 8u, lane % 8u);
    (*sums).a{c} = two.a;
    (*sums).b{c} = two.b;
"
        );
    }
    text.push_str(
        "}\n\nfn emit_sums(sums: Sums, total: vec2<f32>, tile: vec2<u32>, kv_head: u32, lane: u32) {\n",
    );
    for c in 0..n_chunks {
        let _ =
            writeln!(text, "    emit_columns(Two(sums.a{c}, sums.b{c}), total, tile, kv_head, {c}u, lane);");
    }
    text.push_str("}\n");
    text
}
