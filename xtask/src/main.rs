//! `cargo xtask serve` and `cargo xtask test`: everything between a fresh clone and a running page.
fn main() {}
