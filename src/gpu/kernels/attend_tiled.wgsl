// Attention of some rows of a sequence by one workgroup, for all query heads that share a key head: prompts on real GPUs.
// Online softmax over a block of 32 positions at a time (Dao et al. 2022), whose keys, and then values, are staged in
// workgroup memory 32 of their columns at a time. 128 invocations, 8 for a query and the one 16 further.
//
// Blocks are whole and a position that is not seen weighs exactly 0, so the order of addition depends only on the
// position, whatever rows share a tile. Staged vectors lie as in matmul_tiled_large: without meeting in a bank.

const QUERIES: u32 = 32u;

var<workgroup> queries: array<vec4<f32>, 256>;    // (8 vectors, QUERIES)
var<workgroup> cached: array<vec4<f32>, 256>;     // keys: (8 vectors, 32 positions); values: (32 positions, 8 vectors)
var<workgroup> weights: array<vec4<f32>, 256>;    // (QUERIES, 8 fours of positions)
var<workgroup> greatest_of: array<f32, 256>;      // (QUERIES, 8 fours of positions)

// Of an invocation's two queries.
struct Two { a: vec4<f32>, b: vec4<f32> }

@compute @workgroup_size(128)
fn attend_tiled(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let kv_head = group.x;
    let tile = attention_tile(group.y);
    let table = block_table_of(tile.x);
    let last = position_of(tile.x + tile.y - 1u);
    let l = lane % 8u;
    let own = lane / 8u;
    let last_a = position_of(query_row(tile, own));
    let last_b = position_of(query_row(tile, own + 16u));
    var greatest = vec2<f32>(-3.0e38);
    var total = vec2<f32>(0.0);
    var sums = Sums();
    for (var block = first_seen(position_of(tile.x)) / BLOCK_TOKENS; block * BLOCK_TOKENS <= last; block++) {
        var scores = Two();
        for (var chunk = 0u; chunk < CHUNKS; chunk++) {
            workgroupBarrier();
            stage_queries(tile, kv_head, chunk, lane);
            stage_keys(table, block, last, kv_head, chunk, lane);
            workgroupBarrier();
            scores = score(scores, own, l);
        }
        let seen_a = seen(block * BLOCK_TOKENS + 4u * l, last_a);
        let seen_b = seen(block * BLOCK_TOKENS + 4u * l, last_b);
        let a = select(vec4<f32>(-3.0e38), capped4(scores.a * constants.value), seen_a);
        let b = select(vec4<f32>(-3.0e38), capped4(scores.b * constants.value), seen_b);
        greatest_of[own * 8u + l] = max(max(a.x, a.y), max(a.z, a.w));
        greatest_of[(own + 16u) * 8u + l] = max(max(b.x, b.y), max(b.z, b.w));
        workgroupBarrier();
        let greater = max(greatest, vec2<f32>(greatest_in_block(own), greatest_in_block(own + 16u)));
        let shrink = exp(greatest - greater);
        greatest = greater;
        weights[own * 8u + l] = select(vec4<f32>(0.0), exp(a - vec4<f32>(greater.x)), seen_a);
        weights[(own + 16u) * 8u + l] = select(vec4<f32>(0.0), exp(b - vec4<f32>(greater.y)), seen_b);
        workgroupBarrier();
        total = fma(total, shrink, vec2<f32>(weight_in_block(own), weight_in_block(own + 16u)));
        weigh_values(&sums, shrink, table, block, last, kv_head, lane);
    }
    emit_sums(sums, total, tile, kv_head, lane);
}

// A query is one head of one row; those past the tile's last row are computed as that row's, and dropped.
fn query_row(tile: vec2<u32>, query: u32) -> u32 {
    return tile.x + min(query / heads_a_key(), tile.y - 1u);
}

fn query_head(kv_head: u32, query: u32) -> u32 { return kv_head * heads_a_key() + query % heads_a_key(); }

fn heads_a_key() -> u32 { return constants.n_heads / constants.n_kv_heads; }

fn seen(position: u32, last: u32) -> vec4<bool> {
    let group = vec4<u32>(position) + vec4<u32>(0u, 1u, 2u, 3u);
    return (group >= vec4<u32>(first_seen(last))) & (group <= vec4<u32>(last));
}

fn capped4(v: vec4<f32>) -> vec4<f32> { return vec4<f32>(capped(v.x), capped(v.y), capped(v.z), capped(v.w)); }

// Two vectors an invocation, as in both functions that follow: 8 invocations beside each other read 32 columns.
fn stage_queries(tile: vec2<u32>, kv_head: u32, chunk: u32, lane: u32) {
    let v = lane % 8u;
    let column = chunk * 32u + v * 4u;
    for (var query = lane / 8u; query < QUERIES; query += 16u) {
        let x = constants.x + query_row(tile, query) * constants.x_stride + query_head(kv_head, query) * HEAD_DIM;
        queries[v * QUERIES + (query ^ v)] = load_column(x, column);
    }
}

// A head's width may be no multiple of 32.
fn load_column(x: u32, column: u32) -> vec4<f32> {
    if (column >= HEAD_DIM) { return vec4<f32>(0.0); }
    return load4(x + column);
}

