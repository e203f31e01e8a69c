// The functions of an MLP.

const SILU: u32 = 1u;
const GELU_TANH: u32 = 2u;

fn apply_nonlinearity(x: f32) -> f32 {
    if (constants.nonlinearity == SILU) { return x / (1.0 + exp(-x)); }
    if (constants.nonlinearity == GELU_TANH) {
        return 0.5 * x * (1.0 + tanh_clamped(0.7978845608028654 * fma(0.044715 * x * x, x, x)));
    }
    return x;
}
