// Twice the numbers that four bits stand for as signed bytes: MXFP4.

fn packed(words: Words) -> Packed {
    return Packed(
        vec4<u32>(number_bytes(words.x), number_bytes(words.y), number_bytes(words.z), number_bytes(words.w)),
        vec4<u32>(
            number_bytes(words.x >> 4u),
            number_bytes(words.y >> 4u),
            number_bytes(words.z >> 4u),
            number_bytes(words.w >> 4u),
        ),
    );
}

// Of the low halves of a word's bytes.
fn number_bytes(word: u32) -> u32 { return bytes_of(mxfp4_numbers(spread_bytes(word))); }
