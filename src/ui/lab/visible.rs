//! Tokens as a person sees them: blanks and what is no whole character included.

/// A text whose blanks and controls are seen.
pub(super) fn visible(text: &str) -> String {
    text.chars().map(visible_char).collect()
}

fn visible_char(character: char) -> char {
    match character {
        ' ' => '␣',
        '\n' => '⏎',
        '\t' => '⇥',
        '\r' => '␍',
        '\u{a0}' => '⍽',
        _ if character.is_control() => '�',
        _ => character,
    }
}

/// What a token's bytes stand for, or the bytes themselves where they are no whole characters.
pub(super) fn of_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok("") => "∅".to_owned(),
        Ok(text) => visible(text),
        Err(_) => format!("‹{}›", hex(bytes)),
    }
}

/// Bytes as two digits each.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_bytes_are_seen() {
        assert_eq!(visible(" a\n\tb"), "␣a⏎⇥b");
        assert_eq!(of_bytes("é ".as_bytes()), "é␣");
        assert_eq!(of_bytes(&[0xe2, 0x82]), "‹E2 82›");
        assert_eq!((of_bytes(&[]), hex(&[]), hex(&[0, 255])), ("∅".into(), String::new(), "00 FF".into()));
    }
}
