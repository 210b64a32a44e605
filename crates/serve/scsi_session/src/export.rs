//! The LUNs of a target, and the initiators that see them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use logical_unit::LogicalUnit;

/// A LUN of a target.
#[derive(Clone)]
pub struct Export {
    /// 0 to 16,383 (SAM-5 4.7: what flat space addressing can say).
    pub lun: u16,
    /// The name of the volume.
    pub volume: String,
    /// The logical unit.
    pub unit: Arc<LogicalUnit>,
    /// The initiators that it is visible to; `None` for all that may log in.
    pub initiators: Option<Vec<NamePattern>>,
    /// The deadline of a device request. When it has passed, the command fails and the volume is fenced until
    /// the device answers again.
    pub deadline: Duration,
}

impl Export {
    /// Whether it is visible to this initiator.
    pub fn is_seen_by(&self, initiator: &str) -> bool {
        self.initiators.as_ref().is_none_or(|names| names.iter().any(|name| name.matches(initiator)))
    }
}

/// An initiator's name, or the beginning of one followed by `*`. Names compare without regard to case (RFC 7143
/// section 4.2.7.1 asks for normalised, lower-case names).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    stem: String,
    open_ended: bool,
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.stem, if self.open_ended { "*" } else { "" })
    }
}

impl NamePattern {
    /// `iqn.1993-08.org.debian:01:abc` or `iqn.1993-08.org.debian:*`.
    pub fn new(pattern: &str) -> NamePattern {
        let stem = pattern.strip_suffix('*');
        NamePattern { stem: stem.unwrap_or(pattern).to_ascii_lowercase(), open_ended: stem.is_some() }
    }

    /// A name that matches: with `rest` behind the stem if the pattern has a star. `None` if every name matches.
    pub fn example(&self, rest: &str) -> Option<String> {
        match (self.open_ended, self.stem.is_empty()) {
            (true, true) => None,
            (true, false) => Some(format!("{}{rest}", self.stem)),
            (false, _) => Some(self.stem.clone()),
        }
    }

    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        if self.open_ended { name.starts_with(&self.stem) } else { name == self.stem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_with_a_star_matches_what_begins_so() {
        assert!(NamePattern::new("iqn.1993-08.org.debian:*").matches("iqn.1993-08.ORG.debian:01:ab"));
        assert!(!NamePattern::new("iqn.1993-08.org.debian:01").matches("iqn.1993-08.org.debian:012"));
    }

    #[test]
    fn an_example_of_a_pattern_matches_it() {
        for (pattern, example) in [("iqn.a:*", Some("iqn.a:HOST")), ("iqn.a:b", Some("iqn.a:b")), ("*", None)]
        {
            let pattern = NamePattern::new(pattern);
            assert_eq!(pattern.example("HOST").as_deref(), example);
            assert!(example.is_none_or(|example| pattern.matches(example)), "{pattern}");
        }
    }
}
