// hidden = the token's row of the embedding; one invocation decodes a block of 32 values.

@compute @workgroup_size(WORKGROUP)
fn embed(@builtin(global_invocation_id) id: vec3<u32>) {
    let block = id.x;
    let i = id.y;
    if (block >= constants.n_blocks || i >= n_kind_rows()) { return; }
    let row = first_kind_row() + i;
    let token = token_of(row);
    if (token < constants.first_output || token - constants.first_output >= constants.segment_rows) { return; }
    let source = row_start(token - constants.first_output) + block;
    let words = block_words(source);
    let scale = block_scale(source);
    let y = constants.y + row * constants.y_stride + block * 32u;
    for (var j = 0u; j < 4u; j++) {
        let values = decode8(words, scale, j);
        store4(y + 4u * j, values.lo * constants.value);
        store4(y + 16u + 4u * j, values.hi * constants.value);
    }
}

fn store4(i: u32, v: vec4<f32>) {
    outputs[i] = v.x;
    outputs[i + 1u] = v.y;
    outputs[i + 2u] = v.z;
    outputs[i + 3u] = v.w;
}
