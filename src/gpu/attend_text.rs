//! WGSL of what attention does with each query head that shares a KV head, unrolled as in [`super::serial_tile`]: keys and
//! values are read once for all of them.
//!
//! Invariant: how many heads share a workgroup changes no order of addition.

use std::fmt::Write as _;

/// Positions that a workgroup attends to: a multiple of the tokens in a block of the cache.
pub(super) const RANGE: u32 = 256;

/// Heads that a workgroup computes, of so many that share a KV head: as many as its memory holds.
pub(super) fn heads_for(n_sharing: u32, head_dim: u32) -> u32 {
    n_sharing.min(if head_dim > 128 { 2 } else { 4 })
}

/// `HEADS`, and the `Sums` and functions that attend_split.wgsl is written with.
pub(super) fn text(n_heads: u32) -> String {
    let each = |line: &dyn Fn(u32) -> String| (0..n_heads).map(line).collect::<String>();
    let mut text = format!("const HEADS: u32 = {n_heads}u;\n\n");
    let _ = writeln!(
        text,
        "// Weighted values of each head.\nstruct Sums {{{} }}\n",
        each(&|h| format!(" h{h}: vec4<f32>,"))
    );
    let _ = writeln!(
        text,
        "// Scores of the t-th position of the range.\nfn score(t: u32, key: u32) {{\n{}    for (var d = 0u; d < VECTORS; d++) {{\n        let k = kv_quad(key + 4u * d);\n{}    }}\n{}}}\n",
        each(&|h| format!("    var h{h} = 0.0;\n")),
        each(&|h| format!("        h{h} = add4(h{h}, query[{h}u * VECTORS + d], k);\n")),
        each(&|h| format!("    scores[{h}u * RANGE + t] = capped(h{h} * constants.value);\n")),
    );
    let _ = writeln!(
        text,
        "// Of one that the row does not see.\nfn hide(t: u32) {{\n{}}}\n",
        each(&|h| format!("    scores[{h}u * RANGE + t] = -3.0e38;\n"))
    );
    let _ = writeln!(
        text,
        "fn add_values(sums: ptr<function, Sums>, t: u32, v: vec4<f32>) {{\n{}}}\n",
        each(&|h| format!("    (*sums).h{h} = fma(vec4<f32>(scores[{h}u * RANGE + t]), v, (*sums).h{h});\n"))
    );
    let _ = writeln!(
        text,
        "fn keep_sums(sums: Sums, lane: u32) {{\n{}}}",
        each(&|h| format!("    combined[{h}u * LANES + lane] = sums.h{h};\n"))
    );
    text
}
