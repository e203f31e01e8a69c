// A group whose four bits stand for numbers of a table, two to a byte.

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
