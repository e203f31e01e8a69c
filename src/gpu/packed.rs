//! How the codes of each block type multiply packed activations: what is `--precision fast` on the GPU.
//!
//! Invariant: products of a block's codes are whole numbers and exact, so a sum has the same bits however they are added.

use std::fmt::Write as _;

use super::serial_tile::Frame;
use crate::format::block::BlockType::{
    self, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
};

/// Words of 32 packed activations: 8 of four signed bytes q, then d, and d · Σq of all, the first 16 and the last 16.
pub const GROUP_WORDS: usize = 12;

/// Invocations of a workgroup of the barrier-free kernel: few, so that even narrow matrices keep all cores busy.
pub(super) const SERIAL_WORKGROUP: u32 = 16;

/// The largest activation byte.
const LARGEST: u32 = 127;

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

/// Pairs of outputs that an invocation of the barrier-free kernel computes.
pub(super) fn pairs_for(block: BlockType) -> u32 {
    match codes(block) {
        Some(Codes { most: None, .. }) => 2,
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
        IQ4_NL | IQ4_XS => include_str!("kernels/packed_iq4.wgsl"),
        MXFP4 => include_str!("kernels/packed_mxfp4.wgsl"),
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
    let frame = Frame { tile, n_pairs: pairs_for(block) };
    let mut text = frame.start();
    text.push_str("fn accumulate_block(sums: ptr<function, Sums>, weights: Weights, i: u32, x: u32) {\n");
    for w in 0..2 * frame.n_pairs {
        let _ = writeln!(text, "    let packed{w} = packed(block_words(weights.w{w} + i));");
        let _ = writeln!(text, "    let factors{w} = factors(block_scale(weights.w{w} + i));");
        for pair in pairs().filter(|_| codes.most.is_some()) {
            let _ = writeln!(text, "    let w{w}_{} = {};", pair.index, pair.of_codes(w));
        }
    }
    for row in 0..tile {
        let _ = writeln!(text, "    {{\n        let at = (x + {row}u * constants.x_stride) / 4u;");
        text.push_str("        let lo = inputs[at];\n        let hi = inputs[at + 1u];\n");
        text.push_str("        let of_block = bitcast<vec4<f32>>(inputs[at + 2u]);\n");
        for pair in pairs().filter(|_| codes.most.is_some()) {
            let _ = writeln!(text, "        let x_{} = {};", pair.index, pair.of_activations());
        }
        for w in 0..2 * frame.n_pairs {
            let sum = format!("(*sums).r{row}w{w}");
            let _ = writeln!(text, "        {sum} = {};", added(&codes, w, &sum));
        }
        text.push_str("    }\n");
    }
    text.push_str("}\n\n");
    text.push_str(&frame.finish());
    text
}

/// Two columns of a group, two apart, as the halves of a word: one product of words has the sum of both columns' products
/// in its upper half, if the lower half, the product of one's code with the other's activation, is rounded away. Half the
/// multiplications, and no lane for each byte.
struct Pair {
    index: usize,
    word: String,
    is_odd: bool,
}

fn pairs() -> impl Iterator<Item = Pair> {
    (0..16).map(|index| Pair {
        index,
        word: format!("{}.{}", ["lo", "hi"][index / 8], ["x", "y", "z", "w"][index % 8 / 2]),
        is_odd: index % 2 == 1,
    })
}

impl Pair {
    fn of_codes(&self, w: u32) -> String {
        let word = &self.word;
        if self.is_odd {
            format!("(packed{w}.{word} >> 8u) & 0x00ff00ffu")
        } else {
            format!("packed{w}.{word} & 0x00ff00ffu")
        }
    }

    /// The column that meets the lower code is in the upper half.
    fn of_activations(&self) -> String {
        let word = &self.word;
        if self.is_odd {
            format!(
                "bitcast<u32>((bitcast<i32>({word}) >> 24u) + ((bitcast<i32>({word} << 16u) >> 24u) << 16u))"
            )
        } else {
            format!("bitcast<u32>((bitcast<i32>({word} << 8u) >> 24u) + (bitcast<i32>({word} << 24u) >> 8u))")
        }
    }
}

/// What a sum becomes by a block. One `fma` at most, which is a call on SwiftShader; no product is added outside of it, so
/// that no compiler can choose how it rounds.
fn added(codes: &Codes, w: u32, sum: &str) -> String {
    let lo = whole_sum(codes, w, 0..8);
    let hi = whole_sum(codes, w, 8..16);
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

/// The sum of code · activation over some pairs, two columns each.
fn whole_sum(codes: &Codes, w: u32, pairs: std::ops::Range<usize>) -> String {
    let Some(most) = codes.most else {
        let half = ["lo", "hi"][pairs.start / 8];
        let dots = ["x", "y", "z", "w"].map(|c| format!("dot4(packed{w}.{half}.{c}, {half}.{c})"));
        return dots.join(" + ");
    };
    // So many products fit the upper half with its sign.
    let n_together = (0x7fff / (2 * LARGEST * most)) as usize;
    let pairs: Vec<usize> = pairs.collect();
    let sums = pairs.chunks(n_together.min(8)).map(|together| {
        let products: Vec<String> = together.iter().map(|k| format!("w{w}_{k} * x_{k}")).collect();
        format!("(bitcast<i32>({} + 0x8000u) >> 16u)", products.join(" + "))
    });
    sums.collect::<Vec<_>>().join(" + ")
}
