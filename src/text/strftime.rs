//! `strftime_now` of chat templates: a UTC moment in the C locale's words. The moment is given, never read from a clock.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const SECS_PER_DAY: i64 = 86_400;

/// A moment taken apart; UTC, proleptic Gregorian.
struct Moment {
    year: i64,
    /// 0 is January.
    month: usize,
    /// From 1.
    day: i64,
    /// From 1.
    day_of_year: i64,
    /// 0 is Sunday.
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
}

fn days_in_months(year: i64) -> [i64; 12] {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

impl Moment {
    fn new(unix_secs: i64) -> Self {
        let days = unix_secs.div_euclid(SECS_PER_DAY);
        let second_of_day = unix_secs.rem_euclid(SECS_PER_DAY);
        // Whole cycles of 400 years first, so that the loops below are short whatever the moment.
        const DAYS_PER_CYCLE: i64 = 146_097;
        let mut year = 1970 + 400 * days.div_euclid(DAYS_PER_CYCLE);
        let mut day = days.rem_euclid(DAYS_PER_CYCLE);
        let mut year_len: i64 = days_in_months(year).iter().sum();
        while day >= year_len {
            day -= year_len;
            year += 1;
            year_len = days_in_months(year).iter().sum();
        }
        let day_of_year = day + 1;
        let mut month = 0;
        for len in days_in_months(year) {
            if day < len {
                break;
            }
            day -= len;
            month += 1;
        }
        const FIRST_WEEKDAY: i64 = 4;
        Self {
            year,
            month,
            day: day + 1,
            day_of_year,
            weekday: (days + FIRST_WEEKDAY).rem_euclid(7) as usize,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }

    fn hour_of_12(&self) -> i64 {
        (self.hour + 11) % 12 + 1
    }

    /// What a letter stands for; `None` if none is known.
    fn field(&self, letter: char, unix_secs: i64) -> Option<String> {
        let (month, weekday) = (MONTHS[self.month], WEEKDAYS[self.weekday]);
        let monday_based = (self.weekday + 6) % 7;
        Some(match letter {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'C' => format!("{:02}", self.year.div_euclid(100)),
            'm' => format!("{:02}", self.month + 1),
            'B' => month.into(),
            'b' | 'h' => month[..3].into(),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year),
            'A' => weekday.into(),
            'a' => weekday[..3].into(),
            'w' => self.weekday.to_string(),
            'u' => (monday_based + 1).to_string(),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{:02}", self.hour_of_12()),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'f' => "000000".into(),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.into(),
            's' => unix_secs.to_string(),
            'z' => "+0000".into(),
            'Z' => "UTC".into(),
            'F' => self.all("Y-m-d", unix_secs),
            'T' | 'X' => self.all("H:M:S", unix_secs),
            'R' => self.all("H:M", unix_secs),
            'D' | 'x' => self.all("m/d/y", unix_secs),
            'c' => self.all("a b e H:M:S Y", unix_secs),
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            _ => return None,
        })
    }

    /// Every letter of `pattern` in its place.
    fn all(&self, pattern: &str, unix_secs: i64) -> String {
        pattern
            .chars()
            .map(|c| self.field(c, unix_secs).filter(|_| c.is_alphabetic()).unwrap_or_else(|| c.into()))
            .collect()
    }
}

/// The moment, seconds since 1970 in UTC, as `format` says; `%-d` and the like drop the padding. A directive that is
/// not known stays as it is written.
pub fn strftime(unix_secs: i64, format: &str) -> String {
    let moment = Moment::new(unix_secs);
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let directive = &rest[at + 1..];
        let (unpadded, letters) =
            directive.strip_prefix('-').map_or((false, directive), |letters| (true, letters));
        match letters.chars().next().and_then(|letter| Some((letter, moment.field(letter, unix_secs)?))) {
            Some((letter, field)) => {
                let short = field.trim_start_matches(['0', ' ']);
                let is_padded = unpadded && letter != '%' && field.trim().parse::<i64>().is_ok();
                out.push_str(if !is_padded {
                    &field
                } else if short.is_empty() {
                    "0"
                } else {
                    short
                });
                rest = &letters[letter.len_utf8()..];
            }
            None => {
                out.push('%');
                rest = directive;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_as_python_writes_them() {
        const ALL: &str = "%Y-%m-%d %H:%M:%S %a %A %b %B %d %e %j %I %p %y %% %w %u %-d %-m %-I %F %T %D";
        let table = [
            (
                0,
                "1970-01-01 00:00:00 Thu Thursday Jan January 01  1 001 12 AM 70 % 4 4 1 1 12 1970-01-01 00:00:00 01/01/70",
            ),
            (
                951_825_661,
                "2000-02-29 12:01:01 Tue Tuesday Feb February 29 29 060 12 PM 00 % 2 2 29 2 12 2000-02-29 12:01:01 02/29/00",
            ),
            (
                1_798_761_599,
                "2026-12-31 23:59:59 Thu Thursday Dec December 31 31 365 11 PM 26 % 4 4 31 12 11 2026-12-31 23:59:59 12/31/26",
            ),
            (
                -1,
                "1969-12-31 23:59:59 Wed Wednesday Dec December 31 31 365 11 PM 69 % 3 3 31 12 11 1969-12-31 23:59:59 12/31/69",
            ),
        ];
        for (unix_secs, expected) in table {
            assert_eq!(strftime(unix_secs, ALL), expected);
        }
    }

    #[test]
    fn what_is_not_a_directive_stays() {
        assert_eq!(strftime(0, "%Q %-Q 100% %"), "%Q %-Q 100% %");
        assert_eq!(strftime(0, "%H|%-H|%-M|é%dé"), "00|0|0|é01é");
    }

    #[test]
    fn no_moment_panics() {
        for unix_secs in [i64::MIN, i64::MIN / 2, i64::MAX / 2, i64::MAX] {
            assert!(!strftime(unix_secs, "%c").is_empty());
        }
    }
}
