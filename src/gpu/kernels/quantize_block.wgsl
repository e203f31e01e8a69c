// 32 activations as a packed block of GROUP_WORDS words. A value is about d · q, with d = max|value| / 511 and q of ten bits:
// 16 words that hold the q as `store_columns` lays them, then d, and d · Σq of all, of the first 16 and of the last 16;
// `value4` gives the values.

fn quantize_block(y: u32, k: u32) {
    // By their bits, as which what is no number is greater than all numbers: a maximum of floats would drop it, and a block
    // of it would count as zeros.
    var bits = 0u;
    for (var i = 0u; i < 32u; i += 4u) {
        let v = bitcast<vec4<u32>>(abs(value4(k + i)));
        bits = max(bits, max(max(v.x, v.y), max(v.z, v.w)));
    }
    let greatest = bitcast<f32>(bits);
    // What is smaller than 1e-30 has no inverse in f32.
    let is_zero = bits < bitcast<u32>(1e-30f);
    let inverse = select(511.0 / greatest, 0.0, is_zero);
    let d = select(greatest / 511.0, 0.0, is_zero);
    var sums = vec2<i32>(0);
    for (var i = 0u; i < 16u; i += 4u) {
        let lo = rounded(value4(k + i) * inverse);
        let hi = rounded(value4(k + 16u + i) * inverse);
        store_columns(y, i, lo);
        store_columns(y, i + 16u, hi);
        sums += vec2<i32>((lo.x + lo.y) + (lo.z + lo.w), (hi.x + hi.y) + (hi.z + hi.w));
    }
    outputs[y + 16u] = bitcast<u32>(d);
    outputs[y + 17u] = bitcast<u32>(d * f32(sums.x + sums.y));
    outputs[y + 18u] = bitcast<u32>(d * f32(sums.x));
    outputs[y + 19u] = bitcast<u32>(d * f32(sums.y));
}

fn rounded(v: vec4<f32>) -> vec4<i32> { return clamp(vec4<i32>(round(v)), vec4<i32>(-511), vec4<i32>(511)); }
