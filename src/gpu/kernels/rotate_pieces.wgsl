// What both variants of `rotate` share: (rows, q k v heads, head_dim) become normed and rotated queries, and keys and
// values in the cache, each pair adjacent as in emit_qkv.

// A head of q, k or v, by its place among all of them.
struct Head {
    row: u32,
    head: u32,
    x: u32,   // where its values start
}

// Which two values of a head make its i-th pair.
fn pair_at(i: u32, is_value: bool) -> vec2<u32> {
    if (constants.split_half == 1u && !is_value) { return vec2<u32>(i, i + HALF); }
    return vec2<u32>(2u * i, 2u * i + 1u);
}

fn load1(i: u32) -> f32 { return inputs[i / 4u][i % 4u]; }

// The i-th pair as it is used: of q and k normed, where they are, and rotated. `inverse` is 1 / the values' root mean
// square; it is no part of the head, since what barriers depend on must be the same for all invocations by its type alone.
fn head_pair(head: Head, inverse: f32, i: u32) -> vec2<f32> {
    let is_value = head.head >= constants.n_heads + constants.n_kv_heads;
    let at = pair_at(i, is_value);
    var pair = vec2<f32>(load1(head.x + at.x), load1(head.x + at.y));
    if (is_value) { return pair; }
    if (constants.weight != NONE) {
        let weight = select(constants.weight, constants.key_weight, head.head >= constants.n_heads);
        pair = pair * inverse * vec2<f32>(table1(weight + at.x), table1(weight + at.y));
    }
    return rotate_pair(head.row, i, pair);
}

// Queries are outputs, keys and values go to the cache; the invocation has every `step`-th part from `first` on.
fn emit_head(head: Head, inverse: f32, first: u32, step: u32) {
    if (head.head >= constants.n_heads) {
        let kv_head = head.head - constants.n_heads;
        cache_head(head, inverse, kv_head / constants.n_kv_heads, kv_head % constants.n_kv_heads, first, step);
        return;
    }
    let y = constants.y + head.row * constants.y_stride + head.head * HEAD_DIM;
    for (var i = first; i < HALF; i += step) {
        let pair = head_pair(head, inverse, i);
        outputs[y + 2u * i] = pair.x;
        outputs[y + 2u * i + 1u] = pair.y;
    }
}
