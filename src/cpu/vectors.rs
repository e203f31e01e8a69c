//! What the loops need of vectors, and the same in plain Rust, which a compiler vectorizes for any processor.
//!
//! Invariant: every implementation gives the same bits: products and sums of f32 are rounded one by one, never fused.

use crate::format::half::{f32_from_bf16, f32_from_f16};

/// Rows of weights that lie side by side: one of each lane.
pub(super) const LANES: usize = 16;

/// Sixteen pairs of 16 bits: the halves of a lane's 32 bits.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Plane(pub(super) [u16; 2 * LANES]);

/// A number for each lane.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Lanes(pub(super) [f32; LANES]);

impl Plane {
    pub(super) const ZERO: Self = Self([0; 2 * LANES]);
}

impl Lanes {
    pub(super) const ZERO: Self = Self([0.0; LANES]);
}

/// Operations on all lanes at once.
pub(super) trait Vectors {
    /// A [`Plane`] in registers.
    type Words: Copy;
    /// An i32 for each lane.
    type Sums: Copy;
    /// An f32 for each lane.
    type Floats: Copy;
    /// Rows of inputs whose sums fit registers together: 8, 4, 2 or 1.
    const TILE: usize;

    fn words(plane: &Plane) -> Self::Words;
    fn keep(words: Self::Words, plane: &mut Plane);
    /// Bits from `shift` on, as many as `mask` has.
    fn bits(words: Self::Words, shift: u32, mask: u16) -> Self::Words;
    /// `words + (higher << shift)` where no bit meets another.
    fn join(words: Self::Words, higher: Self::Words, shift: u32) -> Self::Words;
    fn subtract(words: Self::Words, offset: u16) -> Self::Words;
    /// The signed byte in the lower half of each word.
    fn signed_bytes(words: Self::Words) -> Self::Words;
    /// `table[word]` of words below 16.
    fn look_up(words: Self::Words, table: &[i8; 16]) -> Self::Words;

    fn no_sums() -> Self::Sums;
    /// Adds the products of a lane's two signed words and the two of `pair`.
    fn add_products(sums: Self::Sums, words: Self::Words, pair: i32) -> Self::Sums;

    fn of_sums(sums: Self::Sums) -> Self::Floats;
    /// The first signed word of each lane.
    fn of_first(words: Self::Words) -> Self::Floats;
    /// The second.
    fn of_second(words: Self::Words) -> Self::Floats;
    fn of_bytes(bytes: &[i8; LANES]) -> Self::Floats;
    fn of_f16(halves: &[u16; LANES]) -> Self::Floats;
    fn of_bf16(halves: &[u16; LANES]) -> Self::Floats;
    fn floats(lanes: &Lanes) -> Self::Floats;
    fn store(floats: Self::Floats, lanes: &mut Lanes);
    fn splat(value: f32) -> Self::Floats;
    fn plus(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn times(a: Self::Floats, b: Self::Floats) -> Self::Floats;
}

/// Plain Rust.
pub(super) struct Plain;

impl Vectors for Plain {
    type Words = [u16; 2 * LANES];
    type Sums = [i32; LANES];
    type Floats = [f32; LANES];
    const TILE: usize = 2;

    #[inline(always)]
    fn words(plane: &Plane) -> Self::Words {
        plane.0
    }

    #[inline(always)]
    fn keep(words: Self::Words, plane: &mut Plane) {
        plane.0 = words;
    }

    #[inline(always)]
    fn bits(words: Self::Words, shift: u32, mask: u16) -> Self::Words {
        words.map(|word| word >> shift & mask)
    }

    #[inline(always)]
    fn join(words: Self::Words, higher: Self::Words, shift: u32) -> Self::Words {
        std::array::from_fn(|i| words[i] | higher[i] << shift)
    }

    #[inline(always)]
    fn subtract(words: Self::Words, offset: u16) -> Self::Words {
        words.map(|word| word.wrapping_sub(offset))
    }

    #[inline(always)]
    fn signed_bytes(words: Self::Words) -> Self::Words {
        words.map(|word| i16::from(word as i8) as u16)
    }

    #[inline(always)]
    fn look_up(words: Self::Words, table: &[i8; 16]) -> Self::Words {
        words.map(|word| i16::from(table[usize::from(word & 15)]) as u16)
    }

    #[inline(always)]
    fn no_sums() -> Self::Sums {
        [0; LANES]
    }

    #[inline(always)]
    fn add_products(sums: Self::Sums, words: Self::Words, pair: i32) -> Self::Sums {
        let (a, b) = (i32::from(pair as i16), pair >> 16);
        let product = |i: usize, x: i32| i32::from(words[i] as i16) * x;
        std::array::from_fn(|i| sums[i] + (product(2 * i, a) + product(2 * i + 1, b)))
    }

    #[inline(always)]
    fn of_sums(sums: Self::Sums) -> Self::Floats {
        sums.map(|sum| sum as f32)
    }

    #[inline(always)]
    fn of_first(words: Self::Words) -> Self::Floats {
        std::array::from_fn(|i| f32::from(words[2 * i] as i16))
    }

    #[inline(always)]
    fn of_second(words: Self::Words) -> Self::Floats {
        std::array::from_fn(|i| f32::from(words[2 * i + 1] as i16))
    }

    #[inline(always)]
    fn of_bytes(bytes: &[i8; LANES]) -> Self::Floats {
        bytes.map(f32::from)
    }

    #[inline(always)]
    fn of_f16(halves: &[u16; LANES]) -> Self::Floats {
        halves.map(f32_from_f16)
    }

    #[inline(always)]
    fn of_bf16(halves: &[u16; LANES]) -> Self::Floats {
        halves.map(f32_from_bf16)
    }

    #[inline(always)]
    fn floats(lanes: &Lanes) -> Self::Floats {
        lanes.0
    }

    #[inline(always)]
    fn store(floats: Self::Floats, lanes: &mut Lanes) {
        lanes.0 = floats;
    }

    #[inline(always)]
    fn splat(value: f32) -> Self::Floats {
        [value; LANES]
    }

    #[inline(always)]
    fn plus(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn times(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        std::array::from_fn(|i| a[i] * b[i])
    }
}
