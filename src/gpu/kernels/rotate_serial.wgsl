// Norm and rotation of one head of q, k or v by one invocation: for software adapters.

@compute @workgroup_size(WORKGROUP)
fn rotate_serial(@builtin(global_invocation_id) id: vec3<u32>) {
    let n_heads = constants.n_heads + 2u * constants.n_kv_heads;
    let i = id.x / n_heads;
    let head = id.x % n_heads;
    if (i >= n_kind_rows()) { return; }
    let row = first_kind_row() + i;
    let x = constants.x + row * constants.x_stride + head * HEAD_DIM;
    var squares = vec4<f32>(0.0);
    for (var d = 0u; d < HEAD_DIM; d += 4u) {
        let v = load4(x + d);
        squares = fma(v, v, squares);
    }
    let mean = ((squares.x + squares.y) + (squares.z + squares.w)) / f32(HEAD_DIM);
    emit_head(Head(row, head, x), 1.0 / sqrt(mean + constants.value), 0u, 1u);
}

fn greatest_of_head(own: u32, lane: u32) -> u32 { return own; }
