// Codes that are signed bytes already: Q8_0.

fn packed(words: Words) -> Packed { return Packed(words.lo, words.hi); }
