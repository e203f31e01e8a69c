// Packed activations for products of pairs: a word is a sum of two columns, two apart, the first of them times 2^16.

// Columns `column` to `column + 3` of the block at y.
fn store_columns(y: u32, column: u32, q: vec4<i32>) {
    let pairs = bitcast<vec2<u32>>(q.zw + (q.xy << vec2<u32>(16u)));
    outputs[y + column / 2u] = pairs.x;
    outputs[y + column / 2u + 1u] = pairs.y;
}
