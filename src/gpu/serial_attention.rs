//! WGSL of what barrier-free attention does with the vectors of a head, unrolled: an indexed array would leave the registers,
//! and Mesa's llvmpipe silently ends the loops of a shader after 65,535 turns in all, which a loop over the vectors within
//! one over the positions reaches within a context.
//!
//! Invariant: each sum adds position by position, and each score vector by vector.

use std::fmt::Write as _;

/// `Query`, `Sums` and the functions that attend_serial.wgsl is written with.
pub(super) fn text(head_dim: u32) -> String {
    let each = |line: &dyn Fn(u32) -> String| (0..head_dim / 4).map(line).collect::<String>();
    let mut text = String::new();
    let queries = each(&|v| format!(" q{v}: vec4<f32>,"));
    let sums = each(&|v| format!(" s{v}: vec4<f32>,"));
    let _ = writeln!(text, "// A head of a row.\nstruct Query {{{queries} }}\n");
    let _ = writeln!(text, "// Weighted values.\nstruct Sums {{{sums} }}\n");
    let loads = each(&|v| format!(" load4(q + {}u),", 4 * v));
    let _ = writeln!(text, "fn query_at(q: u32) -> Query {{ return Query({loads}); }}\n");
    let _ = writeln!(
        text,
        "// Products of the query with the keys of four positions.\nfn products(q: Query, at: vec4<u32>) -> vec4<f32> {{"
    );
    let _ =
        writeln!(text, "    var d0 = vec4<f32>(0.0);\n    var d1 = d0;\n    var d2 = d0;\n    var d3 = d0;");
    let product = |v: u32, i: u32| format!("    d{i} = fma(q.q{v}, kv_read4(at[{i}] + {}u), d{i});\n", 4 * v);
    text.push_str(&each(&|v| (0..4).map(|i| product(v, i)).collect()));
    text.push_str("    return vec4<f32>(total4(d0), total4(d1), total4(d2), total4(d3));\n}\n\n");
    text.push_str(
        "fn add_values(sums: ptr<function, Sums>, shrink: f32, weights: vec4<f32>, at: vec4<u32>) {\n",
    );
    let sum = |v: u32| {
        let mut lines = format!("    (*sums).s{v} = (*sums).s{v} * shrink;\n");
        for i in 0..4 {
            let value = format!("kv_read4(at[{i}] + {}u)", 4 * v);
            let _ =
                writeln!(lines, "    (*sums).s{v} = fma(vec4<f32>(weights[{i}]), {value}, (*sums).s{v});");
        }
        lines
    };
    text.push_str(&each(&sum));
    text.push_str("}\n\nfn emit_sums(sums: Sums, total: f32, y: u32) {\n");
    text.push_str(&each(&|v| format!("    emit4(y + {}u, sums.s{v} / total);\n", 4 * v)));
    text.push_str("}\n");
    text
}
