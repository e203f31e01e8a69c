// The cache in single precision.

fn kv_write(i: u32, a: f32, b: f32) {
    kv[i] = bitcast<u32>(a);
    kv[i + 1u] = bitcast<u32>(b);
}

fn kv_read4(i: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(kv[i], kv[i + 1u], kv[i + 2u], kv[i + 3u]));
}

fn kv_read(i: u32) -> f32 {
    return bitcast<f32>(kv[i]);
}
