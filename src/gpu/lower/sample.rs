//! The dispatch that chooses tokens from logits, where the device does that.
//!
//! Invariant: it reads the logits as the step left them, and writes nothing but what is sampled.

use super::{Constants, Dispatch, Grid, Rows};
use crate::gpu::layout::{Buffer, Layout};
use crate::gpu::shader::ShaderKey;
use crate::plan::Plan;

/// One row a workgroup. There is no kernel without barriers: where they cost too much the host samples, and one invocation
/// a row would go through the vocabulary dozens of times (Mesa's llvmpipe ends the loops of a shader after 65 535 turns in
/// all, silently).
pub(super) fn dispatch(plan: &Plan, layout: &Layout) -> Dispatch {
    let vocab_size = plan.sizes.vocab_size as u32;
    let constants = Constants {
        rows: Rows::Sampled as u32,
        segment_rows: vocab_size,
        x: layout.logits.start,
        x_stride: vocab_size,
        ..Constants::default()
    };
    Dispatch {
        shader: ShaderKey::Sample,
        rows: Rows::Sampled,
        constants,
        inputs: layout.logits.buffer,
        // Bound, but not written: what is sampled lies where a dispatch with a layer has its cache.
        outputs: if layout.logits.buffer == Buffer::Inputs { Buffer::Outputs } else { Buffer::Inputs },
        matrix: None,
        positions: None,
        layer: None,
        grid: Grid::Groups { n_items: 1, items: 1, rows: 1 },
    }
}
