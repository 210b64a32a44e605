//! A contiguous part of the storage, as written on a command line.

use std::fmt;
use std::str::FromStr;

use volume::spec::Bytes;

use crate::plan::Span;

/// A range of bytes, parsed from `SIZE` (from the start), `START..END`, `START..` or `..END`. It contains at
/// least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    start: u64,
    end: Option<u64>,
}

impl FromStr for Extent {
    type Err = String;

    fn from_str(text: &str) -> Result<Extent, String> {
        let bytes = |text: &str| {
            text.trim()
                .parse::<Bytes>()
                .map(|bytes| bytes.0)
                .map_err(|why| why.to_string())
        };
        let optional = |text: &str| {
            if text.trim().is_empty() {
                Ok(None)
            } else {
                bytes(text).map(Some)
            }
        };
        let (start, end) = match text.split_once("..") {
            Some((start, end)) => (optional(start)?.unwrap_or(0), optional(end)?),
            None => (0, Some(bytes(text)?)),
        };
        if end.is_some_and(|end| end <= start) {
            return Err(format!(
                "the range `{text}` is empty; its end must be after its start"
            ));
        }
        Ok(Extent { start, end })
    }
}

impl Extent {
    /// The whole storage.
    pub const ALL: Extent = Extent {
        start: 0,
        end: None,
    };

    /// Returns the part that a span covers on a device of `device_bytes`.
    pub fn of(span: Span, device_bytes: u64) -> Extent {
        let end = span
            .bytes
            .map_or(device_bytes, |bytes| span.start_bytes.saturating_add(bytes));
        Extent {
            start: span.start_bytes,
            end: Some(end),
        }
    }

    /// Returns the intersection, or `None` if it is empty.
    pub fn within(self, other: Extent) -> Option<Extent> {
        let end = match (self.end, other.end) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        let start = self.start.max(other.start);
        end.is_none_or(|end| start < end)
            .then_some(Extent { start, end })
    }

    /// Returns the smallest extent that contains both.
    pub fn around(self, other: Extent) -> Extent {
        let end = self.end.zip(other.end).map(|(one, two)| one.max(two));
        Extent {
            start: self.start.min(other.start),
            end,
        }
    }

    /// Returns whether the extent reaches past `device_bytes`.
    pub fn exceeds(self, device_bytes: u64) -> bool {
        self.end.unwrap_or(self.start) > device_bytes
    }

    /// Converts the extent to a span.
    pub fn span(self) -> Span {
        Span {
            start_bytes: self.start,
            bytes: self.end.map(|end| end - self.start),
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            None if self.start == 0 => f.write_str("all of it"),
            None => write!(f, "{} to the end", Bytes(self.start)),
            Some(end) => write!(f, "{} to {}", Bytes(self.start), Bytes(end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(text: &str) -> Extent {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn a_part_without_bytes_is_refused() {
        for text in ["0", "4KiB..4KiB", "2GiB..1GiB", "x..", "1gb"] {
            assert!(text.parse::<Extent>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_part_is_a_length_or_two_ends() {
        assert_eq!(
            extent("1MiB").span(),
            Span {
                start_bytes: 0,
                bytes: Some(1 << 20)
            }
        );
        assert_eq!(
            extent("4KiB..12KiB").span(),
            Span {
                start_bytes: 4096,
                bytes: Some(8192)
            }
        );
        assert_eq!(
            extent("4KiB..").span(),
            Span {
                start_bytes: 4096,
                bytes: None
            }
        );
        assert_eq!(extent(".."), Extent::ALL);
    }

    #[test]
    fn parts_meet_or_do_not() {
        assert_eq!(
            extent("1MiB").within(extent("512KiB..2MiB")),
            Some(extent("512KiB..1MiB"))
        );
        assert_eq!(extent("1MiB").within(extent("1MiB..2MiB")), None);
        assert_eq!(extent("1MiB").around(extent("4MiB..5MiB")), extent("5MiB"));
    }
}
