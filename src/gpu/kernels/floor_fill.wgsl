// Fills memory with what nothing compresses: the hash of each word's place.

@group(0) @binding(0) var<storage, read_write> data: array<vec4<u32>>;   // (n)

fn hash(x: u32) -> u32 {
    let y = (x ^ (x >> 16u)) * 0x7feb352du;
    let z = (y ^ (y >> 15u)) * 0x846ca68bu;
    return z ^ (z >> 16u);
}

@compute @workgroup_size(256)
fn floor_fill(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&data); i += groups.x * 256u) {
        let x = i * 4u;
        data[i] = vec4<u32>(hash(x), hash(x + 1u), hash(x + 2u), hash(x + 3u));
    }
}
