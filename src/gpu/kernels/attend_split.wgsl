// Attention of one row over a span of positions by one workgroup, for some query heads that share a KV head: decode on real
// GPUs. A span is a range of 256 positions, or several one after the other where a context is very long. Both are fixed
// multiples, and spans are added up by `attend_merge`, so the order of addition depends only on the position. A workgroup
// whose span the row does not reach has nothing to do.

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

var<workgroup> before: array<vec2<f32>, HEADS>;           // of the ranges done: greatest score, total of weights

@compute @workgroup_size(LANES)
fn attend_split(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if (group.y >= n_kind_rows()) { return; }
    let row = first_kind_row() + group.y;
    let last = position_of(row);
    let seen = first_seen(last);
    let span = RANGE * constants.n_ranges;
    let first = (seen / span + group.x) * span;
    if (first > last) { return; }
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
    if (lane < HEADS) { before[lane] = vec2<f32>(-3.0e38, 0.0); }
    let per_head = constants.y_stride / constants.n_heads;
    let y = constants.y + row * constants.y_stride + first_head * per_head + group.x * (HEAD_DIM + 4u);
    // Of the first range with a position that the row sees, to that of the last.
    let begin = max(first, seen / RANGE * RANGE);
    let end = min(first + span, last + 1u);
    for (var start = begin; start < end; start += RANGE) {
        workgroupBarrier();
        weigh(row, kv_head, start, seen, last, lane);
        workgroupBarrier();
        let slice = lane / VECTORS;
        if (slice < SLICES) {
            // What lies before the window weighs nothing.
            let skipped = (max(seen, start) - start) / SLICES * SLICES;
            var sums = Sums();
            // Four loads on their way at once: a loop is not unrolled by every compiler, and waits for each.
            let n = min(RANGE, end - start);
            let column = 4u * (lane % VECTORS);
            for (var t = skipped + slice; t < n; t += 4u * SLICES) {
                let t1 = t + SLICES;
                let t2 = t1 + SLICES;
                let t3 = t2 + SLICES;
                let v0 = kv_quad(places[t] + column);
                let v1 = kv_quad(places[min(t1, n - 1u)] + column);
                let v2 = kv_quad(places[min(t2, n - 1u)] + column);
                let v3 = kv_quad(places[min(t3, n - 1u)] + column);
                add_values(&sums, t, v0);
                if (t1 < n) { add_values(&sums, t1, v1); }
                if (t2 < n) { add_values(&sums, t2, v2); }
                if (t3 < n) { add_values(&sums, t3, v3); }
            }
            keep_sums(sums, lane);
        }
        workgroupBarrier();
        for (var i = lane; i < n_heads * VECTORS; i += LANES) {
            let head = i / VECTORS;
            let vector = i % VECTORS;
            var sum = combined[head * LANES + vector];
            for (var s = 1u; s < SLICES; s++) { sum += combined[head * LANES + s * VECTORS + vector]; }
            add4_to(y + head * per_head + 4u * vector, sum, joined(head), start == begin);
        }
        workgroupBarrier();
        if (lane < n_heads) {
            let factors = joined(lane);
            var total = 0.0;
            for (var s = 0u; s < SHARES; s++) { total += totals[lane * SHARES + s]; }
            total = fma(before[lane].y, factors.x, total * factors.y);
            let most = max(before[lane].x, greatest_of(lane));
            before[lane] = vec2<f32>(most, total);
            outputs[y + lane * per_head + HEAD_DIM] = most;
            outputs[y + lane * per_head + HEAD_DIM + 1u] = total;
        }
    }
}

// Brings the weights of a range's positions to `scores`, and their sums to `totals`.
fn weigh(row: u32, kv_head: u32, start: u32, seen: u32, last: u32, lane: u32) {
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
    let of_head = lane / SHARES * RANGE;
    if (lane < HEADS * SHARES) {
        var own = -3.0e38;
        for (var t = share; t < RANGE; t += SHARES) { own = max(own, scores[of_head + t]); }
        greatest[lane] = own;
    }
    workgroupBarrier();
    if (lane < HEADS * SHARES) {
        let most = greatest_of(lane / SHARES);
        var total = 0.0;
        for (var t = share; t < RANGE; t += SHARES) {
            let weight = exp(scores[of_head + t] - most);
            scores[of_head + t] = weight;
            total += weight;
        }
        totals[lane] = total;
    }
}

// What the ranges done and this one are to be multiplied with, so that they have one greatest score.
fn joined(head: u32) -> vec2<f32> {
    let done = before[head].x;
    let most = greatest_of(head);
    return exp(vec2<f32>(done, most) - max(done, most));
}

// Four values of a head: what the ranges before left there has been written by this same invocation.
fn add4_to(i: u32, v: vec4<f32>, factors: vec2<f32>, is_first: bool) {
    var sum = v;
    if (!is_first) {
        let done = vec4<f32>(outputs[i], outputs[i + 1u], outputs[i + 2u], outputs[i + 3u]);
        sum = fma(done, vec4<f32>(factors.x), v * factors.y);
    }
    outputs[i] = sum.x;
    outputs[i + 1u] = sum.y;
    outputs[i + 2u] = sum.z;
    outputs[i + 3u] = sum.w;
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
