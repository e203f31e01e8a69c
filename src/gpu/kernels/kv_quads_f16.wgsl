// The cache in half precision, read four values at once.

@group(0) @binding(6) var<storage, read_write> kv_quads: array<vec2<u32>>;

fn kv_quad(i: u32) -> vec4<f32> {
    let words = kv_quads[i / 4u];
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}
