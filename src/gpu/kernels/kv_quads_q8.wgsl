// The cache in 8 bits, read four values at once.

fn kv_quad(i: u32) -> vec4<f32> { return kv_read4(i); }
