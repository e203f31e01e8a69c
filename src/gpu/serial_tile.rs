//! WGSL of what the barrier-free matmul sums, unrolled: neither naga nor SwiftShader unrolls, and both are slow where an
//! index is variable.
//!
//! Invariant: an output adds its products one column after the other, whatever the tile and however many outputs share
//! an invocation, so these numbers are a choice of speed alone.

use std::fmt::Write as _;

/// Pairs of outputs that an invocation computes. On software adapters a load of activations costs as much as dozens of
/// multiplications, so the outputs that share it should be many; for few rows the weights' own loads and decoding weigh
/// more.
pub(super) fn pairs_for(tile: u32) -> u32 {
    if tile < 8 { 2 } else { 4 }
}

/// What the text is like, whatever is summed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) tile: u32,
    pub(super) n_pairs: u32,
}

impl Frame {
    /// `TILE`, `PAIRS`, `Weights` and `Sums`.
    pub(super) fn start(self) -> String {
        let Self { tile, n_pairs } = self;
        let starts: String = (0..2 * n_pairs).map(|w| format!(" w{w}: u32,")).collect();
        let sums = (0..tile).flat_map(|row| (0..2 * n_pairs).map(move |w| format!(" r{row}w{w}: f32,")));
        let fields: String = sums.collect();
        let mut text = format!("const TILE: u32 = {tile}u;\nconst PAIRS: u32 = {n_pairs}u;\n\n");
        let _ = writeln!(text, "// First blocks of the weight rows.\nstruct Weights {{{starts} }}\n");
        let _ =
            writeln!(text, "// Of each activation row with each weight row.\nstruct Sums {{{fields} }}\n");
        text.push_str("fn weights_from(p: u32) -> Weights {\n");
        for pair in 0..n_pairs {
            let _ = writeln!(text, "    let rows{pair} = weight_rows(min(p + {pair}u, n_pairs() - 1u));");
        }
        let starts: Vec<String> =
            (0..2 * n_pairs).map(|w| format!("row_start(rows{}[{}])", w / 2, w % 2)).collect();
        let _ = writeln!(text, "    return Weights({});\n}}\n", starts.join(", "));
        text
    }

    /// What becomes of the sums.
    pub(super) fn finish(self) -> String {
        let mut text = String::from("fn finish(sums: Sums, first_row: u32, p: u32) {\n");
        for row in 0..self.tile {
            for pair in 0..self.n_pairs {
                let (a, b) = (2 * pair, 2 * pair + 1);
                let _ = writeln!(
                    text,
                    "    keep(first_row + {row}u, p + {pair}u, sums.r{row}w{a}, sums.r{row}w{b});"
                );
            }
        }
        text.push_str("}\n");
        text
    }
}

/// `TILE`, `PAIRS`, and the `Weights`, `Sums` and functions that matmul_serial.wgsl is written with.
pub(super) fn text(tile: u32) -> String {
    let frame = Frame { tile, n_pairs: pairs_for(tile) };
    let weights: Vec<u32> = (0..2 * frame.n_pairs).collect();
    let each = |line: &dyn Fn(u32) -> String| weights.iter().map(|w| line(*w)).collect::<String>();
    let mut text = frame.start();
    text.push_str(ADD4);
    text.push_str("fn accumulate_block(sums: ptr<function, Sums>, weights: Weights, i: u32, x: u32) {\n");
    for w in &weights {
        let _ = writeln!(text, "    let words{w} = block_words(weights.w{w} + i);");
        let _ = writeln!(text, "    let scale{w} = block_scale(weights.w{w} + i);");
    }
    for quad in 0..4 {
        let decoded = each(&|w| format!(", decode8(words{w}, scale{w}, {quad}u)"));
        let _ = writeln!(text, "    accumulate8(sums, x + {}u{decoded});", 4 * quad);
    }
    let eights = each(&|w| format!(", w{w}: Eight"));
    let (low, high) = (each(&|w| format!(", w{w}.lo")), each(&|w| format!(", w{w}.hi")));
    let _ = writeln!(
        text,
        "}}\n\nfn accumulate8(sums: ptr<function, Sums>, x: u32{eights}) {{\n    accumulate4(sums, x{low});\n    accumulate4(sums, x + 16u{high});\n}}\n"
    );
    let fours = each(&|w| format!(", w{w}: vec4<f32>"));
    let _ = writeln!(text, "fn accumulate4(sums: ptr<function, Sums>, x: u32{fours}) {{");
    for row in 0..tile {
        let _ = writeln!(text, "    let x{row} = load4(x + {row}u * constants.x_stride);");
        for w in &weights {
            let sum = format!("(*sums).r{row}w{w}");
            let _ = writeln!(text, "    {sum} = add4({sum}, w{w}, x{row});");
        }
    }

    text.push_str("}\n\n");
    text.push_str(&frame.finish());
    text
}

const ADD4: &str = "const GROUP_WORDS: u32 = 32u;

// sum + w · x, column by column.
fn add4(sum: f32, w: vec4<f32>, x: vec4<f32>) -> f32 {
    return fma(w.w, x.w, fma(w.z, x.z, fma(w.y, x.y, fma(w.x, x.x, sum))));
}

";
