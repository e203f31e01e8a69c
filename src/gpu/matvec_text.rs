//! WGSL of what an invocation of `matvec` sums, unrolled as in [`super::serial_tile`]: activations are loaded once for all
//! weight rows of a workgroup, and a norm is done on the way.
//!
//! Invariant: an output adds its products in an order that neither the tile nor the number of pairs changes.

use std::fmt::Write as _;

use super::tuning::Cut;
use crate::plan::NormKind;

/// `LANES` to `N_SUMS`, and the `Weights`, `Rows`, `Sums` and functions that matvec.wgsl is written with.
pub(super) fn text(cut: Cut, tile: u32, norm: Option<NormKind>) -> String {
    let n_pairs = cut.pairs(tile);
    let n_weights = 2 * n_pairs;
    let (lanes, parts) = (cut.lanes, cut.parts);
    // Of squares, where a norm needs them.
    let n_more = if norm.is_some() { tile } else { 0 };
    let mut text = format!(
        "const LANES: u32 = {lanes}u;\nconst TILE: u32 = {tile}u;\nconst PAIRS: u32 = {n_pairs}u;\n\
         const PARTS: u32 = {parts}u;\nconst N_PRODUCTS: u32 = {}u;\nconst N_SUMS: u32 = {}u;\n\n",
        tile * n_weights,
        tile * n_weights + n_more
    );
    let fields = |field: &dyn Fn(u32) -> String| (0..tile).map(field).collect::<String>();
    let weights = |line: &dyn Fn(u32) -> String| (0..n_weights).map(line).collect::<String>();
    let _ = writeln!(
        text,
        "// First blocks of the weight rows.\nstruct Weights {{{} }}\n",
        weights(&|w| format!(" w{w}: u32,"))
    );
    let row_fields = fields(&|r| match norm {
        Some(NormKind::Layer) => format!(" x{r}: u32, mean{r}: f32, inverse{r}: f32,"),
        _ => format!(" x{r}: u32,"),
    });
    let _ = writeln!(
        text,
        "// Where activation rows lie, and what is known of them.\nstruct Rows {{{row_fields} }}\n"
    );
    let sum_fields = fields(&|r| {
        let squares = if norm == Some(NormKind::RootMeanSquare) {
            format!(" r{r}squares: f32,")
        } else {
            String::new()
        };
        weights(&|w| format!(" r{r}w{w}: f32,")) + &squares
    });
    let _ =
        writeln!(text, "// Of each activation row with each weight row.\nstruct Sums {{{sum_fields} }}\n");

    text.push_str("fn weights_from(p: u32) -> Weights {\n");
    for pair in 0..n_pairs {
        let _ = writeln!(text, "    let rows{pair} = weight_rows(min(p + {pair}u, n_pairs() - 1u));");
    }
    let starts: Vec<String> =
        (0..n_weights).map(|w| format!("row_start(rows{}[{}])", w / 2, w % 2)).collect();
    let _ = writeln!(text, "    return Weights({});\n}}\n", starts.join(", "));
    push_rows(&mut text, tile, norm);
    push_accumulate(&mut text, n_weights, tile, parts, norm);

    text.push_str("// Brings an invocation's sums to the others.\nfn finish(sums: Sums, lane: u32) {\n");
    for row in 0..tile {
        for w in 0..n_weights {
            let _ = writeln!(text, "    keep({}u, lane, sums.r{row}w{w});", row * n_weights + w);
        }
        if norm == Some(NormKind::RootMeanSquare) {
            let _ = writeln!(text, "    keep(N_PRODUCTS + {row}u, lane, sums.r{row}squares);");
        }
    }
    text.push_str("}\n\n// What the products of a row are still to be multiplied with.\nfn row_factor(row: u32) -> f32 {\n");
    text.push_str(match norm {
        Some(NormKind::RootMeanSquare) => "    return inverse_size(total(N_PRODUCTS + row));\n}\n",
        _ => "    return 1.0;\n}\n",
    });
    text
}

