// The numbers that four bits stand for as signed bytes: IQ4_NL, IQ4_XS.

// Of the low halves of a word's bytes.
fn number_bytes(word: u32) -> u32 { return bytes_of(iq4_numbers(spread_bytes(word))); }
