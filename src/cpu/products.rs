//! Products of packed weights and rows of inputs: each group of weights is unpacked once for many rows.
//!
//! Invariant: an output is a sum over groups in their order, and its bits depend on its row of weights and its row of inputs
//! alone: lanes and tiles decide only what is computed at the same time.

use std::ops::Range;

use super::inputs::{Inputs, PackedGroup};
use super::panel::{Factors, GROUP, Group, Layout, PAIRS, decode, factors, unpack};
use super::vectors::{LANES, Lanes, Plane, Vectors};
use crate::format::block::BlockType;

/// Rows of inputs that share an unpacked group of weights: their sums, 4 KiB, stay in the nearest cache.
const ROWS_AT_ONCE: usize = 64;

/// Weights of a matrix, panel by panel and group by group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weights<'a> {
    pub(super) block_type: BlockType,
    pub(super) n_groups: usize,
    pub(super) planes: &'a [Plane],
    pub(super) factors: &'a [Lanes],
    pub(super) bytes: &'a [[i8; LANES]],
}

impl<'a> Weights<'a> {
    #[inline(always)]
    pub(super) fn group(&self, layout: &Layout, panel: usize, group: usize) -> Group<'a> {
        let i = panel * self.n_groups + group;
        let span = i / layout.span;
        Group {
            planes: &self.planes[i * layout.planes..][..layout.planes],
            factors: &self.factors[span * layout.factors..][..layout.factors],
            bytes: &self.bytes[i * layout.bytes..][..layout.bytes],
        }
    }
}

/// `outputs[i * inputs.n_rows() + r]` = row `rows.start + i` of the weights times row r of the inputs.
#[inline(always)]
pub(super) fn multiply<V: Vectors>(
    weights: Weights<'_>,
    rows: Range<usize>,
    inputs: &Inputs,
    outputs: &mut [f32],
) {
    let layout = Layout::of(weights.block_type);
    let is_fast = inputs.is_packed() && layout.has_codes();
    let n_rows = inputs.n_rows();
    let mut sums = [Lanes::ZERO; ROWS_AT_ONCE];
    for panel in rows.start / LANES..rows.end.div_ceil(LANES) {
        let lanes = rows.start.saturating_sub(panel * LANES)..(rows.end - panel * LANES).min(LANES);
        let first_output = (panel * LANES + lanes.start - rows.start) * n_rows;
        for first_row in (0..n_rows).step_by(ROWS_AT_ONCE) {
            let input_rows = first_row..n_rows.min(first_row + ROWS_AT_ONCE);
            let sums = &mut sums[..input_rows.len()];
            sums.fill(Lanes::ZERO);
            if is_fast {
                multiply_fast::<V>(weights, &layout, panel, inputs, first_row, sums);
            } else {
                multiply_exact::<V>(weights, &layout, panel, inputs, first_row, sums);
            }
            for (outputs, lane) in outputs[first_output..].chunks_mut(n_rows).zip(lanes.clone()) {
                for (output, sums) in outputs[input_rows.clone()].iter_mut().zip(&*sums) {
                    *output = sums.0[lane];
                }
            }
        }
    }
}

#[inline(always)]
fn multiply_fast<V: Vectors>(
    weights: Weights<'_>,
    layout: &Layout,
    panel: usize,
    inputs: &Inputs,
    first_row: usize,
    sums: &mut [Lanes],
) {
    let mut numbers = [Plane::ZERO; PAIRS];
    for g in 0..weights.n_groups {
        let group = weights.group(layout, panel, g);
        unpack::<V>(weights.block_type, group, &mut numbers);
        let factors = factors::<V>(weights.block_type, group);
        let row = |i: usize| inputs.packed(first_row + i, g);
        let mut i = 0;
        while i < sums.len() {
            i += match sums.len() - i {
                8.. if V::TILE >= 8 => fast_8::<V>(&numbers, factors, layout, |r| row(i + r), &mut sums[i..]),
                4.. if V::TILE >= 4 => fast_4::<V>(&numbers, factors, layout, |r| row(i + r), &mut sums[i..]),
                2.. if V::TILE >= 2 => fast_2::<V>(&numbers, factors, layout, |r| row(i + r), &mut sums[i..]),
                _ => fast_1::<V>(&numbers, factors, layout, |r| row(i + r), &mut sums[i..]),
            };
        }
    }
}

#[inline(always)]
fn multiply_exact<V: Vectors>(
    weights: Weights<'_>,
    layout: &Layout,
    panel: usize,
    inputs: &Inputs,
    first_row: usize,
    sums: &mut [Lanes],
) {
    let mut values = [Lanes::ZERO; GROUP];
    for g in 0..weights.n_groups {
        let group = weights.group(layout, panel, g);
        decode::<V>(weights.block_type, group, &mut values);
        let row = |i: usize| inputs.group(first_row + i, g);
        let mut i = 0;
        while i < sums.len() {
            i += match sums.len() - i {
                8.. if V::TILE >= 8 => exact_8::<V>(&values, |r| row(i + r), &mut sums[i..]),
                4.. if V::TILE >= 4 => exact_4::<V>(&values, |r| row(i + r), &mut sums[i..]),
                2.. if V::TILE >= 2 => exact_2::<V>(&values, |r| row(i + r), &mut sums[i..]),
                _ => exact_1::<V>(&values, |r| row(i + r), &mut sums[i..]),
            };
        }
    }
}

