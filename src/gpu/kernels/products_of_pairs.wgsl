// Two columns a multiplication: codes 0 and 2, or 1 and 3, of a word in its halves, less CENTERS, and the activations they
// meet in the other order.
fn even_codes(word: u32) -> u32 { return (word & 0x00ff00ffu) - CENTERS; }

fn odd_codes(word: u32) -> u32 { return ((word >> 8u) & 0x00ff00ffu) - CENTERS; }

// Of a sum of products, whose lower half is a signed number to be rounded away.
fn upper_half(sum: u32) -> i32 { return bitcast<i32>(sum + 0x8000u) >> 16u; }
