//! The loops for AVX2 and for AVX-512 with VNNI, and whether the processor has these.
//!
//! Invariant: vectors of a set are used only in functions that are compiled for it, which are called only where the processor
//! has it. That is what every `unsafe` here relies on.
#![allow(
    unsafe_code,
    reason = "the compiler cannot see which instructions the processor has; these two sets are asked for"
)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::inputs::Inputs;
use super::instructions::Loops;
use super::products::{Weights, multiply};
use super::vectors::{LANES, Lanes, Plane, Vectors};

/// Whether [`multiply_avx2`] can run.
pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

/// Whether [`multiply_avx512`] can run.
pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
}

/// # Panics
/// Without AVX2 and F16C.
pub(super) fn multiply_avx2(weights: Weights<'_>, rows: Range<usize>, inputs: &Inputs, outputs: &mut [f32]) {
    #[target_feature(enable = "avx2,f16c")]
    fn compiled(weights: Weights<'_>, rows: Range<usize>, inputs: &Inputs, outputs: &mut [f32]) {
        multiply::<Avx2>(weights, rows, inputs, outputs);
    }
    assert!(has_avx2(), "instructions are chosen among those that there are");
    // SAFETY: the processor has them.
    unsafe { compiled(weights, rows, inputs, outputs) }
}

/// # Panics
/// Without AVX-512 and VNNI.
pub(super) fn multiply_avx512(
    weights: Weights<'_>,
    rows: Range<usize>,
    inputs: &Inputs,
    outputs: &mut [f32],
) {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn compiled(weights: Weights<'_>, rows: Range<usize>, inputs: &Inputs, outputs: &mut [f32]) {
        multiply::<Avx512>(weights, rows, inputs, outputs);
    }
    assert!(has_avx512(), "instructions are chosen among those that there are");
    // SAFETY: the processor has them.
    unsafe { compiled(weights, rows, inputs, outputs) }
}

/// Runs loops compiled for AVX2.
///
/// # Panics
/// Without AVX2 and F16C.
pub(super) fn run_avx2(loops: impl Loops) {
    #[target_feature(enable = "avx2,f16c")]
    fn compiled(loops: impl Loops) {
        loops.run::<Avx2>();
    }
    assert!(has_avx2(), "instructions are chosen among those that there are");
    // SAFETY: the processor has them.
    unsafe { compiled(loops) }
}

/// Runs loops compiled for AVX-512.
///
/// # Panics
/// Without AVX-512 and VNNI.
pub(super) fn run_avx512(loops: impl Loops) {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn compiled(loops: impl Loops) {
        loops.run::<Avx512>();
    }
    assert!(has_avx512(), "instructions are chosen among those that there are");
    // SAFETY: the processor has them.
    unsafe { compiled(loops) }
}

struct Avx2;

/// An expression for the first and the last eight lanes.
macro_rules! both {
    (|$($halves:ident),+| $expression:expr) => {
        // SAFETY: as at the top.
        unsafe {
            [
                { $(let $halves = $halves[0];)+ $expression },
                { $(let $halves = $halves[1];)+ $expression },
            ]
        }
    };
}

impl Vectors for Avx2 {
    type Words = [__m256i; 2];
    type Sums = [__m256i; 2];
    type Floats = [__m256; 2];
    const TILE: usize = 4;

    #[inline(always)]
    fn words(plane: &Plane) -> Self::Words {
        let halves = halves(&plane.0);
        both!(|halves| _mm256_loadu_si256(halves.as_ptr().cast()))
    }

    #[inline(always)]
    fn keep(words: Self::Words, plane: &mut Plane) {
        let start: *mut __m256i = plane.0.as_mut_ptr().cast();
        // SAFETY: a plane is two vectors.
        unsafe {
            _mm256_storeu_si256(start, words[0]);
            _mm256_storeu_si256(start.add(1), words[1]);
        }
    }

