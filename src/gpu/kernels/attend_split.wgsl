// Attention of one row over a range of 256 positions by one workgroup, for some query heads that share a KV head: decode on
// real GPUs. Ranges are fixed multiples of 256 and are added up by `attend_merge`, so the order of addition depends only on
// the position. A workgroup whose range the row does not reach has nothing to do.

const LANES: u32 = 128u;
const VECTORS: u32 = HEAD_DIM / 4u;
const SLICES: u32 = LANES / VECTORS;   // positions whose values are added at once
const SHARES: u32 = 16u;               // invocations a head that find its greatest score

var<workgroup> query: array<vec4<f32>, HEADS * VECTORS>;
var<workgroup> places: array<u32, RANGE>;                 // where a position's values lie
var<workgroup> scores: array<f32, HEADS * RANGE>;         // then the positions' weights
var<workgroup> greatest: array<f32, HEADS * SHARES>;
var<workgroup> totals: array<f32, HEADS * SHARES>;
var<workgroup> combined: array<vec4<f32>, HEADS * LANES>;   // (heads, slices, vectors)

@compute @workgroup_size(LANES)
fn attend_split(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if (group.y >= n_kind_rows()) { return; }
    let row = first_kind_row() + group.y;
    let last = position_of(row);
    let seen = first_seen(last);
    let start = (seen / RANGE + group.x) * RANGE;
    if (start > last) { return; }
    let shared_by = constants.n_heads / constants.n_kv_heads;
    let n_chunks = (shared_by + HEADS - 1u) / HEADS;
    let kv_head = group.z / n_chunks;
    let first_of_chunk = group.z % n_chunks * HEADS;
    let first_head = kv_head * shared_by + first_of_chunk;
    let n_heads = min(HEADS, shared_by - first_of_chunk);
    for (var i = lane; i < HEADS * VECTORS; i += LANES) {
        let head = first_head + min(i / VECTORS, n_heads - 1u);
        query[i] = load4(constants.x + row * constants.x_stride + head * HEAD_DIM + 4u * (i % VECTORS));
    }
    workgroupBarrier();

    let table = block_table_of(row);
    let to_values = BLOCK_TOKENS * constants.n_kv_heads * HEAD_DIM;
    for (var t = lane; t < RANGE; t += LANES) {
        let position = clamp(start + t, seen, last);
        let key = kv_index(batch[table + position / BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS, 0u, kv_head);
        places[t] = key + to_values;
        if (position == start + t) { score(t, key); } else { hide(t); }
    }
    workgroupBarrier();

    let share = lane % SHARES;
    let scores_of = lane / SHARES * RANGE;
    if (lane < HEADS * SHARES) {
        var own = -3.0e38;
        for (var t = share; t < RANGE; t += SHARES) { own = max(own, scores[scores_of + t]); }
        greatest[lane] = own;
    }
    workgroupBarrier();
    if (lane < HEADS * SHARES) {
        let most = greatest_of(lane / SHARES);
        var total = 0.0;
        for (var t = share; t < RANGE; t += SHARES) {
            let weight = exp(scores[scores_of + t] - most);
            scores[scores_of + t] = weight;
            total += weight;
        }
        totals[lane] = total;
    }
    workgroupBarrier();

    let slice = lane / VECTORS;
    if (slice < SLICES) {
        // What lies before the window weighs nothing.
        let end = min(RANGE, last + 1u - start);
        let skipped = (max(seen, start) - start) / SLICES * SLICES;
        var sums: Sums;
        for (var t = skipped + slice; t < end; t += SLICES) {
            add_values(&sums, t, kv_quad(places[t] + 4u * (lane % VECTORS)));
        }
        keep_sums(sums, lane);
    }
    workgroupBarrier();

    let per_head = constants.y_stride / constants.n_heads;
    let y = constants.y + row * constants.y_stride + group.x * (HEAD_DIM + 4u);
    for (var i = lane; i < n_heads * VECTORS; i += LANES) {
        let head = i / VECTORS;
        let vector = i % VECTORS;
        var sum = combined[head * LANES + vector];
        for (var s = 1u; s < SLICES; s++) { sum += combined[head * LANES + s * VECTORS + vector]; }
        let to = y + (first_head + head) * per_head + 4u * vector;
        outputs[to] = sum.x;
        outputs[to + 1u] = sum.y;
        outputs[to + 2u] = sum.z;
        outputs[to + 3u] = sum.w;
    }
    if (lane < n_heads) {
        var total = 0.0;
        for (var s = 0u; s < SHARES; s++) { total += totals[lane * SHARES + s]; }
        let to = y + (first_head + lane) * per_head + HEAD_DIM;
        outputs[to] = greatest_of(lane);
        outputs[to + 1u] = total;
    }
}

fn greatest_of(head: u32) -> f32 {
    var most = greatest[head * SHARES];
    for (var s = 1u; s < SHARES; s++) { most = max(most, greatest[head * SHARES + s]); }
    return most;
}

// sum + q · k, column by column.
fn add4(sum: f32, q: vec4<f32>, k: vec4<f32>) -> f32 {
    return fma(q.w, k.w, fma(q.z, k.z, fma(q.y, k.y, fma(q.x, k.x, sum))));
}
