//! How decode kernels are cut into workgroups, by class of adapter: the one table that tuning changes.
//!
//! Invariant: a cut follows from the adapter and the matrix, never from the rows of a step, and its number of pairs changes
//! no order of addition: a row alone has the bits that it has in a crowd.

/// Adapters that want their work cut alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdapterClass {
    /// Memory of its own, and room for thousands of invocations at once.
    Discrete,
    /// Beside a processor, whose memory it shares.
    Integrated,
    /// Apple's.
    Apple,
    /// Of phones.
    Mobile,
    /// What cannot be told, and processors that imitate a GPU.
    Other,
}

/// All classes.
pub const CLASSES: [AdapterClass; 5] = [
    AdapterClass::Discrete,
    AdapterClass::Integrated,
    AdapterClass::Apple,
    AdapterClass::Mobile,
    AdapterClass::Other,
];

/// Makers of the GPUs of phones, as adapters and browsers name them.
const MOBILE: [&str; 8] = ["adreno", "qualcomm", "mali", "arm", "powervr", "img", "xclipse", "samsung"];

/// Most sums that an invocation keeps in registers.
const MOST_SUMS: u32 = 16;

/// What the table says of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Most invocations of a workgroup, which share the columns of its weight rows: 32, 64 or 128.
    pub lanes: u32,
    /// Invocations that share a group of 32 columns: 1, 2 or 4. With 4, neighbours load activations that lie beside each
    /// other; with fewer, each loads more of a weight row at once.
    pub parts: u32,
    /// Most pairs of outputs that a workgroup computes from activations it loads once.
    pub most_pairs: u32,
    /// Prompts are computed in large tiles, which use what they load more often, where these are at least so many
    /// workgroups: small ones give idle cores something to do.
    pub least_large_groups: u32,
}

/// How one matrix is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Invocations of a workgroup.
    pub lanes: u32,
    /// As in [`Tuning`].
    pub most_pairs: u32,
    /// As in [`Tuning`].
    pub parts: u32,
}

impl AdapterClass {
    /// By the words of its name, which in a browser are its maker and architecture, and by what it says it is.
    pub fn of(name: &str, device_type: wgpu::DeviceType) -> Self {
        let lower = name.to_lowercase();
        let has =
            |wanted: &[&str]| lower.split(|c: char| !c.is_alphanumeric()).any(|word| wanted.contains(&word));
        if has(&["apple"]) {
            return Self::Apple;
        }
        if has(&MOBILE) {
            return Self::Mobile;
        }
        match device_type {
            wgpu::DeviceType::DiscreteGpu => Self::Discrete,
            wgpu::DeviceType::IntegratedGpu => Self::Integrated,
            // A browser does not say.
            wgpu::DeviceType::Other if has(&["nvidia", "geforce", "amd", "radeon"]) => Self::Discrete,
            wgpu::DeviceType::Other if has(&["intel"]) => Self::Integrated,
            _ => Self::Other,
        }
    }

    /// The table. llama.cpp's WebGPU kernels give 4 rows to a workgroup of 256, ONNX Runtime's 2 or 8 to one of 128, MLX 8 to
    /// one of 64; none of this was measured with these kernels yet.
    pub fn tuning(self) -> Tuning {
        match self {
            Self::Discrete => Tuning { lanes: 128, parts: 4, most_pairs: 2, least_large_groups: 64 },
            Self::Apple | Self::Other => {
                Tuning { lanes: 64, parts: 4, most_pairs: 2, least_large_groups: 16 }
            }
            Self::Integrated | Self::Mobile => {
                Tuning { lanes: 64, parts: 2, most_pairs: 2, least_large_groups: 16 }
            }
        }
    }
}

impl Tuning {
    /// For a matrix of so many groups of 32 columns: as many invocations as find something to do in most of their turns.
    pub fn cut(self, n_groups: u32) -> Cut {
        let Self { lanes: most_lanes, most_pairs, parts, .. } = self;
        let n_parts = n_groups * parts;
        let is_busy = |lanes: &u32| 4 * n_parts >= 3 * n_parts.next_multiple_of(*lanes);
        let lanes = [128, 64].into_iter().filter(|lanes| *lanes <= most_lanes).find(is_busy).unwrap_or(32);
        Cut { lanes, most_pairs, parts }
    }
}

impl Cut {
    /// Pairs of outputs a workgroup, for a tile of rows.
    pub fn pairs(self, tile: u32) -> u32 {
        (MOST_SUMS / (2 * tile)).clamp(1, self.most_pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_told_apart_by_name_and_type() {
        let of = |name: &str, device_type| AdapterClass::of(name, device_type);
        let (discrete, integrated) = (wgpu::DeviceType::DiscreteGpu, wgpu::DeviceType::IntegratedGpu);
        let other = wgpu::DeviceType::Other;
        assert_eq!(of("NVIDIA GeForce RTX 4070", discrete), AdapterClass::Discrete);
        assert_eq!(of("AMD Radeon 780M (RADV PHOENIX)", integrated), AdapterClass::Integrated);
        assert_eq!(of("Apple M2", integrated), AdapterClass::Apple);
        assert_eq!(of("Adreno (TM) 740", integrated), AdapterClass::Mobile);
        assert_eq!(of("Mali-G78", other), AdapterClass::Mobile);
        assert_eq!(of("arm valhall", other), AdapterClass::Mobile);
        assert_eq!(of("nvidia ampere", other), AdapterClass::Discrete);
        assert_eq!(of("intel gen-12lp", other), AdapterClass::Integrated);
        assert_eq!(of("llvmpipe (LLVM 15.0.6, 256 bits)", wgpu::DeviceType::Cpu), AdapterClass::Other);
    }

    #[test]
    fn invocations_are_as_many_as_find_something_to_do() {
        let lanes = |columns: u32| AdapterClass::Discrete.tuning().cut(columns / 32).lanes;
        let found = [32, 576, 768, 1536, 2048, 8192].map(lanes);
        assert_eq!(found, [32, 32, 128, 128, 128, 128]);
    }

    #[test]
    fn an_invocation_keeps_at_most_sixteen_sums() {
        for class in CLASSES {
            let cut = class.tuning().cut(64);
            for tile in [1, 2, 4, 8] {
                assert!(2 * cut.pairs(tile) * tile <= MOST_SUMS, "{class:?}, {tile}");
            }
        }
    }
}
