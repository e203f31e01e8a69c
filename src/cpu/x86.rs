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

/// Both halves of the lanes.
#[inline(always)]
fn both<A: Copy, B>(a: [A; 2], f: impl Fn(A) -> B) -> [B; 2] {
    [f(a[0]), f(a[1])]
}

#[inline(always)]
fn both_of<A: Copy, B: Copy, C>(a: [A; 2], b: [B; 2], f: impl Fn(A, B) -> C) -> [C; 2] {
    [f(a[0], b[0]), f(a[1], b[1])]
}

impl Vectors for Avx2 {
    type Words = [__m256i; 2];
    type Sums = [__m256i; 2];
    type Floats = [__m256; 2];
    const TILE: usize = 4;

    #[inline(always)]
    fn words(plane: &Plane) -> Self::Words {
        let [lo, hi] = halves(&plane.0);
        // SAFETY: a half is 32 bytes.
        both(
            [lo, hi],
            #[inline(always)]
            |half: &[u16; LANES]| unsafe { _mm256_loadu_si256(half.as_ptr().cast()) },
        )
    }

    #[inline(always)]
    fn keep(words: Self::Words, plane: &mut Plane) {
        let (lo, hi) = plane.0.split_at_mut(LANES);
        // SAFETY: a half is 32 bytes.
        unsafe {
            _mm256_storeu_si256(lo.as_mut_ptr().cast(), words[0]);
            _mm256_storeu_si256(hi.as_mut_ptr().cast(), words[1]);
        }
    }

    #[inline(always)]
    fn bits(words: Self::Words, shift: u32, mask: u16) -> Self::Words {
        // SAFETY: as above.
        both(
            words,
            #[inline(always)]
            |words| unsafe {
                let shifted = _mm256_srl_epi16(words, _mm_cvtsi32_si128(shift as i32));
                _mm256_and_si256(shifted, _mm256_set1_epi16(mask as i16))
            },
        )
    }

    #[inline(always)]
    fn join(words: Self::Words, higher: Self::Words, shift: u32) -> Self::Words {
        // SAFETY: as above.
        both_of(
            words,
            higher,
            #[inline(always)]
            |words, higher| unsafe {
                _mm256_or_si256(words, _mm256_sll_epi16(higher, _mm_cvtsi32_si128(shift as i32)))
            },
        )
    }

    #[inline(always)]
    fn subtract(words: Self::Words, offset: u16) -> Self::Words {
        // SAFETY: as above.
        both(
            words,
            #[inline(always)]
            |words| unsafe { _mm256_sub_epi16(words, _mm256_set1_epi16(offset as i16)) },
        )
    }

    #[inline(always)]
    fn signed_bytes(words: Self::Words) -> Self::Words {
        // SAFETY: as above.
        both(
            words,
            #[inline(always)]
            |words| unsafe { _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(words)) },
        )
    }

    #[inline(always)]
    fn look_up(words: Self::Words, table: &[i8; 16]) -> Self::Words {
        // SAFETY: as above; a table is 16 bytes.
        let found = both(
            words,
            #[inline(always)]
            |words| unsafe {
                let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                _mm256_shuffle_epi8(table, words)
            },
        );
        Self::signed_bytes(found)
    }

    #[inline(always)]
    fn no_sums() -> Self::Sums {
        // SAFETY: as above.
        [unsafe { _mm256_setzero_si256() }; 2]
    }

    #[inline(always)]
    fn add_products(sums: Self::Sums, words: Self::Words, pair: i32) -> Self::Sums {
        // SAFETY: as above.
        both_of(
            sums,
            words,
            #[inline(always)]
            |sums, words| unsafe {
                _mm256_add_epi32(sums, _mm256_madd_epi16(words, _mm256_set1_epi32(pair)))
            },
        )
    }

    #[inline(always)]
    fn of_sums(sums: Self::Sums) -> Self::Floats {
        // SAFETY: as above.
        both(
            sums,
            #[inline(always)]
            |sums| unsafe { _mm256_cvtepi32_ps(sums) },
        )
    }

    #[inline(always)]
    fn of_first(words: Self::Words) -> Self::Floats {
        // SAFETY: as above.
        Self::of_sums(both(
            words,
            #[inline(always)]
            |words| unsafe { _mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(words)) },
        ))
    }

    #[inline(always)]
    fn of_second(words: Self::Words) -> Self::Floats {
        // SAFETY: as above.
        Self::of_sums(both(
            words,
            #[inline(always)]
            |words| unsafe { _mm256_srai_epi32::<16>(words) },
        ))
    }

    #[inline(always)]
    fn of_bytes(bytes: &[i8; LANES]) -> Self::Floats {
        // SAFETY: as above; there are 16 bytes.
        let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        // SAFETY: as above.
        let sums = unsafe { [_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes))] };
        Self::of_sums(sums)
    }

    #[inline(always)]
    fn of_f16(halves: &[u16; LANES]) -> Self::Floats {
        let (lo, hi) = halves.split_at(LANES / 2);
        both(
            [lo, hi],
            #[inline(always)]
            // SAFETY: as above; a half is 16 bytes.
            |halves: &[u16]| unsafe { _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast())) },
        )
    }

    #[inline(always)]
    fn of_bf16(halves: &[u16; LANES]) -> Self::Floats {
        let (lo, hi) = halves.split_at(LANES / 2);
        both(
            [lo, hi],
            #[inline(always)]
            // SAFETY: as above; a half is 16 bytes.
            |halves: &[u16]| unsafe {
                let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves.as_ptr().cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
            },
        )
    }

    #[inline(always)]
    fn floats(lanes: &Lanes) -> Self::Floats {
        let (lo, hi) = lanes.0.split_at(LANES / 2);
        // SAFETY: a half is 32 bytes.
        both(
            [lo, hi],
            #[inline(always)]
            |half: &[f32]| unsafe { _mm256_loadu_ps(half.as_ptr()) },
        )
    }

    #[inline(always)]
    fn store(floats: Self::Floats, lanes: &mut Lanes) {
        let (lo, hi) = lanes.0.split_at_mut(LANES / 2);
        // SAFETY: a half is 32 bytes.
        unsafe {
            _mm256_storeu_ps(lo.as_mut_ptr(), floats[0]);
            _mm256_storeu_ps(hi.as_mut_ptr(), floats[1]);
        }
    }

    #[inline(always)]
    fn splat(value: f32) -> Self::Floats {
        // SAFETY: as above.
        [unsafe { _mm256_set1_ps(value) }; 2]
    }

    #[inline(always)]
    fn plus(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as above.
        both_of(
            a,
            b,
            #[inline(always)]
            |a, b| unsafe { _mm256_add_ps(a, b) },
        )
    }

    #[inline(always)]
    fn times(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as above.
        both_of(
            a,
            b,
            #[inline(always)]
            |a, b| unsafe { _mm256_mul_ps(a, b) },
        )
    }
}

