// Q5_K: as Q4_K, and after the scales a word a group of fifth bits.

fn block_words(block: u32) -> Words { return Words(quants[block], scales[block / 8u * 14u + 6u + (block & 7u)]); }

fn block_scale(block: u32) -> Scale {
    let first = block / 8u * 14u;
    let pair = scale_pair(first, block);
    let d = bitcast<f32>(scales[first + 4u]) * unsigned_number(pair);
    return Scale(d, d * 0.0625, -bitcast<f32>(scales[first + 5u]) * unsigned_number(pair >> 8u));
}
