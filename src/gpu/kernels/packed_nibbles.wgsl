// Codes of four bits as bytes: Q4_0, Q4_1, Q4_K.

fn packed(words: Words) -> Packed { return Packed(low_nibbles(words), high_nibbles(words)); }
