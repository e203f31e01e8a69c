fn packed(words: Words) -> Packed { return Packed(low_nibbles(words), high_nibbles(words)); }
