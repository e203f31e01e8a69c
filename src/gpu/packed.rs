//! How the codes of each block type multiply packed activations: what is `--precision fast` on the GPU.
//!
//! Invariant: products of a block's codes are whole numbers and exact, so a sum has the same bits however they are added.

use std::fmt::Write as _;

use super::serial_tile::Frame;
use super::shader::Variant;
use crate::format::block::BlockType::{
    self, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
};

/// Words of 32 packed activations: 16 that hold numbers of ten bits, then d, and d · Σq of all, the first 16 and the last 16.
pub const GROUP_WORDS: usize = 20;

/// Invocations of a workgroup of the barrier-free kernel: few, so that even narrow matrices keep all cores busy.
pub(super) const SERIAL_WORKGROUP: u32 = 16;

/// The largest activation. With 127, as one signed byte allows, SmolLM2-135M's log-probabilities move by up to 1, for a few
/// channels are so much greater than the rest that these get few of the steps of their group; with 511 by a fourth of that.
const LARGEST: u32 = 511;

/// A value of a block is d · code + m; WGSL of d and m in terms of `scale`, a block type's own `Scale`.
struct Codes {
    /// Half of how many codes there are, where they have no sign; `None`: they are signed bytes.
    center: Option<u32>,
    d: [&'static str; 2],
    /// `None` where it is −center · d.
    m: Option<[&'static str; 2]>,
}

impl Codes {
    /// Whether the halves of a group have scales of their own.
    fn halves(&self) -> bool {
        self.d[0] != self.d[1]
    }

    /// WGSL of m for codes as they are, or less their center.
    fn minima(&self, is_centered: bool) -> [String; 2] {
        let Some(center) = self.center else { return ["0.0", "0.0"].map(String::from) };
        [0, 1].map(|half| match (self.m, is_centered) {
            (Some(m), true) => format!("fma({center}.0, {}, {})", self.d[half], m[half]),
            (Some(m), false) => m[half].into(),
            (None, true) => "0.0".into(),
            (None, false) => format!("-{center}.0 * ({})", self.d[half]),
        })
    }
}

fn codes(block: BlockType) -> Option<Codes> {
    let (center, d, m) = match block {
        Q4_0 => (Some(8), ["scale.d"; 2], None),
        Q5_0 => (Some(16), ["scale.d"; 2], None),
        Q4_1 | Q4_K => (Some(8), ["scale.d"; 2], Some(["scale.m"; 2])),
        Q5_1 | Q5_K => (Some(16), ["scale.d"; 2], Some(["scale.m"; 2])),
        Q2_K => (Some(2), ["scale.d_lo", "scale.d_hi"], Some(["scale.m_lo", "scale.m_hi"])),
        Q3_K => (Some(4), ["scale.d_lo", "scale.d_hi"], None),
        // Its upper scale is made for codes that are 16 times too large.
        Q6_K => (Some(32), ["scale.d_lo", "16.0 * scale.d_hi"], None),
        Q8_0 | IQ4_NL | IQ4_XS | MXFP4 => (None, ["scale.d"; 2], None),
        _ => return None,
    };
    Some(Codes { center, d, m })
}

/// Whether a block type has codes that multiply packed activations; floats multiply f32 ones.
pub fn has_codes(block: BlockType) -> bool {
    codes(block).is_some()
}

/// How the barrier-free kernel multiplies whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Two columns a multiplication, for codes without a sign.
    Pairs,
    /// As f32, which holds the sums exactly, for signed bytes.
    Floats,
}

impl Form {
    fn of(codes: &Codes) -> Self {
        if codes.center.is_some() { Self::Pairs } else { Self::Floats }
    }
}

/// Pairs of outputs that an invocation of the barrier-free kernel computes.
pub(super) fn pairs_for(block: BlockType, tile: u32) -> u32 {
    match codes(block).map(|codes| Form::of(&codes)) {
        Some(Form::Floats) if tile < 8 => 2,
        _ => 4,
    }
}

/// How a kernel's activations lie: those of the barrier-free ones in pairs.
pub(super) fn columns_text(variant: Variant) -> &'static str {
    match variant {
        Variant::Serial => include_str!("kernels/columns_in_pairs.wgsl"),
        _ => include_str!("kernels/columns_in_parts.wgsl"),
    }
}

