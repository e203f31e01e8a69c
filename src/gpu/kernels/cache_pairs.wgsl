// A head of keys or values goes to the cache pair by pair; the invocation writes every `step`-th from `first` on.

fn cache_head(head: Head, inverse: f32, which: u32, kv_head: u32, first: u32, step: u32) {
    for (var i = first; i < HALF; i += step) {
        let pair = head_pair(head, inverse, i);
        write_pair(head.row, which, kv_head, i, pair.x, pair.y);
    }
}
