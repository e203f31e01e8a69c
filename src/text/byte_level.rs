//! GPT-2's alphabet of bytes: each byte is written as one printable character, so that a vocabulary can be text.
//! The two directions are exact inverses.

/// Characters of the alphabet are below this.
const N_CHARS: usize = 0x144;

/// Bytes that stand for themselves, read as Latin-1.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// The character of each byte; the others take U+0100 and up, in order.
pub(super) const BYTE_TO_CHAR: [char; 256] = {
    let mut table = ['\0'; 256];
    let (mut byte, mut next) = (0, 0x100);
    while byte < 256 {
        let code = if is_printable(byte as u8) {
            byte as u32
        } else {
            next += 1;
            next - 1
        };
        table[byte] = match char::from_u32(code) {
            Some(letter) => letter,
            None => panic!("codes are below 0x144"),
        };
        byte += 1;
    }
    table
};

/// The byte of each character of the alphabet.
const CHAR_TO_BYTE: [Option<u8>; N_CHARS] = {
    let mut table = [None; N_CHARS];
    let mut byte = 0;
    while byte < 256 {
        table[BYTE_TO_CHAR[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    table
};

/// Appends the bytes of `text` in the alphabet.
pub(super) fn encode_into(text: &str, out: &mut String) {
    out.extend(text.bytes().map(|byte| BYTE_TO_CHAR[usize::from(byte)]));
}

/// The bytes a token spells; a token that is not written in the alphabet spells itself.
pub(super) fn decode(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> =
        token.chars().map(|letter| CHAR_TO_BYTE.get(letter as usize).copied().flatten()).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_letters() {
        for (byte, letter) in
            [(b' ', 'Ġ'), (b'\n', 'Ċ'), (0, 'Ā'), (0x7F, 'ġ'), (0xAD, 'Ń'), (b'a', 'a'), (0xE9, 'é')]
        {
            assert_eq!(BYTE_TO_CHAR[usize::from(byte)], letter, "byte {byte:#x}");
        }
    }

    #[test]
    fn every_byte_comes_back() {
        for byte in 0..=255u8 {
            assert_eq!(decode(&BYTE_TO_CHAR[usize::from(byte)].to_string()), [byte]);
        }
    }

    #[test]
    fn what_is_not_in_the_alphabet_spells_itself() {
        assert_eq!(decode("日本"), "日本".as_bytes());
        assert_eq!(decode("a b"), b"a b", "a bare space is not in the alphabet");
    }
}
