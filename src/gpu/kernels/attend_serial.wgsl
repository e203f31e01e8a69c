// Attention of one row and head by one invocation, online softmax over four positions at a time (Milakov and
// Gimelshein 2018): for software adapters. There is one loop, over the positions.

@compute @workgroup_size(WORKGROUP)
fn attend_serial(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x / constants.n_heads;
    let head = id.x % constants.n_heads;
    if (i >= n_kind_rows()) { return; }
    let row = first_kind_row() + i;
    let kv_head = head / (constants.n_heads / constants.n_kv_heads);
    let query = query_at(constants.x + row * constants.x_stride + head * HEAD_DIM);
    let table = block_table_of(row);
    let last = position_of(row);
    let stride = constants.n_kv_heads * HEAD_DIM;
    var greatest = -3.0e38;
    var total = 0.0;
    var sums = Sums();
    // Groups are whole, so the order of addition depends only on the position; what lies before the window weighs nothing.
    let first = first_seen(last);
    for (var position = first / 4u * 4u; position <= last; position += 4u) {
        // A group lies in one block. Positions past the last read the last, and weigh nothing.
        let base = kv_index(batch[table + position / BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS, 0u, kv_head);
        let keys = vec4<u32>(base) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last - position)) * stride;
        var scores = products(query, keys) * constants.value;
        scores = vec4<f32>(capped(scores.x), capped(scores.y), capped(scores.z), capped(scores.w));
        let group = vec4<u32>(position) + vec4<u32>(0u, 1u, 2u, 3u);
        let is_seen = (group >= vec4<u32>(first)) & (group <= vec4<u32>(last));
        scores = select(vec4<f32>(-3.0e38), scores, is_seen);
        let greater = max(greatest, max(max(scores.x, scores.y), max(scores.z, scores.w)));
        let shrink = exp(greatest - greater);
        let weights = exp(scores - vec4<f32>(greater));
        greatest = greater;
        total = fma(total, shrink, total4(weights));
        add_values(&sums, shrink, weights, keys + vec4<u32>(BLOCK_TOKENS * stride));
    }
    emit_sums(sums, total, constants.y + row * constants.y_stride + head * HEAD_DIM);
}

fn total4(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

fn emit4(y: u32, v: vec4<f32>) {
    outputs[y] = v.x;
    outputs[y + 1u] = v.y;
    outputs[y + 2u] = v.z;
    outputs[y + 3u] = v.w;
}
