//! The vectors of WebAssembly: four of 128 bits for the 16 lanes.
//!
//! Invariant: a vector is read and written whole, from arrays of as many bytes.
#![allow(
    unsafe_code,
    reason = "WebAssembly has no other way to read a vector from memory in one instruction"
)]

use std::arch::wasm32::*;

use super::vectors::{LANES, Lanes, Plane, Vectors};

/// WebAssembly with `simd128`.
pub(super) struct Simd128;

/// An expression for each of the four. Written out, as all here: built for size, loops over four vectors go through memory.
macro_rules! each {
    (|$($vectors:ident),+| $expression:expr) => {
        [
            { $(let $vectors = $vectors[0];)+ $expression },
            { $(let $vectors = $vectors[1];)+ $expression },
            { $(let $vectors = $vectors[2];)+ $expression },
            { $(let $vectors = $vectors[3];)+ $expression },
        ]
    };
}

impl Vectors for Simd128 {
    type Words = [v128; 4];
    type Sums = [v128; 4];
    type Floats = [v128; 4];
    const TILE: usize = 2;

    #[inline(always)]
    fn words(plane: &Plane) -> Self::Words {
        // SAFETY: a plane is four vectors.
        unsafe { read(plane.0.as_ptr().cast()) }
    }

    #[inline(always)]
    fn keep(words: Self::Words, plane: &mut Plane) {
        // SAFETY: a plane is four vectors.
        unsafe { write(words, plane.0.as_mut_ptr().cast()) }
    }

    #[inline(always)]
    fn bits(words: Self::Words, shift: u32, mask: u16) -> Self::Words {
        each!(|words| v128_and(u16x8_shr(words, shift), u16x8_splat(mask)))
    }

    #[inline(always)]
    fn join(words: Self::Words, higher: Self::Words, shift: u32) -> Self::Words {
        each!(|words, higher| v128_or(words, u16x8_shl(higher, shift)))
    }

    #[inline(always)]
    fn subtract(words: Self::Words, offset: u16) -> Self::Words {
        each!(|words| u16x8_sub(words, u16x8_splat(offset)))
    }

    #[inline(always)]
    fn signed_bytes(words: Self::Words) -> Self::Words {
        each!(|words| i16x8_shr(i16x8_shl(words, 8), 8))
    }

    #[inline(always)]
    fn look_up(words: Self::Words, table: &[i8; 16]) -> Self::Words {
        // SAFETY: a table is one vector.
        let table = unsafe { v128_load(table.as_ptr().cast()) };
        Self::signed_bytes(each!(|words| i8x16_swizzle(table, words)))
    }

    #[inline(always)]
    fn no_sums() -> Self::Sums {
        four(i32x4_splat(0))
    }

    #[inline(always)]
    fn add_products(sums: Self::Sums, words: Self::Words, pair: i32) -> Self::Sums {
        let pair = i32x4_splat(pair);
        each!(|sums, words| i32x4_add(sums, i32x4_dot_i16x8(words, pair)))
    }

    #[inline(always)]
    fn of_sums(sums: Self::Sums) -> Self::Floats {
        each!(|sums| f32x4_convert_i32x4(sums))
    }

    #[inline(always)]
    fn of_first(words: Self::Words) -> Self::Floats {
        each!(|words| f32x4_convert_i32x4(i32x4_shr(i32x4_shl(words, 16), 16)))
    }

    #[inline(always)]
    fn of_second(words: Self::Words) -> Self::Floats {
        each!(|words| f32x4_convert_i32x4(i32x4_shr(words, 16)))
    }

    #[inline(always)]
    fn of_bytes(bytes: &[i8; LANES]) -> Self::Floats {
        // SAFETY: the bytes are one vector.
        let bytes = unsafe { v128_load(bytes.as_ptr().cast()) };
        let (lo, hi) = (i16x8_extend_low_i8x16(bytes), i16x8_extend_high_i8x16(bytes));
        Self::of_sums([
            i32x4_extend_low_i16x8(lo),
            i32x4_extend_high_i16x8(lo),
            i32x4_extend_low_i16x8(hi),
            i32x4_extend_high_i16x8(hi),
        ])
    }

    #[inline(always)]
    fn of_f16(halves: &[u16; LANES]) -> Self::Floats {
        let halves = wide(halves);
        each!(|halves| {
            let magnitude = i32x4_shl(v128_and(halves, i32x4_splat(0x7fff)), 13);
            // The exponent's bias grows by 112; this also makes subnormals normal.
            let number = f32x4_mul(magnitude, f32x4_splat(f32::from_bits((112 + 127) << 23)));
            let is_none = i32x4_ge(magnitude, i32x4_splat(0x7c00 << 13));
            let sign = i32x4_shl(v128_and(halves, i32x4_splat(0x8000)), 16);
            v128_or(v128_or(number, sign), v128_and(is_none, i32x4_splat(0x7f80_0000)))
        })
    }

    #[inline(always)]
    fn of_bf16(halves: &[u16; LANES]) -> Self::Floats {
        let halves = wide(halves);
        each!(|halves| i32x4_shl(halves, 16))
    }

    #[inline(always)]
    fn floats(lanes: &Lanes) -> Self::Floats {
        // SAFETY: lanes are four vectors.
        unsafe { read(lanes.0.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(floats: Self::Floats, lanes: &mut Lanes) {
        // SAFETY: lanes are four vectors.
        unsafe { write(floats, lanes.0.as_mut_ptr().cast()) }
    }

    #[inline(always)]
    fn splat(value: f32) -> Self::Floats {
        four(f32x4_splat(value))
    }

    #[inline(always)]
    fn plus(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        each!(|a, b| f32x4_add(a, b))
    }

    #[inline(always)]
    fn times(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        each!(|a, b| f32x4_mul(a, b))
    }
}

#[inline(always)]
fn four(vector: v128) -> [v128; 4] {
    [vector, vector, vector, vector]
}

/// # Safety
/// Four vectors are there.
#[inline(always)]
unsafe fn read(start: *const v128) -> [v128; 4] {
    // SAFETY: the caller's.
    unsafe { [v128_load(start), v128_load(start.add(1)), v128_load(start.add(2)), v128_load(start.add(3))] }
}

/// # Safety
/// There is room for four vectors.
#[inline(always)]
unsafe fn write(vectors: [v128; 4], start: *mut v128) {
    // SAFETY: the caller's.
    unsafe {
        v128_store(start, vectors[0]);
        v128_store(start.add(1), vectors[1]);
        v128_store(start.add(2), vectors[2]);
        v128_store(start.add(3), vectors[3]);
    }
}

/// As 32 bits each.
#[inline(always)]
fn wide(halves: &[u16; LANES]) -> [v128; 4] {
    let start = halves.as_ptr().cast::<v128>();
    // SAFETY: the halves are two vectors.
    let (lo, hi) = unsafe { (v128_load(start), v128_load(start.add(1))) };
    [
        u32x4_extend_low_u16x8(lo),
        u32x4_extend_high_u16x8(lo),
        u32x4_extend_low_u16x8(hi),
        u32x4_extend_high_u16x8(hi),
    ]
}
