//! Runs a plan with loops on the processor.

pub mod inputs;
pub mod instructions;
pub mod matrix;
mod pack;
mod panel;
mod products;
mod vectors;
#[cfg(target_feature = "simd128")]
mod wasm;
#[cfg(target_arch = "x86_64")]
mod x86;
