//! Rates as text: `1000iops`, `100MB/s`, or both as `1000iops+100MB/s`.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use block::Rate;

use super::size::Bytes;

/// A limit that reads and prints itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtMost(pub Rate);

/// Why a text is no rate, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotARate(String);

impl fmt::Display for NotARate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotARate {}

impl FromStr for AtMost {
    type Err = NotARate;

    fn from_str(text: &str) -> Result<AtMost, NotARate> {
        let mut rate = Rate::default();
        for part in text.split('+') {
            let (place, amount) = match part.strip_suffix("iops") {
                Some(number) => (&mut rate.requests_per_s, requests(number)?),
                None => (&mut rate.bytes_per_s, bytes(part)?),
            };
            if place.replace(amount).is_some() {
                return Err(NotARate(format!("`{text}` limits the same thing twice; keep one of them")));
            }
        }
        Ok(AtMost(rate))
    }
}

fn requests(number: &str) -> Result<NonZeroU64, NotARate> {
    number.parse().map_err(|_| {
        NotARate(format!("`{number}iops` is not a rate; write requests a second such as 1000iops"))
    })
}

fn bytes(text: &str) -> Result<NonZeroU64, NotARate> {
    let not_a_rate = |reason: &dyn fmt::Display| {
        NotARate(format!("`{text}` is not a rate such as 1000iops or 100MB/s: {reason}"))
    };
    let size: Bytes = text.strip_suffix("/s").unwrap_or(text).parse().map_err(|error| not_a_rate(&error))?;
    NonZeroU64::new(size.0).ok_or_else(|| not_a_rate(&"nothing would ever end"))
}

impl fmt::Display for AtMost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.0.requests_per_s.map(|number| format!("{number}iops"));
        let bytes = self.0.bytes_per_s.map(|number| format!("{}/s", Bytes(number.get())));
        f.write_str(&requests.into_iter().chain(bytes).collect::<Vec<_>>().join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        text.parse::<AtMost>().map_or_else(|error| error.to_string(), |rate| rate.to_string())
    }

    #[test]
    fn requests_and_bytes_can_be_limited_together() {
        for text in ["1000iops", "100MB/s", "1000iops+100MiB/s"] {
            assert_eq!(shown(text), text);
        }
        assert_eq!(shown("100MB+7iops"), "7iops+100MB/s");
    }

    #[test]
    fn what_is_no_rate_is_answered_with_one() {
        assert!(shown("1000").ends_with("1kB/s"));
        assert!(shown("0iops").contains("such as 1000iops"));
        assert!(shown("iops").contains("such as 1000iops"));
        assert!(shown("0MB/s").contains("nothing would ever end"));
        assert!(shown("100mb/s").contains("write 100MB"));
        assert!(shown("1iops+2iops").contains("twice"));
        assert!(shown("").contains("such as 1000iops or 100MB/s"));
    }
}
