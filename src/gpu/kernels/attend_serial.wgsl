// Attention of one row and head by one invocation, online softmax over four positions at a time (Milakov and
// Gimelshein 2018): for software adapters.

const VECTORS: u32 = HEAD_DIM / 4u;

@compute @workgroup_size(WORKGROUP)
fn attend_serial(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x / constants.n_heads;
    let head = id.x % constants.n_heads;
    if (i >= n_kind_rows()) { return; }
    let row = first_kind_row() + i;
    let kv_head = head / (constants.n_heads / constants.n_kv_heads);
    let q = constants.x + row * constants.x_stride + head * HEAD_DIM;
    let table = block_table_of(row);
    let last = position_of(row);
    let stride = constants.n_kv_heads * HEAD_DIM;
    var greatest = -3.0e38;
    var total = 0.0;
    var sums: array<vec4<f32>, VECTORS>;
    // Groups are whole, so the order of addition depends only on the position; what lies before the window weighs nothing.
    let first = first_seen(last);
    for (var position = first / 4u * 4u; position <= last; position += 4u) {
        // A group lies in one block. Positions past the last read the last, and weigh nothing.
        let base = kv_index(batch[table + position / BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS, 0u, kv_head);
        let left = last - position;
        let k0 = base;
        let k1 = base + min(1u, left) * stride;
        let k2 = base + min(2u, left) * stride;
        let k3 = base + min(3u, left) * stride;
        var d0 = vec4<f32>(0.0);
        var d1 = vec4<f32>(0.0);
        var d2 = vec4<f32>(0.0);
        var d3 = vec4<f32>(0.0);
        for (var d = 0u; d < HEAD_DIM; d += 4u) {
            let query = load4(q + d);
            d0 = fma(query, kv_read4(k0 + d), d0);
            d1 = fma(query, kv_read4(k1 + d), d1);
            d2 = fma(query, kv_read4(k2 + d), d2);
            d3 = fma(query, kv_read4(k3 + d), d3);
        }
        var scores = vec4<f32>(total4(d0), total4(d1), total4(d2), total4(d3)) * constants.value;
        scores = vec4<f32>(capped(scores.x), capped(scores.y), capped(scores.z), capped(scores.w));
        let group = vec4<u32>(position) + vec4<u32>(0u, 1u, 2u, 3u);
        let is_seen = (group >= vec4<u32>(first)) & (group <= vec4<u32>(last));
        scores = select(vec4<f32>(-3.0e38), scores, is_seen);
        let greater = max(greatest, max(max(scores.x, scores.y), max(scores.z, scores.w)));
        let shrink = exp(greatest - greater);
        let weights = exp(scores - vec4<f32>(greater));
        greatest = greater;
        total = fma(total, shrink, total4(weights));
        let values = BLOCK_TOKENS * stride;
        for (var d = 0u; d < VECTORS; d++) {
            var sum = sums[d] * shrink;
            sum = fma(vec4<f32>(weights.x), kv_read4(k0 + values + 4u * d), sum);
            sum = fma(vec4<f32>(weights.y), kv_read4(k1 + values + 4u * d), sum);
            sum = fma(vec4<f32>(weights.z), kv_read4(k2 + values + 4u * d), sum);
            sum = fma(vec4<f32>(weights.w), kv_read4(k3 + values + 4u * d), sum);
            sums[d] = sum;
        }
    }
    let y = constants.y + row * constants.y_stride + head * HEAD_DIM;
    for (var d = 0u; d < HEAD_DIM; d++) {
        outputs[y + d] = sums[d / 4u][d % 4u] / total;
    }
}

fn total4(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }
