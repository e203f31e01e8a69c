//! The dispatch that chooses tokens from logits, where the device does that.
//!
//! Invariant: it reads the logits as the step left them, and writes nothing but what is sampled.

use super::{Constants, Dispatch, Grid, Rows};
use crate::gpu::layout::{Buffer, Layout};
use crate::gpu::shader::{ShaderKey, Variant};
use crate::plan::Plan;

/// One row a workgroup, or an invocation where barriers cost too much.
pub(super) fn dispatch(plan: &Plan, layout: &Layout, variant: Variant) -> Dispatch {
    let vocab_size = plan.sizes.vocab_size as u32;
    let constants = Constants {
        rows: Rows::Sampled as u32,
        segment_rows: vocab_size,
        x: layout.logits.start,
        x_stride: vocab_size,
        ..Constants::default()
    };
    Dispatch {
        shader: ShaderKey::Sample(variant),
        rows: Rows::Sampled,
        constants,
        inputs: layout.logits.buffer,
        // Bound, but not written: what is sampled lies where a dispatch with a layer has its cache.
        outputs: if layout.logits.buffer == Buffer::Inputs { Buffer::Outputs } else { Buffer::Inputs },
        matrix: None,
        layer: None,
        grid: match variant {
            Variant::Serial => Grid::Flat { n_items: 1 },
            _ => Grid::Groups { n_items: 1, items: 1, rows: Some(1) },
        },
    }
}