fn stage_keys(table: u32, block: u32, last: u32, kv_head: u32, chunk: u32, lane: u32) {
    let v = lane % 8u;
    for (var i = lane / 8u; i < BLOCK_TOKENS; i += 16u) {
        // The invocation that scores positions 4l to 4l + 3 reads them 8 places apart.
        let place = (i % 4u) * 8u + i / 4u;
        cached[v * BLOCK_TOKENS + (place ^ v)] = cached_column(table, block, i, last, 0u, kv_head, chunk * 32u + v * 4u);
    }
}

fn stage_values(table: u32, block: u32, last: u32, kv_head: u32, chunk: u32, lane: u32) {
    let v = lane % 8u;
    for (var i = lane / 8u; i < BLOCK_TOKENS; i += 16u) {
        cached[i * 8u + v] = cached_column(table, block, i, last, 1u, kv_head, chunk * 32u + v * 4u);
    }
}

// What lies past the tile's last position was written by nobody; it is not seen, and the last is read instead.
fn cached_column(table: u32, block: u32, i: u32, last: u32, which: u32, kv_head: u32, column: u32) -> vec4<f32> {
    if (column >= HEAD_DIM) { return vec4<f32>(0.0); }
    let in_block = min(i, last - block * BLOCK_TOKENS);
    let slot = batch[table + block] * BLOCK_TOKENS + in_block;
    return kv_read4(kv_index(slot, which, kv_head) + column);
}

// Adds the products of the 32 staged columns, of each query with 4 keys.
fn score(scores: Two, own: u32, l: u32) -> Two {
    var two = scores;
    two = score_vector(two, 0u, own, l);
    two = score_vector(two, 1u, own, l);
    two = score_vector(two, 2u, own, l);
    two = score_vector(two, 3u, own, l);
    two = score_vector(two, 4u, own, l);
    two = score_vector(two, 5u, own, l);
    two = score_vector(two, 6u, own, l);
    return score_vector(two, 7u, own, l);
}

fn score_vector(scores: Two, v: u32, own: u32, l: u32) -> Two {
    let qa = queries[v * QUERIES + (own ^ v)];
    let qb = queries[v * QUERIES + ((own + 16u) ^ v)];
    let k0 = cached[v * BLOCK_TOKENS + (l ^ v)];
    let k1 = cached[v * BLOCK_TOKENS + ((8u + l) ^ v)];
    let k2 = cached[v * BLOCK_TOKENS + ((16u + l) ^ v)];
    let k3 = cached[v * BLOCK_TOKENS + ((24u + l) ^ v)];
    let x = vec4<f32>(k0.x, k1.x, k2.x, k3.x);
    let y = vec4<f32>(k0.y, k1.y, k2.y, k3.y);
    let z = vec4<f32>(k0.z, k1.z, k2.z, k3.z);
    let w = vec4<f32>(k0.w, k1.w, k2.w, k3.w);
    return Two(columns(qa, x, y, z, w, scores.a), columns(qb, x, y, z, w, scores.b));
}

// sums[i] += q · ki, column by column; and of values, sums + Σ weight · value, position by position.
fn columns(q: vec4<f32>, x: vec4<f32>, y: vec4<f32>, z: vec4<f32>, w: vec4<f32>, sums: vec4<f32>) -> vec4<f32> {
    var s = fma(vec4<f32>(q.x), x, sums);
    s = fma(vec4<f32>(q.y), y, s);
    s = fma(vec4<f32>(q.z), z, s);
    return fma(vec4<f32>(q.w), w, s);
}

fn greatest_in_block(query: u32) -> f32 {
    var greatest = greatest_of[query * 8u];
    for (var i = 1u; i < 8u; i++) { greatest = max(greatest, greatest_of[query * 8u + i]); }
    return greatest;
}

fn weight_in_block(query: u32) -> f32 {
    var sum = weights[query * 8u];
    for (var i = 1u; i < 8u; i++) { sum += weights[query * 8u + i]; }
    return (sum.x + sum.y) + (sum.z + sum.w);
}

// Adds the block's values of 32 columns, of which the invocation owns the l-th four.
fn weigh(sums: Two, own: u32, l: u32) -> Two {
    var two = sums;
    for (var i = 0u; i < 8u; i++) {
        let v0 = cached[i * 32u + l];
        let v1 = cached[i * 32u + 8u + l];
        let v2 = cached[i * 32u + 16u + l];
        let v3 = cached[i * 32u + 24u + l];
        two.a = columns(weights[own * 8u + i], v0, v1, v2, v3, two.a);
        two.b = columns(weights[(own + 16u) * 8u + i], v0, v1, v2, v3, two.b);
    }
    return two;
}

fn emit_columns(two: Two, total: vec2<f32>, tile: vec2<u32>, kv_head: u32, chunk: u32, lane: u32) {
    let column = chunk * 32u + (lane % 8u) * 4u;
    if (column >= HEAD_DIM) { return; }
    emit_query(two.a / total.x, tile, kv_head, lane / 8u, column);
    emit_query(two.b / total.y, tile, kv_head, lane / 8u + 16u, column);
}

fn emit_query(v: vec4<f32>, tile: vec2<u32>, kv_head: u32, query: u32, column: u32) {
    if (query / heads_a_key() >= tile.y) { return; }
    let y = constants.y + query_row(tile, query) * constants.y_stride + query_head(kv_head, query) * HEAD_DIM + column;
    outputs[y] = v.x;
    outputs[y + 1u] = v.y;
    outputs[y + 2u] = v.z;
    outputs[y + 3u] = v.w;
}
