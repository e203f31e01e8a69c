//! How the codes of each block type multiply packed activations: what is `--precision fast` on the GPU.
//!
//! Invariant: products of a block's codes are whole numbers and exact, so a sum has the same bits however they are added.

use std::fmt::Write as _;

use super::serial_tile::Frame;
use crate::format::block::BlockType::{
    self, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
};

/// Words of 32 packed activations q of ten bits: 8 of four signed bytes q >> 2, 8 of four bytes q & 3, then d, and d · Σq of
/// all, the first 16 and the last 16.
pub const GROUP_WORDS: usize = 20;

/// Invocations of a workgroup of the barrier-free kernel: few, so that even narrow matrices keep all cores busy.
pub(super) const SERIAL_WORKGROUP: u32 = 16;

/// The largest activation. With 127, as one signed byte allows, SmolLM2-135M's log-probabilities move by up to 1, for a few
/// channels are so much greater than the rest that these get few of the steps of their group; with 511 by a fourth of that.
const LARGEST: u32 = 511;

/// A value of a block is d · code + m; WGSL of d and m in terms of `scale`, a block type's own `Scale`.
struct Codes {
    /// The largest code where codes have no sign; `None`: they are signed bytes.
    most: Option<u32>,
    d: [&'static str; 2],
    m: Option<[&'static str; 2]>,
}

impl Codes {
    /// Whether the halves of a group have scales of their own.
    fn halves(&self) -> bool {
        self.d[0] != self.d[1]
    }
}

fn codes(block: BlockType) -> Option<Codes> {
    let (most, d, m) = match block {
        Q4_0 => (Some(15), ["scale.d"; 2], Some(["-8.0 * scale.d"; 2])),
        Q5_0 => (Some(31), ["scale.d"; 2], Some(["-16.0 * scale.d"; 2])),
        Q4_1 | Q4_K => (Some(15), ["scale.d"; 2], Some(["scale.m"; 2])),
        Q5_1 | Q5_K => (Some(31), ["scale.d"; 2], Some(["scale.m"; 2])),
        Q2_K => (Some(3), ["scale.d_lo", "scale.d_hi"], Some(["scale.m_lo", "scale.m_hi"])),
        Q3_K => (Some(7), ["scale.d_lo", "scale.d_hi"], Some(["-4.0 * scale.d_lo", "-4.0 * scale.d_hi"])),
        // Its upper scale is made for codes that are 16 times too large.
        Q6_K => (
            Some(63),
            ["scale.d_lo", "16.0 * scale.d_hi"],
            Some(["-32.0 * scale.d_lo", "-512.0 * scale.d_hi"]),
        ),
        Q8_0 | IQ4_NL | IQ4_XS | MXFP4 => (None, ["scale.d"; 2], None),
        _ => return None,
    };
    Some(Codes { most, d, m })
}

/// Whether a block type has codes that multiply packed activations; floats multiply f32 ones.
pub fn has_codes(block: BlockType) -> bool {
    codes(block).is_some()
}

/// How the barrier-free kernel multiplies whole numbers; each was the fastest somewhere, on llvmpipe and on SwiftShader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Two columns a multiplication, for small codes without a sign.
    Pairs,
    /// `dot4I8Packed`, for a few rows of other codes.
    Dots,
    /// As f32, which holds the sums exactly, for many rows of them: both sides become numbers once.
    Floats,
}

impl Form {
    fn of(codes: &Codes, tile: u32) -> Self {
        match codes.most {
            Some(most) if n_together(most) > 0 => Self::Pairs,
            _ if tile < 8 => Self::Dots,
            _ => Self::Floats,
        }
    }

    /// 4 as the type of its products' sides.
    fn four(self) -> &'static str {
        match self {
            Self::Pairs => "4u",
            Self::Dots => "4",
            Self::Floats => "4.0",
        }
    }
}

/// Pairs of outputs that an invocation of the barrier-free kernel computes.
pub(super) fn pairs_for(block: BlockType, tile: u32) -> u32 {
    match codes(block).map(|codes| Form::of(&codes, tile)) {
        Some(Form::Dots) => 2,
        _ => 4,
    }
}

/// WGSL of `Packed`, `packed`, `Factors` and `factors` for a block type.
pub(super) fn codes_text(block: BlockType) -> String {
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
    let [m_lo, m_hi] = codes.m.unwrap_or(["0.0"; 2]);
    let group = include_str!("kernels/group_packed.wgsl");
    format!(
        "{group}\n{packed}\n// Of the first and the last 16 values: value = d · code + m.\nstruct Factors {{ d: vec2<f32>, m: vec2<f32> }}\n\n\
         fn factors(scale: Scale) -> Factors {{\n    return Factors(vec2<f32>({d_lo}, {d_hi}), vec2<f32>({m_lo}, {m_hi}));\n}}\n"
    )
}