/// WGSL of `Packed`, `packed`, `Factors` and `factors` for a block type.
pub(super) fn codes_text(block: BlockType, variant: Variant) -> String {
    let codes = codes(block).expect("lowering asked for codes");
    let packed = match block {
        Q4_0 | Q4_1 | Q4_K => include_str!("kernels/packed_nibbles.wgsl"),
        Q5_0 | Q5_1 | Q5_K => include_str!("kernels/packed_fives.wgsl"),
        Q2_K => include_str!("kernels/packed_q2_k.wgsl"),
        Q3_K => include_str!("kernels/packed_q3_k.wgsl"),
        Q6_K => include_str!("kernels/packed_q6_k.wgsl"),
        IQ4_NL | IQ4_XS => {
            concat!(
                include_str!("kernels/packed_numbers.wgsl"),
                "\n",
                include_str!("kernels/packed_iq4.wgsl")
            )
        }
        MXFP4 => {
            concat!(
                include_str!("kernels/packed_numbers.wgsl"),
                "\n",
                include_str!("kernels/packed_mxfp4.wgsl")
            )
        }
        _ => include_str!("kernels/packed_bytes.wgsl"),
    };
    let [d_lo, d_hi] = codes.d;
    let [m_lo, m_hi] = codes.minima(variant == Variant::Serial);
    let group = include_str!("kernels/group_packed.wgsl");
    format!(
        "{group}\n{packed}\n// Of the first and the last 16 values: value = d · code + m.\nstruct Factors {{ d: vec2<f32>, m: vec2<f32> }}\n\n\
         fn factors(scale: Scale) -> Factors {{\n    return Factors(vec2<f32>({d_lo}, {d_hi}), vec2<f32>({m_lo}, {m_hi}));\n}}\n"
    )
}

/// `TILE`, `PAIRS`, and what else matmul_serial.wgsl is written with, for packed activations.
pub(super) fn serial_text(block: BlockType, tile: u32) -> String {
    let codes = codes(block).expect("lowering asked for codes");
    let form = Form::of(&codes);
    let frame = Frame { tile, n_pairs: pairs_for(block, tile) };
    let mut text = frame.start();
    if let Some(center) = codes.center {
        let _ = writeln!(text, "const CENTERS: u32 = {}u;\n", center | center << 16);
    }
    text.push_str(match form {
        Form::Pairs => include_str!("kernels/products_of_pairs.wgsl"),
        Form::Floats => include_str!("kernels/products_of_floats.wgsl"),
    });
    text.push_str("\nfn accumulate_block(sums: ptr<function, Sums>, weights: Weights, i: u32, x: u32) {\n");
    for w in 0..2 * frame.n_pairs {
        let _ = writeln!(text, "    let packed{w} = packed(block_words(weights.w{w} + i));");
        let _ = writeln!(text, "    let factors{w} = factors(block_scale(weights.w{w} + i));");
        for (name, value) in numbers_of_weights(form, w) {
            let _ = writeln!(text, "    let w{w}_{name} = {value};");
        }
    }
    for row in 0..tile {
        let _ = writeln!(text, "    {{\n        let at = (x + {row}u * constants.x_stride) / 4u;");
        for i in 0..4 {
            let _ = writeln!(text, "        let pairs{i} = inputs[at + {i}u];");
        }
        text.push_str("        let of_block = bitcast<vec4<f32>>(inputs[at + 4u]);\n");
        for (name, value) in numbers_of_row(form) {
            let _ = writeln!(text, "        let x_{name} = {value};");
        }
        for w in 0..2 * frame.n_pairs {
            let sum = format!("(*sums).r{row}w{w}");
            let _ = writeln!(text, "        {sum} = {};", added(&codes, form, w, &sum));
        }
        text.push_str("    }\n");
    }
    text.push_str("}\n\n");
    text.push_str(&frame.finish());
    text
}

const LANES: [&str; 4] = ["x", "y", "z", "w"];
const HALVES: [&str; 2] = ["lo", "hi"];

/// What of a block of weights is multiplied, each with its name.
///
/// In pairs, two columns of a group, two apart, are the halves of a word: a product of words has the sum of both columns'
/// products in its upper half, if the lower half, which is one's code times the other's activation, is rounded away. For
/// that the column that meets the lower code is in the upper half of the activations.
fn numbers_of_weights(form: Form, w: u32) -> Vec<(usize, String)> {
    let each = (0..8).map(|i| (i, format!("packed{w}.{}.{}", HALVES[i / 4], LANES[i % 4])));
    match form {
        Form::Floats => each.map(|(i, word)| (i, format!("float_bytes({word})"))).collect(),
        Form::Pairs => {
            let pair = |(i, word): (usize, String)| {
                [(2 * i, format!("even_codes({word})")), (2 * i + 1, format!("odd_codes({word})"))]
            };
            each.flat_map(pair).collect()
        }
    }
}

