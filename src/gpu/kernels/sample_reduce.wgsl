// One workgroup samples a row, its invocations sharing the vocabulary.

const LANES: u32 = 256u;

var<workgroup> keys_of_lanes: array<u32, LANES>;
var<workgroup> ids_of_lanes: array<u32, LANES>;
var<workgroup> sums_of_lanes: array<vec3<f32>, LANES>;
var<workgroup> decision: u32;

@compute @workgroup_size(LANES)
fn sample_reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if (group.y >= n_samples()) { return; }
    sample_row(read_row(group.y), lane);
}

fn best_of_all(own: Place, lane: u32) -> Place {
    workgroupBarrier();
    keys_of_lanes[lane] = own.key;
    ids_of_lanes[lane] = own.id;
    var best = own;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) {
            let other = Place(keys_of_lanes[lane + step], ids_of_lanes[lane + step]);
            if (is_before(other, best)) {
                best = other;
                keys_of_lanes[lane] = other.key;
                ids_of_lanes[lane] = other.id;
            }
        }
    }
    workgroupBarrier();
    return Place(keys_of_lanes[0], ids_of_lanes[0]);
}

// Sums over all invocations, added pairwise.
fn total_of_all(own: vec3<f32>, lane: u32) -> vec3<f32> {
    workgroupBarrier();
    sums_of_lanes[lane] = own;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) { sums_of_lanes[lane] += sums_of_lanes[lane + step]; }
    }
    workgroupBarrier();
    return sums_of_lanes[0];
}

// What all invocations have found alike, so that it may decide whether they meet at a barrier.
fn same_for_all(own: bool, lane: u32) -> bool {
    workgroupBarrier();
    if (lane == 0u) { decision = u32(own); }
    return workgroupUniformLoad(&decision) == 1u;
}