/// `TILE`, `PAIRS`, and what else matmul_serial.wgsl is written with, for packed activations.
pub(super) fn serial_text(block: BlockType, tile: u32) -> String {
    let codes = codes(block).expect("lowering asked for codes");
    let form = Form::of(&codes, tile);
    let frame = Frame { tile, n_pairs: pairs_for(block, tile) };
    let mut text = frame.start();
    text.push_str(match form {
        Form::Pairs => include_str!("kernels/products_of_pairs.wgsl"),
        Form::Floats => include_str!("kernels/products_of_floats.wgsl"),
        Form::Dots => "",
    });
    text.push_str("\nfn accumulate_block(sums: ptr<function, Sums>, weights: Weights, i: u32, x: u32) {\n");
    for w in 0..2 * frame.n_pairs {
        let _ = writeln!(text, "    let packed{w} = packed(block_words(weights.w{w} + i));");
        let _ = writeln!(text, "    let factors{w} = factors(block_scale(weights.w{w} + i));");
        for (name, value) in sides_of_products(form, &format!("packed{w}."), true) {
            let _ = writeln!(text, "    let w{w}_{name} = {value};");
        }
    }
    for row in 0..tile {
        let _ = writeln!(text, "    {{\n        let at = (x + {row}u * constants.x_stride) / 4u;");
        for (name, i) in ["coarse_lo", "coarse_hi", "fine_lo", "fine_hi"].into_iter().zip(0..) {
            let _ = writeln!(text, "        let {name} = inputs[at + {i}u];");
        }
        text.push_str("        let of_block = bitcast<vec4<f32>>(inputs[at + 4u]);\n");
        let parts = sides_of_products(form, "coarse_", false).into_iter();
        for ((name, coarse), (_, fine)) in parts.zip(sides_of_products(form, "fine_", false)) {
            let _ = writeln!(text, "        let x_{name} = {} * {coarse} + {fine};", form.four());
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

/// The numbers that are multiplied, one side of them, each with its name: `words` stands before `lo.x` and so on.
///
/// In pairs, two columns of a group, two apart, are the halves of a word: a product of words has the sum of both columns'
/// products in its upper half, if the lower half, which is one's code times the other's activation, is rounded away. For
/// that the column that meets the lower code is in the upper half of the activations.
fn sides_of_products(form: Form, words: &str, is_codes: bool) -> Vec<(usize, String)> {
    let each = (0..8).map(|i| (i, format!("{words}{}.{}", HALVES[i / 4], LANES[i % 4])));
    match form {
        Form::Dots => Vec::new(),
        Form::Floats => each.map(|(i, word)| (i, format!("float_bytes({word})"))).collect(),
        Form::Pairs => {
            let pair = |(i, word): (usize, String)| {
                let (even, odd) = match is_codes {
                    true => ("even_codes", "odd_codes"),
                    false => ("even_columns", "odd_columns"),
                };
                [(2 * i, format!("{even}({word})")), (2 * i + 1, format!("{odd}({word})"))]
            };
            each.flat_map(pair).collect()
        }
    }
}

/// What a sum becomes by a block. One `fma` at most, which is a call on SwiftShader; no product is added outside of it, so
/// that no compiler can choose how it rounds.
fn added(codes: &Codes, form: Form, w: u32, sum: &str) -> String {
    let lo = whole_sum(codes, form, w, 0);
    let hi = whole_sum(codes, form, w, 1);
    let term = |half: &str, whole: &str, of_block: &str| {
        let product = format!("factors{w}.d.{half} * of_block.x * f32({whole})");
        format!("fma(factors{w}.m.{half}, of_block.{of_block}, {product})")
    };
    if codes.halves() {
        return format!("{sum} + ({} + {})", term("x", &lo, "z"), term("y", &hi, "w"));
    }
    let whole = format!("{lo} + {hi}");
    match codes.m {
        Some(_) => format!("{sum} + {}", term("x", &whole, "y")),
        None => format!("fma(factors{w}.d.x * of_block.x, f32({whole}), {sum})"),
    }
}

/// The sum of code · activation over half a group.
fn whole_sum(codes: &Codes, form: Form, w: u32, half: usize) -> String {
    match form {
        Form::Dots => {
            let name = HALVES[half];
            let dots = |part: &str| {
                LANES.map(|c| format!("dot4(packed{w}.{name}.{c}, {part}_{name}.{c})")).join(" + ")
            };
            format!("4 * ({}) + ({})", dots("coarse"), dots("fine"))
        }
        Form::Floats => {
            let products: Vec<String> =
                (4 * half..4 * half + 4).map(|k| format!("w{w}_{k} * x_{k}")).collect();
            format!("total({})", products.join(" + "))
        }
        Form::Pairs => {
            let most = codes.most.expect("codes have no sign");
            let pairs: Vec<usize> = (8 * half..8 * half + 8).collect();
            let sums = pairs.chunks(n_together(most)).map(|together| {
                let products: Vec<String> = together.iter().map(|k| format!("w{w}_{k} * x_{k}")).collect();
                format!("upper_half({})", products.join(" + "))
            });
            sums.collect::<Vec<_>>().join(" + ")
        }
    }
}

/// Products of pairs that may be added before the lower half is rounded away: so many fit the upper half with its sign.
fn n_together(most: u32) -> usize {
    (0x7fff / (2 * LARGEST * most)).min(8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As products_of_pairs.wgsl computes it.
    #[test]
    fn pairs_hold_the_largest_products_of_every_sign() {
        let most_of = |block| codes(block).and_then(|codes| codes.most);
        for most in crate::format::decode::DECODED.into_iter().filter_map(most_of) {
            let n = n_together(most);
            if n == 0 {
                continue;
            }
            let most_x = LARGEST as i32;
            for (a, b) in
                [(1, 1), (-1, -1), (1, -1), (-1, 1), (0, -1), (-1, 0)].map(|(a, b)| (a * most_x, b * most_x))
            {
                let columns = (b as u32).wrapping_add((a as u32) << 16);
                let product = (most | most << 16).wrapping_mul(columns);
                let sum = (0..n).fold(0u32, |sum, _| sum.wrapping_add(product));
                let upper_half = sum.wrapping_add(0x8000) as i32 >> 16;
                assert_eq!(upper_half, n as i32 * most as i32 * (a + b), "codes up to {most}, {a} and {b}");
            }
        }
    }
}
