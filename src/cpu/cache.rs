//! Keys and values of all layers, in blocks of [`BLOCK_TOKENS`] slots.
//!
//! Invariant: what is read of a slot is what was written there, rounded to the cache's type; nothing else of the block
//! has a part in it.

use std::collections::TryReserveError;

use super::vectors::{LANES, Lanes, Vectors};
use crate::format::half::f16_from_f32;
use crate::plan::batch::BLOCK_TOKENS;
use crate::plan::{KvType, Plan};

/// What lies in memory, by units: a unit is a KV head of a block in a layer, its keys (head_dim, slots) and then its
/// values (slots, head_dim), so that loops over either are over neighbours.
#[derive(Debug)]
enum Values {
    F16(Vec<u16>),
    F32(Vec<f32>),
    /// With a scale for each slot's keys, then for its values.
    Q8 {
        codes: Vec<i8>,
        scales: Vec<f32>,
    },
}

/// A paged cache.
#[derive(Debug)]
pub(super) struct Cache {
    values: Values,
    n_kv_heads: usize,
    head_dim: usize,
    /// The first unit of each layer.
    starts: Vec<usize>,
}

/// Zeros; `Err` where memory does not suffice.
pub(super) fn zeros<T: Clone + Default>(n: usize) -> Result<Vec<T>, TryReserveError> {
    let mut values = Vec::new();
    values.try_reserve_exact(n)?;
    values.resize(n, T::default());
    Ok(values)
}

/// Which of a unit's halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Keys,
    Values,
}

impl Cache {
    /// Room for so many blocks of each cache of the plan.
    pub(super) fn new(plan: &Plan, cache_blocks: &[usize]) -> Result<Self, TryReserveError> {
        let (n_kv_heads, head_dim) = (plan.sizes.n_kv_heads, plan.sizes.head_dim);
        let mut n_units = 0;
        let mut start = |cache: &usize| {
            let start = n_units;
            n_units += cache_blocks[*cache] * n_kv_heads;
            start
        };
        let starts = plan.layer_caches.iter().map(&mut start).collect();
        let n_slots = n_units.saturating_mul(2 * BLOCK_TOKENS);
        let n_values = n_slots.saturating_mul(head_dim);
        let values = match plan.kv {
            KvType::F16 => Values::F16(zeros(n_values)?),
            KvType::F32 => Values::F32(zeros(n_values)?),
            KvType::Q8 => Values::Q8 { codes: zeros(n_values)?, scales: zeros(n_slots)? },
        };
        Ok(Self { values, n_kv_heads, head_dim, starts })
    }

    /// A head of a block.
    pub(super) fn unit(&self, layer: usize, block: u32, kv_head: usize) -> usize {
        self.starts[layer] + block as usize * self.n_kv_heads + kv_head
    }

    fn half_start(&self, unit: usize, half: Half) -> usize {
        (2 * unit + usize::from(half == Half::Values)) * BLOCK_TOKENS * self.head_dim
    }

    /// Keeps a token's key and value of a head.
    pub(super) fn write(&mut self, unit: usize, slot: usize, key: &[f32], value: &[f32]) {
        self.write_head(unit, slot, Half::Keys, key);
        self.write_head(unit, slot, Half::Values, value);
    }

    fn write_head(&mut self, unit: usize, slot: usize, half: Half, head: &[f32]) {
        let start = self.half_start(unit, half);
        let places = match half {
            Half::Keys => (start + slot..).step_by(BLOCK_TOKENS),
            Half::Values => (start + slot * self.head_dim..).step_by(1),
        };
        match &mut self.values {
            Values::F16(values) => places.zip(head).for_each(|(to, v)| values[to] = f16_from_f32(*v)),
            Values::F32(values) => places.zip(head).for_each(|(to, v)| values[to] = *v),
            Values::Q8 { codes, scales } => {
                // By their bits: what is no number must not be dropped, as a maximum of floats would.
                let greatest = head.iter().fold(0, |most, v| v.abs().to_bits().max(most));
                let greatest = f32::from_bits(greatest);
                // What is smaller than 1e-30 has no inverse in f32.
                let (factor, scale) =
                    if greatest < 1e-30 { (0.0, 0.0) } else { (127.0 / greatest, greatest / 127.0) };
                let code = |v: &f32| (v * factor).round_ties_even().clamp(-127.0, 127.0) as i8;
                places.zip(head).for_each(|(to, v)| codes[to] = code(v));
                scales[(2 * unit + usize::from(half == Half::Values)) * BLOCK_TOKENS + slot] = scale;
            }
        }
    }

    /// Widens the keys of a unit: (head_dim, slots)
    #[inline(always)]
    pub(super) fn keys<V: Vectors>(&self, unit: usize, wide: &mut [Lanes]) {
        let Values::Q8 { codes, scales } = &self.values else {
            return self.floats::<V>(unit, Half::Keys, wide);
        };
        let start = self.half_start(unit, Half::Keys);
        let scales = scales[start / self.head_dim..].first_chunk::<BLOCK_TOKENS>().expect("one a slot");
        let scales =
            [Lanes(std::array::from_fn(|i| scales[i])), Lanes(std::array::from_fn(|i| scales[LANES + i]))];
        let codes = codes[start..].as_chunks::<LANES>().0;
        for (wide, codes) in wide.as_chunks_mut::<2>().0.iter_mut().zip(codes.as_chunks::<2>().0) {
            V::store(V::times(V::of_bytes(&codes[0]), V::floats(&scales[0])), &mut wide[0]);
            V::store(V::times(V::of_bytes(&codes[1]), V::floats(&scales[1])), &mut wide[1]);
        }
    }

    /// Widens the values of a unit: (slots, head_dim)
    #[inline(always)]
    pub(super) fn values<V: Vectors>(&self, unit: usize, wide: &mut [Lanes]) {
        let Values::Q8 { codes, scales } = &self.values else {
            return self.floats::<V>(unit, Half::Values, wide);
        };
        let start = self.half_start(unit, Half::Values);
        let scales = &scales[start / self.head_dim..];
        let codes = codes[start..].as_chunks::<LANES>().0;
        for (i, (wide, codes)) in wide.iter_mut().zip(codes).enumerate() {
            let scale = |lane: usize| scales[(i * LANES + lane) / self.head_dim];
            let scale = if self.head_dim.is_multiple_of(LANES) {
                V::splat(scale(0))
            } else {
                // A slot ends within the lanes.
                V::floats(&Lanes(std::array::from_fn(scale)))
            };
            V::store(V::times(V::of_bytes(codes), scale), wide);
        }
    }

    #[inline(always)]
    fn floats<V: Vectors>(&self, unit: usize, half: Half, wide: &mut [Lanes]) {
        let start = self.half_start(unit, half);
        match &self.values {
            Values::F32(values) => {
                let values = values[start..].as_chunks::<LANES>().0;
                wide.iter_mut().zip(values).for_each(|(wide, values)| wide.0 = *values);
            }
            Values::F16(values) => {
                for (wide, halves) in wide.iter_mut().zip(values[start..].as_chunks::<LANES>().0) {
                    V::store(V::of_f16(halves), wide);
                }
            }
            Values::Q8 { .. } => unreachable!("these have scales"),
        }
    }
}
