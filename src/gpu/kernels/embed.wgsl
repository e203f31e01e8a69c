// hidden = the token's row of the embedding, and that of the position where it is bound too, or plus the latter alone; one
// invocation decodes a block of 32 values.

@compute @workgroup_size(WORKGROUP)
fn embed(@builtin(global_invocation_id) id: vec3<u32>) {
    let block = id.x;
    let i = id.y;
    if (block >= constants.n_blocks || i >= n_kind_rows()) { return; }
    let row = first_kind_row() + i;
    let index = select(token_of(row), position_of(row), constants.adds == 1u);
    if (index < constants.first_output || index - constants.first_output >= constants.segment_rows) { return; }
    let source = row_start(index - constants.first_output) + block;
    let words = block_words(source);
    let scale = block_scale(source);
    let y = constants.y + row * constants.y_stride + block * 32u;
    let position = (position_of(row) * constants.n_blocks + block) * 32u;
    for (var j = 0u; j < 4u; j++) {
        let values = decode8(words, scale, j);
        store4(y + 4u * j, with_position(values.lo * constants.value, position + 4u * j));
        store4(y + 16u + 4u * j, with_position(values.hi * constants.value, position + 16u + 4u * j));
    }
}

fn store4(i: u32, v: vec4<f32>) {
    var sum = v;
    if (constants.adds == 1u) { sum += vec4<f32>(outputs[i], outputs[i + 1u], outputs[i + 2u], outputs[i + 3u]); }
    outputs[i] = sum.x;
    outputs[i + 1u] = sum.y;
    outputs[i + 2u] = sum.z;
    outputs[i + 3u] = sum.w;
}
