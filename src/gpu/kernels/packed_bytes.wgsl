fn packed(words: Words) -> Packed { return Packed(words.lo, words.hi); }
