//! How weights lie in memory: panels of 16 rows, side by side as lanes, in groups of 32 columns.
//!
//! Invariant: packing moves bits and widens scales; it never rounds. What a lane holds depends on its row alone.

use super::vectors::{LANES, Lanes, Plane, Vectors};
use crate::format::block::BlockType::{
    self, BF16, F16, F32, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
};
use crate::format::decode::{IQ4_NUMBERS, MXFP4_NUMBERS};

/// Columns in a group.
pub(super) const GROUP: usize = 32;
/// Pairs of columns in a group.
pub(super) const PAIRS: usize = GROUP / 2;

/// What a block type takes in the three arrays of a matrix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Planes of a group: one for each bit of a code; the halves of a lane hold the first and the second of each pair of
    /// columns. Floats have two columns a plane, one after the other.
    pub(super) planes: usize,
    /// Groups that share factors: a block.
    pub(super) span: usize,
    /// Factors of a span: scale and minimum, or all values where they are F32.
    pub(super) factors: usize,
    /// Small scales and minima of a group, by which a superblock's factors are multiplied.
    pub(super) bytes: usize,
    /// Whether the halves of a group have scales of their own.
    pub(super) has_halves: bool,
    /// Whether values have a minimum.
    pub(super) has_min: bool,
}

impl Layout {
    /// # Panics
    /// If the type cannot be decoded; lowering refuses it.
    pub(super) fn of(block_type: BlockType) -> Self {
        let (planes, span, factors, bytes) = match block_type {
            F32 => (0, 1, GROUP, 0),
            F16 | BF16 => (PAIRS, 1, 0, 0),
            Q4_0 | IQ4_NL | MXFP4 => (4, 1, 1, 0),
            Q4_1 => (4, 1, 2, 0),
            Q5_0 => (5, 1, 1, 0),
            Q5_1 => (5, 1, 2, 0),
            Q8_0 => (8, 1, 1, 0),
            Q2_K => (2, 8, 2, 2),
            Q3_K => (3, 8, 1, 2),
            Q4_K => (4, 8, 2, 2),
            Q5_K => (5, 8, 2, 2),
            Q6_K => (6, 8, 1, 2),
            IQ4_XS => (4, 8, 1, 1),
            other => panic!("{other} cannot be decoded; lowering refuses it"),
        };
        Self {
            planes,
            span,
            factors,
            bytes,
            has_halves: matches!(block_type, Q2_K | Q3_K | Q6_K),
            has_min: matches!(block_type, Q4_1 | Q5_1 | Q2_K | Q4_K | Q5_K),
        }
    }

    /// Whether values are codes, which multiply packed activations.
    pub(super) fn has_codes(&self) -> bool {
        (1..=8).contains(&self.planes)
    }
}

/// One group of a panel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) planes: &'a [Plane],
    pub(super) factors: &'a [Lanes],
    pub(super) bytes: &'a [[i8; LANES]],
}

/// The factors of a group's first and last 16 columns: value = d · number + m.
pub(super) struct Factors<V: Vectors> {
    pub(super) d: [V::Floats; 2],
    pub(super) m: [V::Floats; 2],
}

impl<V: Vectors> Factors<V> {
    /// The same for both halves.
    #[inline(always)]
    fn of_group(d: V::Floats, m: V::Floats) -> Self {
        Self { d: [d, d], m: [m, m] }
    }
}

impl<V: Vectors> Clone for Factors<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Vectors> Copy for Factors<V> {}

