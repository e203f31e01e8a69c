// A pair is two values that rotate together; q goes to the outputs, k and v to the cache, each pair adjacent.
// The cache keeps k in the order of its pairs, as q is kept: a dot product does not see a permutation of both.

const HALF: u32 = HEAD_DIM / 2u;

fn n_pairs() -> u32 { return constants.segment_rows / 2u; }

fn weight_rows(p: u32) -> vec2<u32> {
    let head = (constants.first_output / 2u + p) / HALF;
    if (constants.split_half == 1u && head < constants.n_heads + constants.n_kv_heads) {
        let first = p / HALF * HEAD_DIM + p % HALF;
        return vec2<u32>(first, first + HALF);
    }
    return vec2<u32>(2u * p, 2u * p + 1u);
}

fn emit(row: u32, p: u32, a: f32, b: f32) {
    let pair = constants.first_output / 2u + p;
    let head = pair / HALF;
    let i = pair % HALF;
    if (head >= constants.n_heads + constants.n_kv_heads) {
        write_pair(row, 1u, head - constants.n_heads - constants.n_kv_heads, i, a, b);
        return;
    }
    let angle = constants.table + (position_of(row) * HALF + i) * 2u;
    let cosine = tables[angle];
    let sine = tables[angle + 1u];
    let rotated_a = fma(a, cosine, -(b * sine));
    let rotated_b = fma(a, sine, b * cosine);
    if (head >= constants.n_heads) {
        write_pair(row, 0u, head - constants.n_heads, i, rotated_a, rotated_b);
        return;
    }
    let y = constants.y + row * constants.y_stride + 2u * pair;
    outputs[y] = rotated_a;
    outputs[y + 1u] = rotated_b;
}

// Rows that only fill a tile have no slot.
fn write_pair(row: u32, which: u32, kv_head: u32, i: u32, a: f32, b: f32) {
    let slot = slot_of(row);
    if (slot == NO_SLOT) { return; }
    kv_write(kv_index(slot, which, kv_head) + 2u * i, a, b);
}
