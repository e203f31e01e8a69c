// A head of keys or values goes to the cache in 8 bits: its greatest becomes 127. The invocation writes every `step`-th
// four from `first` on.

fn cache_head(head: Head, inverse: f32, which: u32, kv_head: u32, first: u32, step: u32) {
    // By their bits: what is no number must not be dropped, as a maximum of floats would.
    var own = 0u;
    for (var i = first; i < HALF; i += step) {
        let pair = bitcast<vec2<u32>>(abs(head_pair(head, inverse, i)));
        own = max(own, max(pair.x, pair.y));
    }
    let bits = greatest_of_head(own, first);
    let greatest = bitcast<f32>(bits);
    // What is smaller than 1e-30 has no inverse in f32.
    let is_zero = bits < bitcast<u32>(1e-30f);
    let slot = slot_of(head.row);
    if (slot == NONE) { return; }
    let to = kv_index(slot, which, kv_head);
    let factor = select(127.0 / greatest, 0.0, is_zero);
    for (var four = first; four < HALF / 2u; four += step) {
        let v = vec4<f32>(head_pair(head, inverse, 2u * four), head_pair(head, inverse, 2u * four + 1u)) * factor;
        kv_write4(to + 4u * four, clamp(round(v), vec4<f32>(-127.0), vec4<f32>(127.0)));
    }
    if (first == 0u) { kv_write_scale(to, select(greatest / 127.0, 0.0, is_zero)); }
}
