// Products of four signed bytes with four others, added up; for browsers whose WGSL has no dot4I8Packed.
fn dot4(a: u32, b: u32) -> i32 {
    let left = vec4<u32>(24u, 16u, 8u, 0u);
    let products = (bitcast<vec4<i32>>(vec4<u32>(a) << left) >> vec4<u32>(24u))
        * (bitcast<vec4<i32>>(vec4<u32>(b) << left) >> vec4<u32>(24u));
    return (products.x + products.y) + (products.z + products.w);
}
