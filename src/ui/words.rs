//! Numbers as a person reads them.

/// Bytes in decimal units, such as `98.4 MB`.
pub(crate) fn bytes(n_bytes: u64) -> String {
    let mut value = n_bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            let decimals = if value < 99.95 && unit != "B" { 1 } else { 0 };
            return format!("{value:.decimals$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// How long something still takes, such as `8 s left` or `2 min 5 s left`.
pub(crate) fn time_left(secs: f64) -> String {
    let secs = secs.max(0.0).ceil();
    if secs < 60.0 {
        format!("{secs} s left")
    } else if secs < 3600.0 {
        format!("{} min {} s left", (secs / 60.0).floor(), secs % 60.0)
    } else {
        format!("{} h {} min left", (secs / 3600.0).floor(), ((secs % 3600.0) / 60.0).floor())
    }
}

/// Tokens a second, with one decimal below a hundred.
pub(crate) fn speed(tokens_per_sec: f64) -> String {
    let decimals = if tokens_per_sec < 99.95 { 1 } else { 0 };
    format!("{tokens_per_sec:.decimals$} tok/s")
}

/// How long something took, such as `420 ms` or `1.3 s`.
pub(crate) fn time(ms: f64) -> String {
    match ms {
        ..999.5 => format!("{ms:.0} ms"),
        ..99_950.0 => format!("{:.1} s", ms / 1000.0),
        _ => format!("{:.0} s", ms / 1000.0),
    }
}

/// How long something took, to the second, such as `12 s` or `2 min 5 s`.
pub(crate) fn seconds(ms: f64) -> String {
    let secs = (ms / 1000.0).round().max(0.0) as u64;
    match (secs / 60, secs % 60) {
        (0, secs) => format!("{secs} s"),
        (mins, secs) => format!("{mins} min {secs} s"),
    }
}

/// How long ago something was, such as `5 min ago`.
pub(crate) fn age(secs: f64) -> String {
    match secs {
        ..60.0 => "just now".to_owned(),
        ..3600.0 => format!("{:.0} min ago", (secs / 60.0).floor()),
        ..86_400.0 => format!("{:.0} h ago", (secs / 3600.0).floor()),
        ..172_800.0 => "yesterday".to_owned(),
        _ => format!("{:.0} days ago", (secs / 86_400.0).floor()),
    }
}

/// So many of something, such as `1 tab` or `2 tabs`.
pub(crate) fn counted(n: u32, one: &str, many: &str) -> String {
    format!("{} {}", count(n.into()), if n == 1 { one } else { many })
}

/// So many tokens.
pub(crate) fn tokens(n_tokens: u32) -> String {
    counted(n_tokens, "token", "tokens")
}

/// A count with thin spaces between its thousands.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::with_capacity(digits.len() * 2);
    for (digit_idx, digit) in digits.chars().enumerate() {
        if digit_idx > 0 && (digits.len() - digit_idx).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

/// How many parameters a model has, in millions or billions, such as `135 M`; of the least ones each.
pub(crate) fn parameters(n_parameters: u64) -> String {
    let millions = n_parameters as f64 / 1e6;
    match millions {
        ..0.05 => count(n_parameters),
        ..9.95 => format!("{millions:.1} M"),
        ..999.5 => format!("{millions:.0} M"),
        _ => format!("{:.1} B", millions / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_whole() {
        assert_eq!([499.0, 12_300.0, 125_000.0].map(seconds), ["0 s", "12 s", "2 min 5 s"]);
    }

    #[test]
    fn bytes_use_the_unit_that_reads_best() {
        for (n_bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (98_362_432, "98.4 MB"),
            (999_600_000, "1.0 GB"),
            (140_000_000_000, "140 GB"),
            (u64::MAX, "18446744.1 TB"),
        ] {
            assert_eq!(bytes(n_bytes), expected);
        }
    }

    #[test]
    fn time_left_rounds_up() {
        for (secs, expected) in [
            (-1.0, "0 s left"),
            (0.2, "1 s left"),
            (59.0, "59 s left"),
            (59.5, "1 min 0 s left"),
            (125.0, "2 min 5 s left"),
            (7300.0, "2 h 1 min left"),
        ] {
            assert_eq!(time_left(secs), expected);
        }
    }

    #[test]
    fn times_and_ages() {
        for (ms, expected) in
            [(0.0, "0 ms"), (999.4, "999 ms"), (999.6, "1.0 s"), (1340.0, "1.3 s"), (100_000.0, "100 s")]
        {
            assert_eq!(time(ms), expected);
        }
        for (secs, expected) in [
            (-5.0, "just now"),
            (59.0, "just now"),
            (119.0, "1 min ago"),
            (7200.0, "2 h ago"),
            (90_000.0, "yesterday"),
            (200_000.0, "2 days ago"),
        ] {
            assert_eq!(age(secs), expected);
        }
    }

    #[test]
    fn counts_and_speeds() {
        assert_eq!((tokens(1), tokens(0)), ("1 token".to_owned(), "0 tokens".to_owned()));
        assert_eq!(count(7), "7");
        assert_eq!(count(8192), "8\u{202f}192");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(speed(1.26), "1.3 tok/s");
        assert_eq!(speed(140.2), "140 tok/s");
        for (n_parameters, expected) in [
            (999, "999"),
            (49_999, "49\u{202f}999"),
            (135_616, "0.1 M"),
            (9_949_999, "9.9 M"),
            (9_950_000, "10 M"),
            (134_515_008, "135 M"),
            (999_500_000, "1.0 B"),
            (1_711_376_384, "1.7 B"),
        ] {
            assert_eq!(parameters(n_parameters), expected);
        }
    }
}
