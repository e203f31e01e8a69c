// Adds up what `attend_split` left of a row and head, span by span; one invocation has four values of the head.

@compute @workgroup_size(WORKGROUP)
fn attend_merge(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = group.x;
    if (group.y >= n_kind_rows() || 4u * lane >= HEAD_DIM) { return; }
    let row = first_kind_row() + group.y;
    let last = position_of(row);
    let span = RANGE * constants.n_ranges;
    let n_spans = last / span - first_seen(last) / span + 1u;
    let x = constants.x + row * constants.x_stride + head * (constants.x_stride / constants.n_heads);
    var greatest = -3.0e38;
    for (var i = 0u; i < n_spans; i++) { greatest = max(greatest, load4(span_at(x, i) + HEAD_DIM).x); }
    var total = 0.0;
    var sum = vec4<f32>(0.0);
    for (var i = 0u; i < n_spans; i++) {
        let of_span = load4(span_at(x, i) + HEAD_DIM);   // its greatest score, and the sum of its weights
        let shrink = exp(of_span.x - greatest);
        total = fma(of_span.y, shrink, total);
        sum = fma(load4(span_at(x, i) + 4u * lane), vec4<f32>(shrink), sum);
    }
    let y = constants.y + row * constants.y_stride + head * HEAD_DIM + 4u * lane;
    outputs[y] = sum.x / total;
    outputs[y + 1u] = sum.y / total;
    outputs[y + 2u] = sum.z / total;
    outputs[y + 3u] = sum.w / total;
}

fn span_at(x: u32, i: u32) -> u32 { return x + i * (HEAD_DIM + 4u); }