/// What a code stands for.
#[derive(Debug, Clone, Copy)]
enum Number {
    /// Itself.
    Code,
    /// Itself less an offset.
    Less(u16),
    /// A byte with a sign.
    Byte,
    /// One of a table.
    Of(&'static [i8; 16]),
}

/// The numbers of a group's codes.
#[inline(always)]
pub(super) fn unpack<V: Vectors>(block_type: BlockType, group: Group<'_>, numbers: &mut [Plane; PAIRS]) {
    let planes = group.planes;
    match block_type {
        Q4_0 => unpack_bits::<V, 4, 0>(planes, Number::Less(8), numbers),
        Q4_1 | Q4_K => unpack_bits::<V, 4, 0>(planes, Number::Code, numbers),
        Q5_0 => unpack_bits::<V, 4, 1>(planes, Number::Less(16), numbers),
        Q5_1 | Q5_K => unpack_bits::<V, 4, 1>(planes, Number::Code, numbers),
        Q8_0 => unpack_bits::<V, 8, 0>(planes, Number::Byte, numbers),
        Q2_K => unpack_bits::<V, 2, 0>(planes, Number::Code, numbers),
        Q3_K => unpack_bits::<V, 2, 1>(planes, Number::Less(4), numbers),
        Q6_K => unpack_bits::<V, 4, 2>(planes, Number::Less(32), numbers),
        IQ4_NL | IQ4_XS => unpack_bits::<V, 4, 0>(planes, Number::Of(&IQ4_NUMBERS), numbers),
        MXFP4 => unpack_bits::<V, 4, 0>(planes, Number::Of(&MXFP4_NUMBERS), numbers),
        other => unreachable!("{other} has no codes"),
    }
}

/// Codes of `LOW` bits in the first planes and `HIGH` more in the others; a word has those of several pairs, the first in its
/// last bits.
#[inline(always)]
fn unpack_bits<V: Vectors, const LOW: usize, const HIGH: usize>(
    planes: &[Plane],
    number: Number,
    numbers: &mut [Plane; PAIRS],
) {
    let low: &[Plane; LOW] = planes[..LOW].first_chunk().expect("it is cut so");
    let high: &[Plane; HIGH] = planes[LOW..].first_chunk().expect("a group has all its planes");
    for (pair, numbers) in numbers.iter_mut().enumerate() {
        let at = |bits: usize| (pair * bits / 16, (pair * bits % 16) as u32);
        let (plane, shift) = at(LOW);
        let mut code = V::bits(V::words(&low[plane]), shift, (1 << LOW) - 1);
        if HIGH > 0 {
            let (plane, shift) = at(HIGH);
            code = V::join(code, V::bits(V::words(&high[plane]), shift, (1 << HIGH) - 1), LOW as u32);
        }
        let number = match number {
            Number::Code => code,
            Number::Less(offset) => V::subtract(code, offset),
            Number::Byte => V::signed_bytes(code),
            Number::Of(table) => V::look_up(code, table),
        };
        V::keep(number, numbers);
    }
}

/// The factors of a group.
#[inline(always)]
pub(super) fn factors<V: Vectors>(block_type: BlockType, group: Group<'_>) -> Factors<V> {
    let (factors, bytes) = (group.factors, group.bytes);
    match block_type {
        Q4_1 | Q5_1 => Factors::of_group(V::floats(&factors[0]), V::floats(&factors[1])),
        Q4_K | Q5_K => Factors::of_group(
            scaled::<V>(&factors[0], &bytes[0], 1.0),
            scaled::<V>(&factors[1], &bytes[1], -1.0),
        ),
        Q2_K => {
            let [d_lo, d_hi] = [nibbles(&bytes[0], 0), nibbles(&bytes[1], 0)];
            let [m_lo, m_hi] = [nibbles(&bytes[0], 4), nibbles(&bytes[1], 4)];
            Factors {
                d: [scaled::<V>(&factors[0], &d_lo, 1.0), scaled::<V>(&factors[0], &d_hi, 1.0)],
                m: [scaled::<V>(&factors[1], &m_lo, -1.0), scaled::<V>(&factors[1], &m_hi, -1.0)],
            }
        }
        Q3_K | Q6_K => Factors {
            d: [scaled::<V>(&factors[0], &bytes[0], 1.0), scaled::<V>(&factors[0], &bytes[1], 1.0)],
            m: [V::splat(0.0), V::splat(0.0)],
        },
        IQ4_XS => Factors::of_group(scaled::<V>(&factors[0], &bytes[0], 1.0), V::splat(0.0)),
        _ => Factors::of_group(V::floats(&factors[0]), V::splat(0.0)),
    }
}

/// A superblock's factor times a group's small one, with a sign.
#[inline(always)]
fn scaled<V: Vectors>(factor: &Lanes, small: &[i8; LANES], sign: f32) -> V::Floats {
    V::times(V::times(V::floats(factor), V::of_bytes(small)), V::splat(sign))
}

#[inline(always)]
fn nibbles(bytes: &[i8; LANES], shift: u32) -> [i8; LANES] {
    bytes.map(|byte| (byte as u8 >> shift & 15) as i8)
}

/// The values of a group, column by column, in the order of rounding of [`crate::format::decode`].
#[inline(always)]
pub(super) fn decode<V: Vectors>(block_type: BlockType, group: Group<'_>, values: &mut [Lanes; GROUP]) {
    match block_type {
        F32 => values.copy_from_slice(group.factors),
        F16 => decode_halves::<V>(group.planes, values, V::of_f16),
        BF16 => decode_halves::<V>(group.planes, values, V::of_bf16),
        _ => {
            let mut numbers = [Plane::ZERO; PAIRS];
            unpack::<V>(block_type, group, &mut numbers);
            let factors = factors::<V>(block_type, group);
            let has_min = Layout::of(block_type).has_min;
            for (pair, (numbers, [first, second])) in numbers.iter().zip(values.as_chunks_mut().0).enumerate()
            {
                let half = usize::from(pair >= PAIRS / 2);
                let (d, m) = (factors.d[half], factors.m[half]);
                let words = V::words(numbers);
                let products = (V::times(d, V::of_first(words)), V::times(d, V::of_second(words)));
                let (of_first, of_second) = match has_min {
                    true => (V::plus(products.0, m), V::plus(products.1, m)),
                    false => products,
                };
                V::store(of_first, first);
                V::store(of_second, second);
            }
        }
    }
}

/// Columns that lie two a plane, one after the other.
#[inline(always)]
fn decode_halves<V: Vectors>(
    planes: &[Plane],
    values: &mut [Lanes; GROUP],
    widen: impl Fn(&[u16; LANES]) -> V::Floats,
) {
    for (plane, [first, second]) in planes.iter().zip(values.as_chunks_mut().0) {
        let (lo, hi) = plane.0.split_at(LANES);
        V::store(widen(lo.first_chunk().expect("half a plane")), first);
        V::store(widen(hi.first_chunk().expect("half a plane")), second);
    }
}
