// What both variants of `rotate` share: (rows, q k v heads, head_dim) become normed and rotated queries, and keys and
// values in the cache, each pair adjacent as in emit_qkv.

// Which two values of a head make its i-th pair.
fn pair_at(i: u32, is_value: bool) -> vec2<u32> {
    if (constants.split_half == 1u && !is_value) { return vec2<u32>(i, i + HALF); }
    return vec2<u32>(2u * i, 2u * i + 1u);
}

fn load1(i: u32) -> f32 { return inputs[i / 4u][i % 4u]; }

// The i-th pair of a head whose values start at x; `inverse` is 1 / its root mean square.
fn emit_pair(row: u32, head: u32, x: u32, i: u32, inverse: f32) {
    let is_value = head >= constants.n_heads + constants.n_kv_heads;
    let at = pair_at(i, is_value);
    var pair = vec2<f32>(load1(x + at.x), load1(x + at.y));
    if (is_value) {
        write_pair(row, 1u, head - constants.n_heads - constants.n_kv_heads, i, pair.x, pair.y);
        return;
    }
    let weight = select(constants.weight, constants.key_weight, head >= constants.n_heads);
    pair = pair * inverse * vec2<f32>(table1(weight + at.x), table1(weight + at.y));
    let rotated = rotate_pair(row, i, pair);
    if (head >= constants.n_heads) {
        write_pair(row, 0u, head - constants.n_heads, i, rotated.x, rotated.y);
        return;
    }
    let y = constants.y + row * constants.y_stride + head * HEAD_DIM + 2u * i;
    outputs[y] = rotated.x;
    outputs[y + 1u] = rotated.y;
}
