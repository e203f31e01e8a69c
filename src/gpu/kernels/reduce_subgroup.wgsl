// Sums over the invocations of a workgroup: over each subgroup at once, then over the subgroups through its memory.
// Which invocations share a subgroup is not known beforehand, and subgroups have no number. So the first of each marks its
// place, and a subgroup's number is that of marks before its own: right for any mapping, and always the same.

const MOST: u32 = LANES / 4u;   // subgroups, of at least 4 invocations

var<workgroup> marks: array<atomic<u32>, LANES / 32u>;   // a bit an invocation
var<workgroup> partial: array<f32, N_SUMS * MOST>;       // (sums, subgroups)
var<private> leads: bool;
var<private> number: u32;
var<private> n_subgroups: u32;

fn begin(lane: u32) {
    let first = subgroupMin(lane);
    leads = first == lane;
    if (leads) { atomicOr(&marks[lane / 32u], 1u << (lane % 32u)); }
    workgroupBarrier();
    for (var i = 0u; i < LANES / 32u; i++) {
        let word = atomicLoad(&marks[i]);
        n_subgroups += countOneBits(word);
        if (i < first / 32u) { number += countOneBits(word); }
        if (i == first / 32u) { number += countOneBits(word & ((1u << (first % 32u)) - 1u)); }
    }
}

// An invocation's part of the s-th sum.
fn keep(s: u32, lane: u32, own: f32) {
    let sum = subgroupAdd(own);
    if (leads) { partial[s * MOST + number] = sum; }
}

// Makes sums first … end - 1 known to all invocations.
fn share(first: u32, end: u32, lane: u32) { workgroupBarrier(); }

fn total(s: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < n_subgroups; i++) { sum += partial[s * MOST + i]; }
    return sum;
}
