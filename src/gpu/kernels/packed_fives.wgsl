// Codes of five bits as bytes: Q5_0, Q5_1, Q5_K.

fn packed(words: Words) -> Packed {
    let fifth = vec4<u32>(words.fifth) >> EACH_NIBBLE;
    return Packed(
        low_nibbles(words.nibbles) | (spread_to_bytes(fifth) << vec4<u32>(4u)),
        high_nibbles(words.nibbles) | (spread_to_bytes(fifth >> vec4<u32>(16u)) << vec4<u32>(4u)),
    );
}
