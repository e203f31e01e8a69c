// Codes of three bits as bytes: Q3_K.

fn packed(words: Words) -> Packed {
    let third = vec4<u32>(words.third) >> EACH_NIBBLE;
    return Packed(
        spread_pairs_to_bytes(vec4<u32>(words.low.x) >> EACH_BYTE) | (spread_to_bytes(third) << vec4<u32>(2u)),
        spread_pairs_to_bytes(vec4<u32>(words.low.y) >> EACH_BYTE)
            | (spread_to_bytes(third >> vec4<u32>(16u)) << vec4<u32>(2u)),
    );
}
