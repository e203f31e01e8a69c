// BF16: the upper half of an f32.

fn halves(first: u32, second: u32) -> vec4<f32> {
    let words = vec4<u32>(first << 16u, first & 0xffff0000u, second << 16u, second & 0xffff0000u);
    return bitcast<vec4<f32>>(words);
}
