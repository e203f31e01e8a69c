// Next to nothing, but after the one before it: what a dispatch costs that has to wait for another's result.

@group(0) @binding(0) var<storage, read_write> result: array<u32>;   // (1): how often it ran

@compute @workgroup_size(1)
fn floor_dispatch() { result[0] += 1u; }
