// Activations become packed blocks; one invocation quantizes 32 values of a row.

@compute @workgroup_size(WORKGROUP)
fn quantize(@builtin(global_invocation_id) id: vec3<u32>) {
    let block = id.x;
    let i = id.y;
    if (block >= constants.n_blocks || i >= n_kind_rows()) { return; }
    let row = first_kind_row() + i;
    quantize_block(constants.y + row * constants.y_stride + block * GROUP_WORDS, constants.x + row * constants.x_stride + block * 32u);
}

fn value4(k: u32) -> vec4<f32> { return load4(k); }
