// Codes of six bits as bytes: Q6_K.

fn packed(words: Words) -> Packed {
    return Packed(
        low_nibbles(words.nibbles) | (spread_pairs_to_bytes(vec4<u32>(words.upper.x) >> EACH_BYTE) << vec4<u32>(4u)),
        high_nibbles(words.nibbles) | (spread_pairs_to_bytes(vec4<u32>(words.upper.y) >> EACH_BYTE) << vec4<u32>(4u)),
    );
}