/// What a group adds to an output, from the whole sums of its halves, or of all in the first.
#[inline(always)]
fn scaled<V: Vectors>(
    factors: Factors<V>,
    layout: &Layout,
    row: &PackedGroup,
    whole: [V::Sums; 2],
) -> V::Floats {
    let [d_lo, d_hi] = factors.d;
    let [m_lo, m_hi] = factors.m;
    let [all, lo, hi] = row.sums;
    let product = V::times(d_lo, V::of_sums(whole[0]));
    let d = V::splat(row.d);
    match (layout.has_halves, layout.has_min) {
        (false, false) => V::times(product, d),
        (false, true) => V::plus(V::times(product, d), V::times(m_lo, V::splat(all))),
        (true, has_min) => {
            let product = V::times(V::plus(product, V::times(d_hi, V::of_sums(whole[1]))), d);
            if !has_min {
                return product;
            }
            V::plus(product, V::plus(V::times(m_lo, V::splat(lo)), V::times(m_hi, V::splat(hi))))
        }
    }
}

/// What row r of a tile starts with.
#[inline(always)]
fn none<V: Vectors, const R: usize>() -> V::Sums {
    V::no_sums()
}

/// What row r of a tile starts with.
#[inline(always)]
fn zero<V: Vectors, const R: usize>() -> V::Floats {
    V::splat(0.0)
}

/// Tiles of so many rows of inputs, written out: builds for size unroll no loop, and sums must stay in registers. Each
/// returns its rows.
macro_rules! tiles {
    ($fast:ident, $dots:ident, $exact:ident, $n:literal: $($r:literal)*) => {
        #[inline(always)]
        fn $fast<'a, V: Vectors>(
            numbers: &[Plane; PAIRS],
            factors: Factors<V>,
            layout: &Layout,
            row: impl Fn(usize) -> &'a PackedGroup,
            sums: &mut [Lanes],
        ) -> usize {
            let rows: [&PackedGroup; $n] = [$(row($r)),*];
            let sums: &mut [Lanes; $n] = sums.first_chunk_mut().expect("the tile was chosen to fit");
            let (lo, hi) = match layout.has_halves {
                true => ($dots::<V>(numbers, rows, 0..PAIRS / 2), $dots::<V>(numbers, rows, PAIRS / 2..PAIRS)),
                false => ($dots::<V>(numbers, rows, 0..PAIRS), [$(none::<V, $r>()),*]),
            };
            $(
                let sum = V::plus(V::floats(&sums[$r]), scaled::<V>(factors, layout, rows[$r], [lo[$r], hi[$r]]));
                V::store(sum, &mut sums[$r]);
            )*
            $n
        }

        #[inline(always)]
        fn $dots<V: Vectors>(
            numbers: &[Plane; PAIRS],
            rows: [&PackedGroup; $n],
            pairs: Range<usize>,
        ) -> [V::Sums; $n] {
            let mut dots = [$(none::<V, $r>()),*];
            for pair in pairs {
                let words = V::words(&numbers[pair]);
                $(dots[$r] = V::add_products(dots[$r], words, rows[$r].q[pair]);)*
            }
            dots
        }

        /// The sum of a group starts anew, so that errors grow with the root of 32 and not of all columns.
        #[inline(always)]
        fn $exact<'a, V: Vectors>(
            values: &[Lanes; GROUP],
            row: impl Fn(usize) -> &'a [f32; GROUP],
            sums: &mut [Lanes],
        ) -> usize {
            let rows: [&[f32; GROUP]; $n] = [$(row($r)),*];
            let sums: &mut [Lanes; $n] = sums.first_chunk_mut().expect("the tile was chosen to fit");
            let mut of_group = [$(zero::<V, $r>()),*];
            for (column, values) in values.iter().enumerate() {
                let values = V::floats(values);
                $(of_group[$r] = V::plus(of_group[$r], V::times(values, V::splat(rows[$r][column])));)*
            }
            $(V::store(V::plus(V::floats(&sums[$r]), of_group[$r]), &mut sums[$r]);)*
            $n
        }
    };
}

tiles!(fast_1, dots_1, exact_1, 1: 0);
tiles!(fast_2, dots_2, exact_2, 2: 0 1);
tiles!(fast_4, dots_4, exact_4, 4: 0 1 2 3);
tiles!(fast_8, dots_8, exact_8, 8: 0 1 2 3 4 5 6 7);