    #[inline(always)]
    fn bits(words: Self::Words, shift: u32, mask: u16) -> Self::Words {
        both!(|words| {
            let shifted = _mm256_srl_epi16(words, _mm_cvtsi32_si128(shift as i32));
            _mm256_and_si256(shifted, _mm256_set1_epi16(mask as i16))
        })
    }

    #[inline(always)]
    fn join(words: Self::Words, higher: Self::Words, shift: u32) -> Self::Words {
        both!(|words, higher| _mm256_or_si256(
            words,
            _mm256_sll_epi16(higher, _mm_cvtsi32_si128(shift as i32))
        ))
    }

    #[inline(always)]
    fn subtract(words: Self::Words, offset: u16) -> Self::Words {
        both!(|words| _mm256_sub_epi16(words, _mm256_set1_epi16(offset as i16)))
    }

    #[inline(always)]
    fn signed_bytes(words: Self::Words) -> Self::Words {
        both!(|words| _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(words)))
    }

    #[inline(always)]
    fn look_up(words: Self::Words, table: &[i8; 16]) -> Self::Words {
        Self::signed_bytes(both!(|words| {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, words)
        }))
    }

    #[inline(always)]
    fn no_sums() -> Self::Sums {
        // SAFETY: as at the top.
        [unsafe { _mm256_setzero_si256() }; 2]
    }

    #[inline(always)]
    fn add_products(sums: Self::Sums, words: Self::Words, pair: i32) -> Self::Sums {
        both!(|sums, words| _mm256_add_epi32(sums, _mm256_madd_epi16(words, _mm256_set1_epi32(pair))))
    }

    #[inline(always)]
    fn of_sums(sums: Self::Sums) -> Self::Floats {
        both!(|sums| _mm256_cvtepi32_ps(sums))
    }

    #[inline(always)]
    fn of_first(words: Self::Words) -> Self::Floats {
        both!(|words| _mm256_cvtepi32_ps(_mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(words))))
    }

    #[inline(always)]
    fn of_second(words: Self::Words) -> Self::Floats {
        both!(|words| _mm256_cvtepi32_ps(_mm256_srai_epi32::<16>(words)))
    }

    #[inline(always)]
    fn of_bytes(bytes: &[i8; LANES]) -> Self::Floats {
        // SAFETY: as at the top; there are 16 bytes.
        let bytes = unsafe {
            let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
            [bytes, _mm_srli_si128::<8>(bytes)]
        };
        both!(|bytes| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)))
    }

    #[inline(always)]
    fn of_f16(bits: &[u16; LANES]) -> Self::Floats {
        let halves = halves(bits);
        both!(|halves| _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast())))
    }

    #[inline(always)]
    fn of_bf16(bits: &[u16; LANES]) -> Self::Floats {
        let halves = halves(bits);
        both!(|halves| {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
        })
    }

    #[inline(always)]
    fn floats(lanes: &Lanes) -> Self::Floats {
        let halves = halves(&lanes.0);
        both!(|halves| _mm256_loadu_ps(halves.as_ptr()))
    }

    #[inline(always)]
    fn store(floats: Self::Floats, lanes: &mut Lanes) {
        let start = lanes.0.as_mut_ptr();
        // SAFETY: lanes are two vectors of eight.
        unsafe {
            _mm256_storeu_ps(start, floats[0]);
            _mm256_storeu_ps(start.add(8), floats[1]);
        }
    }

    #[inline(always)]
    fn splat(value: f32) -> Self::Floats {
        // SAFETY: as at the top.
        [unsafe { _mm256_set1_ps(value) }; 2]
    }

    #[inline(always)]
    fn plus(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        both!(|a, b| _mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn times(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        both!(|a, b| _mm256_mul_ps(a, b))
    }
}

#[inline(always)]
fn halves<T>(all: &[T]) -> [&[T]; 2] {
    let (first, last) = all.split_at(all.len() / 2);
    [first, last]
}

struct Avx512;

impl Vectors for Avx512 {
    type Words = __m512i;
    type Sums = __m512i;
    type Floats = __m512;
    const TILE: usize = 8;

    #[inline(always)]
    fn words(plane: &Plane) -> Self::Words {
        // SAFETY: a plane is 64 bytes and lies at a multiple of them.
        unsafe { _mm512_load_si512(plane.0.as_ptr().cast()) }
    }

    #[inline(always)]
    fn keep(words: Self::Words, plane: &mut Plane) {
        // SAFETY: a plane is 64 bytes and lies at a multiple of them.
        unsafe { _mm512_store_si512(plane.0.as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn bits(words: Self::Words, shift: u32, mask: u16) -> Self::Words {
        // SAFETY: as at the top.
        unsafe {
            let shifted = _mm512_srl_epi16(words, _mm_cvtsi32_si128(shift as i32));
            _mm512_and_si512(shifted, _mm512_set1_epi16(mask as i16))
        }
    }

    #[inline(always)]
    fn join(words: Self::Words, higher: Self::Words, shift: u32) -> Self::Words {
        // SAFETY: as at the top.
        unsafe { _mm512_or_si512(words, _mm512_sll_epi16(higher, _mm_cvtsi32_si128(shift as i32))) }
    }

    #[inline(always)]
    fn subtract(words: Self::Words, offset: u16) -> Self::Words {
        // SAFETY: as at the top.
        unsafe { _mm512_sub_epi16(words, _mm512_set1_epi16(offset as i16)) }
    }

    #[inline(always)]
    fn signed_bytes(words: Self::Words) -> Self::Words {
        // SAFETY: as at the top.
        unsafe { _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(words)) }
    }

    #[inline(always)]
    fn look_up(words: Self::Words, table: &[i8; 16]) -> Self::Words {
        // SAFETY: as at the top; a table is 16 bytes.
        Self::signed_bytes(unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, words)
        })
    }

    #[inline(always)]
    fn no_sums() -> Self::Sums {
        // SAFETY: as at the top.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn add_products(sums: Self::Sums, words: Self::Words, pair: i32) -> Self::Sums {
        // SAFETY: as at the top.
        unsafe { _mm512_dpwssd_epi32(sums, words, _mm512_set1_epi32(pair)) }
    }

    #[inline(always)]
    fn of_sums(sums: Self::Sums) -> Self::Floats {
        // SAFETY: as at the top.
        unsafe { _mm512_cvtepi32_ps(sums) }
    }

    #[inline(always)]
    fn of_first(words: Self::Words) -> Self::Floats {
        // SAFETY: as at the top.
        Self::of_sums(unsafe { _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(words)) })
    }

    #[inline(always)]
    fn of_second(words: Self::Words) -> Self::Floats {
        // SAFETY: as at the top.
        Self::of_sums(unsafe { _mm512_srai_epi32::<16>(words) })
    }

    #[inline(always)]
    fn of_bytes(bytes: &[i8; LANES]) -> Self::Floats {
        // SAFETY: as at the top; there are 16 bytes.
        Self::of_sums(unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.as_ptr().cast())) })
    }

    #[inline(always)]
    fn of_f16(halves: &[u16; LANES]) -> Self::Floats {
        // SAFETY: as at the top; the halves are 32 bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().cast())) }
    }

    #[inline(always)]
    fn of_bf16(halves: &[u16; LANES]) -> Self::Floats {
        // SAFETY: as at the top; the halves are 32 bytes.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(halves.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
        }
    }

    #[inline(always)]
    fn floats(lanes: &Lanes) -> Self::Floats {
        // SAFETY: lanes are 64 bytes and lie at a multiple of them.
        unsafe { _mm512_load_ps(lanes.0.as_ptr()) }
    }

    #[inline(always)]
    fn store(floats: Self::Floats, lanes: &mut Lanes) {
        // SAFETY: lanes are 64 bytes and lie at a multiple of them.
        unsafe { _mm512_store_ps(lanes.0.as_mut_ptr(), floats) }
    }

    #[inline(always)]
    fn splat(value: f32) -> Self::Floats {
        // SAFETY: as at the top.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn plus(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as at the top.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn times(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as at the top.
        unsafe { _mm512_mul_ps(a, b) }
    }
}
