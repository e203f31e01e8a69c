// Twice the numbers that four bits stand for as signed bytes: MXFP4.

// Of the low halves of a word's bytes.
fn number_bytes(word: u32) -> u32 { return bytes_of(mxfp4_numbers(spread_bytes(word))); }
