// Noise where a kernel would write its outputs, as of a driver that compiles it wrongly; the invocations of the grid share
// the values of each row. Where there are no rows of activations, what is sampled is noise.

@compute @workgroup_size(WORKGROUP)
fn noise(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row_len = groups.x * WORKGROUP;
    let first = (id.z * groups.y + id.y) * row_len + id.x;
    let n_invocations = row_len * groups.y * groups.z;
    for (var i = 0u; i < n_kind_rows(); i++) {
        let y = constants.y + (first_kind_row() + i) * constants.y_stride;
        for (var k = first; k < constants.y_stride; k += n_invocations) {
            outputs[y + k] = Output(f32(hash(y + k) % 2001u) - 1000.0);
        }
    }
    if (constants.y_stride == 0u) {
        for (var k = first; k < arrayLength(&kv); k += n_invocations) {
            kv[k] = hash(k) % constants.segment_rows;
        }
    }
}

// Bits that follow no rule one would see (the finalizer of MurmurHash3, Appleby 2011).
fn hash(i: u32) -> u32 {
    let a = (i ^ (i >> 16u)) * 0x85ebca6bu;
    let b = (a ^ (a >> 13u)) * 0xc2b2ae35u;
    return b ^ (b >> 16u);
}