/// `rows_from`, which for a layer norm measures the rows first: its mean has to be out before anything is multiplied, or what
/// is left would be the small difference of large sums.
fn push_rows(text: &mut String, tile: u32, norm: Option<NormKind>) {
    text.push_str("fn rows_from(first: u32, lane: u32) -> Rows {\n");
    for row in 0..tile {
        let _ = writeln!(text, "    let x{row} = row_at(min(first + {row}u, n_kind_rows() - 1u));");
    }
    if norm == Some(NormKind::Layer) {
        for row in 0..tile {
            let _ = writeln!(text, "    keep({row}u, lane, own_sum(x{row}, lane));");
        }
        text.push_str("    share(0u, TILE, lane);\n");
        for row in 0..tile {
            let _ = writeln!(text, "    let mean{row} = total({row}u) / f32(32u * constants.n_blocks);");
            let _ =
                writeln!(text, "    keep(N_PRODUCTS + {row}u, lane, own_squares(x{row}, mean{row}, lane));");
        }
        text.push_str("    share(N_PRODUCTS, N_SUMS, lane);\n");
    }
    let values: Vec<String> = (0..tile)
        .map(|row| match norm {
            Some(NormKind::Layer) => {
                format!("x{row}, mean{row}, inverse_size(total(N_PRODUCTS + {row}u))")
            }
            _ => format!("x{row}"),
        })
        .collect();
    let _ = writeln!(text, "    return Rows({});\n}}\n", values.join(", "));
}

/// `accumulate`: one part of one group of columns, of all rows.
fn push_accumulate(text: &mut String, n_weights: u32, tile: u32, parts: u32, norm: Option<NormKind>) {
    let each = |line: &dyn Fn(u32) -> String| (0..n_weights).map(line).collect::<String>();
    text.push_str(
        "fn accumulate(sums: ptr<function, Sums>, weights: Weights, rows: Rows, i: u32, part: u32) {\n",
    );
    for w in 0..n_weights {
        let _ = writeln!(text, "    let words{w} = block_words(weights.w{w} + i);");
        let _ = writeln!(text, "    let scale{w} = block_scale(weights.w{w} + i);");
    }
    let quads = 4 / parts;
    for quad in 0..quads {
        let j = if parts == 1 { format!("{quad}u") } else { format!("part * {quads}u + {quad}u") };
        let decoded = each(&|w| format!(", decode8(words{w}, scale{w}, {j})"));
        let _ = writeln!(text, "    accumulate8(sums, rows, 32u * i + 4u * ({j}){decoded});");
    }
    let eights = each(&|w| format!(", w{w}: Eight"));
    let (low, high) = (each(&|w| format!(", w{w}.lo")), each(&|w| format!(", w{w}.hi")));
    let _ = writeln!(
        text,
        "}}\n\nfn accumulate8(sums: ptr<function, Sums>, rows: Rows, k: u32{eights}) {{\n    accumulate4(sums, rows, k{low});\n    accumulate4(sums, rows, k + 16u{high});\n}}\n"
    );
    let fours = each(&|w| format!(", w{w}: vec4<f32>"));
    let _ = writeln!(text, "fn accumulate4(sums: ptr<function, Sums>, rows: Rows, k: u32{fours}) {{");
    if norm.is_some() {
        text.push_str("    let g = table4(constants.weight + k);\n");
    }
    if norm == Some(NormKind::Layer) {
        text.push_str("    let b = norm_bias4(k);\n");
    }
    for row in 0..tile {
        let load = format!("load4(rows.x{row} + k)");
        let squares = format!("(*sums).r{row}squares");
        let _ = match norm {
            None => writeln!(text, "    let x{row} = {load};"),
            Some(NormKind::RootMeanSquare) => writeln!(
                text,
                "    let v{row} = {load};\n    {squares} = add4({squares}, v{row}, v{row});\n    let x{row} = v{row} * g;"
            ),
            Some(NormKind::Layer) => {
                writeln!(text, "    let x{row} = fma(({load} - rows.mean{row}) * rows.inverse{row}, g, b);")
            }
        };
        for w in 0..n_weights {
            let sum = format!("(*sums).r{row}w{w}");
            let _ = writeln!(text, "    {sum} = add4({sum}, w{w}, x{row});");
        }
    }
    text.push_str("}\n\n");
}
