// F16: IEEE half precision.

fn halves(first: u32, second: u32) -> vec4<f32> {
    return vec4<f32>(f32_from_f16(first), f32_from_f16(first >> 16u), f32_from_f16(second), f32_from_f16(second >> 16u));
}
