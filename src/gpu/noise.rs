//! Kernels that return noise, as a driver makes them that compiles wrongly: to see that this is noticed.
//!
//! Invariant: noise lies where the kernel's own outputs would, and nowhere else but beside them in the same rows.

use super::shader::{ShaderKey, Variant};

/// Which kernels return noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Noise {
    /// Those of this name; every kernel where absent.
    pub kernel: Option<&'static str>,
    /// On a device with this family in use; with any where absent.
    pub variant: Option<Variant>,
}

impl Noise {
    /// Whether a kernel returns noise on a device with such a family in use.
    pub(super) fn covers(&self, key: ShaderKey, variant: Variant) -> bool {
        self.kernel.is_none_or(|kernel| kernel == key.entry_point())
            && self.variant.is_none_or(|broken| broken == variant)
    }
}

impl ShaderKey {
    /// A text that returns noise in the place of the kernel's own.
    pub fn noise_source(self) -> String {
        let entry_point = format!("fn {}(", self.entry_point());
        let noise = include_str!("kernels/noise.wgsl").replace("fn noise(", &entry_point);
        format!("{}\n{}\n{noise}", self.prelude(), include_str!("kernels/common.wgsl"))
    }
}
