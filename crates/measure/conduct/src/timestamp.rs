//! The date and time for a record.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now: RFC 3339, UTC, to the second.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    rfc3339(since.map_or(0, |since| since.as_secs()))
}

/// Seconds since 1970 as `2026-11-21T15:04:05Z`.
fn rfc3339(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The Gregorian date so many days after 1 January 1970. Years are counted from 1 March, so that the day a leap year has
/// more is its last one; 400 of them have 146,097 days.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 1 March of the year 0 to 1 January 1970
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153; // from March; 153 days are five months
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_date_1() {
        // date -u -d @N --iso-8601=seconds
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), expected);
        }
    }
}
