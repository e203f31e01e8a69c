//! Which instructions of the processor multiply: the best that it has, found once at run time.
//!
//! Invariant: a set can be had only where the processor has it, and all give the same bits.

use std::ops::Range;

use super::inputs::Inputs;
use super::products::{Weights, multiply};
#[cfg(not(target_feature = "simd128"))]
use super::vectors::Plain as Baseline;
use super::vectors::Vectors;
#[cfg(target_feature = "simd128")]
use super::wasm::Simd128 as Baseline;
#[cfg(target_arch = "x86_64")]
use super::x86;

/// Loops that any set of instructions may run. All that they call is inlined, or it is not compiled for the set.
pub(super) trait Loops {
    /// Runs them.
    fn run<V: Vectors>(self);
}

/// A set of instructions that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instructions(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// What every processor of the build's target has.
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Instructions {
    /// All that there are here, the best last.
    pub fn available() -> Vec<Self> {
        let all = [
            (Kind::Baseline, true),
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, x86::has_avx2()),
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, x86::has_avx512()),
        ];
        all.into_iter().filter(|(_, is_here)| *is_here).map(|(kind, _)| Self(kind)).collect()
    }

    /// The best that there are here.
    pub fn best() -> Self {
        Self::available().pop().expect("the baseline is always there")
    }

    /// What they are called.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Baseline if cfg!(target_feature = "simd128") => "simd128",
            Kind::Baseline if cfg!(target_feature = "neon") => "neon",
            Kind::Baseline => "baseline",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512-vnni",
        }
    }

    /// Runs loops with these instructions.
    pub(super) fn run(self, loops: impl Loops) {
        match self.0 {
            Kind::Baseline => loops.run::<Baseline>(),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => x86::run_avx2(loops),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => x86::run_avx512(loops),
        }
    }

    pub(super) fn multiply(
        self,
        weights: Weights<'_>,
        rows: Range<usize>,
        inputs: &Inputs,
        outputs: &mut [f32],
    ) {
        match self.0 {
            Kind::Baseline => multiply::<Baseline>(weights, rows, inputs, outputs),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => x86::multiply_avx2(weights, rows, inputs, outputs),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => x86::multiply_avx512(weights, rows, inputs, outputs),
        }
    }
}