fn halves(words: &[u16; 2 * LANES]) -> [&[u16; LANES]; 2] {
    let (lo, hi) = words.as_chunks().0.split_at(1);
    [&lo[0], &hi[0]]
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
        // SAFETY: as above.
        unsafe {
            let shifted = _mm512_srl_epi16(words, _mm_cvtsi32_si128(shift as i32));
            _mm512_and_si512(shifted, _mm512_set1_epi16(mask as i16))
        }
    }

    #[inline(always)]
    fn join(words: Self::Words, higher: Self::Words, shift: u32) -> Self::Words {
        // SAFETY: as above.
        unsafe { _mm512_or_si512(words, _mm512_sll_epi16(higher, _mm_cvtsi32_si128(shift as i32))) }
    }

    #[inline(always)]
    fn subtract(words: Self::Words, offset: u16) -> Self::Words {
        // SAFETY: as above.
        unsafe { _mm512_sub_epi16(words, _mm512_set1_epi16(offset as i16)) }
    }

    #[inline(always)]
    fn signed_bytes(words: Self::Words) -> Self::Words {
        // SAFETY: as above.
        unsafe { _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(words)) }
    }

    #[inline(always)]
    fn look_up(words: Self::Words, table: &[i8; 16]) -> Self::Words {
        // SAFETY: as above; a table is 16 bytes.
        Self::signed_bytes(unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, words)
        })
    }

    #[inline(always)]
    fn no_sums() -> Self::Sums {
        // SAFETY: as above.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn add_products(sums: Self::Sums, words: Self::Words, pair: i32) -> Self::Sums {
        // SAFETY: as above.
        unsafe { _mm512_dpwssd_epi32(sums, words, _mm512_set1_epi32(pair)) }
    }

    #[inline(always)]
    fn of_sums(sums: Self::Sums) -> Self::Floats {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi32_ps(sums) }
    }

    #[inline(always)]
    fn of_first(words: Self::Words) -> Self::Floats {
        // SAFETY: as above.
        Self::of_sums(unsafe { _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(words)) })
    }

    #[inline(always)]
    fn of_second(words: Self::Words) -> Self::Floats {
        // SAFETY: as above.
        Self::of_sums(unsafe { _mm512_srai_epi32::<16>(words) })
    }

    #[inline(always)]
    fn of_bytes(bytes: &[i8; LANES]) -> Self::Floats {
        // SAFETY: as above; there are 16 bytes.
        Self::of_sums(unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.as_ptr().cast())) })
    }

    #[inline(always)]
    fn of_f16(halves: &[u16; LANES]) -> Self::Floats {
        // SAFETY: as above; the halves are 32 bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().cast())) }
    }

    #[inline(always)]
    fn of_bf16(halves: &[u16; LANES]) -> Self::Floats {
        // SAFETY: as above; the halves are 32 bytes.
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
        // SAFETY: as above.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn plus(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as above.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn times(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as above.
        unsafe { _mm512_mul_ps(a, b) }
    }
}
