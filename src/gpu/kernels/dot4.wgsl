// Products of four signed bytes with four others, added up.
fn dot4(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b); }
