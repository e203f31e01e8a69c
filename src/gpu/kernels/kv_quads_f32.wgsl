// The cache in single precision, read four values at once.

@group(0) @binding(6) var<storage, read_write> kv_quads: array<vec4<u32>>;

fn kv_quad(i: u32) -> vec4<f32> { return bitcast<vec4<f32>>(kv_quads[i / 4u]); }
