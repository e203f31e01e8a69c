// Sums over the invocations of a workgroup, through its memory: first over every 8th of them, many such sums at once, then
// over the 8 that are left.

const STRIDE: u32 = LANES + 8u;   // 8 against bank conflicts

var<workgroup> partial: array<f32, N_SUMS * STRIDE>;   // (sums, invocations)

fn begin(lane: u32) {}

// An invocation's part of the s-th sum.
fn keep(s: u32, lane: u32, own: f32) { partial[s * STRIDE + lane] = own; }

// Makes sums first … end - 1 known to all invocations.
fn share(first: u32, end: u32, lane: u32) {
    workgroupBarrier();
    for (var i = 8u * first + lane; i < 8u * end; i += LANES) {
        let to = i / 8u * STRIDE + i % 8u;
        var sum = partial[to];
        for (var other = 8u; other < LANES; other += 8u) { sum += partial[to + other]; }
        partial[to] = sum;
    }
    workgroupBarrier();
}

fn total(s: u32) -> f32 {
    let at = s * STRIDE;
    let low = (partial[at] + partial[at + 1u]) + (partial[at + 2u] + partial[at + 3u]);
    return low + ((partial[at + 4u] + partial[at + 5u]) + (partial[at + 6u] + partial[at + 7u]));
}
