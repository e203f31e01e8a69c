// Codes of two bits as bytes: Q2_K.

fn packed(words: Words) -> Packed {
    return Packed(
        spread_pairs_to_bytes(vec4<u32>(words.x) >> EACH_BYTE),
        spread_pairs_to_bytes(vec4<u32>(words.y) >> EACH_BYTE),
    );
}
