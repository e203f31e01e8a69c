// A head of keys or values goes to the cache in 8 bits: its greatest becomes 127. The invocation writes every `step`-th
// four from `first` on.

fn cache_head(head: Head, inverse: f32, which: u32, kv_head: u32, first: u32, step: u32) {
    var own = 0.0;
    for (var i = first; i < HALF; i += step) {
        let pair = abs(head_pair(head, inverse, i));
        own = max(own, max(pair.x, pair.y));
    }
    let greatest = greatest_of_head(own, first);
    let slot = slot_of(head.row);
    if (slot == NONE) { return; }
    let to = kv_index(slot, which, kv_head);
    let factor = select(127.0 / greatest, 0.0, greatest == 0.0);
    for (var four = first; four < HALF / 2u; four += step) {
        let v = vec4<f32>(head_pair(head, inverse, 2u * four), head_pair(head, inverse, 2u * four + 1u)) * factor;
        kv_write4(to + 4u * four, clamp(round(v), vec4<f32>(-127.0), vec4<f32>(127.0)));
    }
    if (first == 0u) { kv_write_scale(to, greatest / 127.0); }
}
