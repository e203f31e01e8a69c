//! Numbers that look random from a seed and a place, without a state: the draw of a token is the same on every device,
//! in every order, however often it is made.
//!
//! Invariant: a number depends on nothing but the seed, the place in the output and the token.

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011): four words for a counter and a key.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut key_a, mut key_b]) = (counter, key);
    for _ in 0..10 {
        let left = u64::from(a) * 0xd251_1f53;
        let right = u64::from(c) * 0xcd9e_8d57;
        a = (right >> 32) as u32 ^ b ^ key_a;
        c = (left >> 32) as u32 ^ d ^ key_b;
        (b, d) = (right as u32, left as u32);
        key_a = key_a.wrapping_add(0x9e37_79b9);
        key_b = key_b.wrapping_add(0xbb67_ae85);
    }
    [a, b, c, d]
}

/// The words of tokens `4 · group` to `4 · group + 3` at a place in the output.
pub fn words_of(seed: u64, place: u32, group: u32) -> [u32; 4] {
    philox4x32([group, place, 0, 0], [seed as u32, (seed >> 32) as u32])
}

/// A word as a number in (0, 1).
pub fn uniform(word: u32) -> f64 {
    (f64::from(word) + 0.5) / 4_294_967_296.0
}

/// A draw from the standard Gumbel distribution, which is large where `uniform` is small: all 32 bits of a word count
/// there, so that equals among a large vocabulary hardly ever tie.
pub fn gumbel(uniform: f64) -> f64 {
    -(-(-uniform).ln_1p()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // kat_vectors of Random123, the authors' library.
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let table = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (pi, [0xa409_3822, 0x299f_31d0], [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
        ];
        for (counter, key, expected) in table {
            assert_eq!(philox4x32(counter, key), expected, "{counter:x?}, {key:x?}");
        }
    }

    #[test]
    fn every_word_has_a_finite_draw() {
        for word in [0, 1, u32::MAX / 2, u32::MAX - 1, u32::MAX] {
            assert!(gumbel(uniform(word)).is_finite(), "{word}");
        }
        assert!(gumbel(uniform(0)) > gumbel(uniform(1)), "the tail has every bit");
    }
}
