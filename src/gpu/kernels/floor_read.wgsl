// Reads all data once and keeps nothing of it: how fast memory can be read.

@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;      // (n), n a multiple of 4 · invocations
@group(0) @binding(1) var<storage, read_write> result: array<u32>;    // (1): written never, as the compiler cannot know

@compute @workgroup_size(256)
fn floor_read(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let stride = groups.x * 256u;
    let n = arrayLength(&data);
    var mixed = vec4<u32>(0u);
    for (var i = id.x; i < n; i += stride * 4u) {
        // Four loads on their way at once.
        let a = data[i];
        let b = data[i + stride];
        let c = data[i + stride * 2u];
        let d = data[i + stride * 3u];
        mixed ^= (a ^ b) + (c ^ d);
    }
    // The data are the hashes of a counter, never this.
    if (all(mixed == vec4<u32>(0x12345678u))) { result[0] = mixed.x; }
}
