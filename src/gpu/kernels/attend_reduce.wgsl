// Attention of one row and head by one workgroup, online softmax over WORKGROUP positions at a time: on real GPUs.
// The groups of positions are fixed multiples of WORKGROUP, so the order of addition depends only on the position.

const PER_LANE: u32 = (HEAD_DIM + WORKGROUP - 1u) / WORKGROUP;

var<workgroup> query: array<vec4<f32>, HEAD_DIM / 4u>;
var<workgroup> scores: array<f32, WORKGROUP>;     // of this group's positions
var<workgroup> places: array<u32, WORKGROUP>;     // where their keys lie
var<workgroup> partial: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn attend_reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = group.x;
    let i = group.y;
    if (i >= n_kind_rows()) { return; }
    let row = first_kind_row() + i;
    let kv_head = head / (constants.n_heads / constants.n_kv_heads);
    let q = constants.x + row * constants.x_stride + head * HEAD_DIM;
    for (var d = lane; d < HEAD_DIM / 4u; d += WORKGROUP) { query[d] = load4(q + 4u * d); }
    let table = block_table_of(row);
    let last = position_of(row);
    let n_positions = last + 1u;
    let seen = first_seen(last);
    let to_values = BLOCK_TOKENS * constants.n_kv_heads * HEAD_DIM;
    var greatest = -3.0e38;
    var total = 0.0;
    var sums = array<f32, PER_LANE>();
    for (var first = seen / WORKGROUP * WORKGROUP; first < n_positions; first += WORKGROUP) {
        let position = min(first + lane, n_positions - 1u);
        let place = kv_index(batch[table + position / BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS, 0u, kv_head);
        workgroupBarrier();
        var dot4 = vec4<f32>(0.0);
        for (var d = 0u; d < HEAD_DIM / 4u; d++) { dot4 = fma(query[d], kv_read4(place + 4u * d), dot4); }
        let is_seen = first + lane >= seen && first + lane < n_positions;
        let score = select(-3.0e38, capped(((dot4.x + dot4.y) + (dot4.z + dot4.w)) * constants.value), is_seen);
        places[lane] = place;
        partial[lane] = score;
        for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
            workgroupBarrier();
            if (lane < step) { partial[lane] = max(partial[lane], partial[lane + step]); }
        }
        workgroupBarrier();
        let greater = max(greatest, partial[0]);
        workgroupBarrier();
        let weight = exp(score - greater);
        scores[lane] = weight;
        partial[lane] = weight;
        for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
            workgroupBarrier();
            if (lane < step) { partial[lane] += partial[lane + step]; }
        }
        workgroupBarrier();
        let shrink = exp(greatest - greater);
        greatest = greater;
        total = fma(total, shrink, partial[0]);
        let n = min(WORKGROUP, n_positions - first);
        for (var own = 0u; own < PER_LANE; own++) {
            let d = own * WORKGROUP + lane;
            if (d < HEAD_DIM) {
                var sum = sums[own] * shrink;
                for (var s = 0u; s < n; s++) { sum = fma(scores[s], kv_read(places[s] + to_values + d), sum); }
                sums[own] = sum;
            }
        }
    }
    let y = constants.y + row * constants.y_stride + head * HEAD_DIM;
    for (var own = 0u; own < PER_LANE; own++) {
        let d = own * WORKGROUP + lane;
        if (d < HEAD_DIM) { outputs[y + d] = sums[own] / total; }
    }
}