/// What of a row's activations they meet.
fn numbers_of_row(form: Form) -> Vec<(usize, String)> {
    let word = |k: usize| format!("pairs{}.{}", k / 4, LANES[k % 4]);
    match form {
        Form::Floats => {
            (0..8).map(|i| (i, format!("float_columns({}, {})", word(2 * i), word(2 * i + 1)))).collect()
        }
        Form::Pairs => (0..16).map(|k| (k, word(k))).collect(),
    }
}

/// What a sum becomes by a block. One `fma` for each scale at most, since it is a call on SwiftShader; no product is added
/// outside of one, so that no compiler can choose how it rounds.
fn added(codes: &Codes, form: Form, w: u32, sum: &str) -> String {
    let [lo, hi] = [0, 1].map(|half| whole_sum(codes, form, w, half));
    let d = |half: &str| format!("factors{w}.d.{half} * of_block.x");
    let with_minimum = |half: &str, product: &str, of_block: &str| {
        format!("fma(factors{w}.m.{half}, of_block.{of_block}, {product})")
    };
    match (codes.halves(), codes.m.is_some()) {
        (false, false) => format!("fma({}, f32({lo} + {hi}), {sum})", d("x")),
        (false, true) => {
            format!("{sum} + {}", with_minimum("x", &format!("{} * f32({lo} + {hi})", d("x")), "y"))
        }
        (true, false) => format!("fma({}, f32({hi}), fma({}, f32({lo}), {sum}))", d("y"), d("x")),
        (true, true) => {
            let of_lo = with_minimum("x", &format!("{} * f32({lo})", d("x")), "z");
            let of_hi = with_minimum("y", &format!("{} * f32({hi})", d("y")), "w");
            format!("{sum} + ({of_lo} + {of_hi})")
        }
    }
}

/// The sum of code · activation over half a group.
fn whole_sum(codes: &Codes, form: Form, w: u32, half: usize) -> String {
    let products = |numbers: &[usize]| {
        numbers.iter().map(|k| format!("w{w}_{k} * x_{k}")).collect::<Vec<_>>().join(" + ")
    };
    match form {
        Form::Floats => format!("total({})", products(&[0, 1, 2, 3].map(|k| 4 * half + k))),
        Form::Pairs => {
            let center = codes.center.expect("codes have no sign");
            let pairs: Vec<usize> = (8 * half..8 * half + 8).collect();
            let sums = pairs
                .chunks(n_together(center))
                .map(|together| format!("upper_half({})", products(together)));
            sums.collect::<Vec<_>>().join(" + ")
        }
    }
}

/// Products of pairs that may be added before the lower half is rounded away: so many fit the upper half with its sign.
fn n_together(center: u32) -> usize {
    (0x7fff / (2 * LARGEST * center)).min(8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As products_of_pairs.wgsl computes it.
    #[test]
    fn pairs_hold_the_largest_products_of_every_sign() {
        let center_of = |block| codes(block).and_then(|codes| codes.center);
        for center in crate::format::decode::DECODED.into_iter().filter_map(center_of) {
            let n = n_together(center);
            assert!(n > 0, "codes of {center} on both sides");
            let (most_x, least, most) = (LARGEST as i32, -(center as i32), center as i32 - 1);
            for (a, b) in
                [(1, 1), (-1, -1), (1, -1), (-1, 1), (0, -1), (-1, 0)].map(|(a, b)| (a * most_x, b * most_x))
            {
                for (c, e) in [(most, most), (least, least), (most, least), (least, most)] {
                    let pair = |upper: i32, lower: i32| (lower as u32).wrapping_add((upper as u32) << 16);
                    // The columns meet crosswise.
                    let product = pair(c, e).wrapping_mul(pair(b, a));
                    let sum = (0..n).fold(0u32, |sum, _| sum.wrapping_add(product));
                    let upper_half = sum.wrapping_add(0x8000) as i32 >> 16;
                    assert_eq!(upper_half, n as i32 * (c * a + e * b), "codes {c} and {e}, {a} and {b}");
                }
            }
        }
    }
}
