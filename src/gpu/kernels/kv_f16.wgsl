// The cache in half precision: a pair of values a word, owned by one invocation.

fn kv_write(i: u32, a: f32, b: f32) {
    kv[i / 2u] = pack2x16float(vec2<f32>(within_f16(a), within_f16(b)));
}

// pack2x16float of a value beyond f16 is undefined, hence the clamp, which on some GPUs makes a bound of what is no number.
fn within_f16(v: f32) -> f32 {
    if ((bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u) { return v; }
    return clamp(v, -65504.0, 65504.0);
}

fn kv_read4(i: u32) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(kv[i / 2u]), unpack2x16float(kv[i / 2u + 1u]));
}

fn kv_read(i: u32) -> f32 {
    return unpack2x16float(kv[i / 2u])[i % 2u];
}
