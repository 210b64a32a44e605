//! Initiator name patterns in the configuration.

use std::str::FromStr;

use iscsi::name::{NAME_BYTES_MAX, Name};
use iscsi_server::NamePattern;

use crate::config::Section;
use crate::config::Unfit;

/// An iSCSI name, or the beginning of one with a `*`.
struct InitiatorPattern(NamePattern);

/// The `initiators` of a section; `None` is any.
pub(super) fn patterns(section: &Section<'_>) -> Option<Vec<NamePattern>> {
    Some(section.list::<InitiatorPattern>("initiators")?.into_iter().map(|pattern| pattern.0).collect())
}

impl FromStr for InitiatorPattern {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<InitiatorPattern, Unfit> {
        match text.strip_suffix('*') {
            // A word of another form is a mistake more often than a name; a star says that it is meant.
            None => Name::new(text).map(drop).map_err(|error| {
                Unfit(format!("{error}; for an initiator whose name has another form write `{text}*`"))
            })?,
            Some(stem) if stem.len() <= NAME_BYTES_MAX && stem.bytes().all(legal) => {}
            Some(stem) => {
                let sentence =
                    format!("`{stem}` begins no iSCSI name; write one such as iqn.1993-08.org.debian:*");
                return Err(Unfit(sentence));
            }
        }
        Ok(InitiatorPattern(NamePattern::new(text)))
    }
}

/// What stands in names in ASCII (RFC 7143 section 4.2.7.1), and the underscore of some appliances.
fn legal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_or_the_beginning_of_one() {
        assert!("iqn.1993-08.org.debian:*".parse::<InitiatorPattern>().is_ok());
        assert!("iqn.1993-08.org.debian:01:abc".parse::<InitiatorPattern>().is_ok());
        assert!("*".parse::<InitiatorPattern>().is_ok());
        let long = format!("iqn.1993-08.org.debian:{}*", "x".repeat(300));
        for bad in ["", "debian", "iqn.1993-08.org.debian*:x", "a b*", "iqn.a\n*", &long] {
            assert!(bad.parse::<InitiatorPattern>().is_err(), "{bad}");
        }
    }
}
