//! iSCSI names (RFC 7143 section 4.2.7).
//!
//! ```text
//!   iqn.2026-11.org.example:storage.disk1    a domain's owner names it, and says when they owned it
//!   eui.02004567a425678d                     an IEEE EUI-64
//!   naa.52004567ba64678d                     a T10 NAA, of 8 or 16 bytes
//! ```
//!
//! Names are compared byte by byte after normalisation (RFC 3722). Of that we do what ASCII needs: capitals become
//! small. Characters beyond ASCII are taken as they are, since every initiator that uses them has folded them.

use std::fmt;

use derive_more::{Display, Error};

/// Section 4.2.7: a name has at most 223 bytes, without the NUL.
pub const NAME_BYTES_MAX: usize = 223;

/// A valid, normalised name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
pub struct Name(Box<str>);

/// Why a name is invalid.
#[expect(missing_docs, reason = "where a variant has no more to say than it displays")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum BadName {
    /// Longer than [`NAME_BYTES_MAX`].
    #[display("an iSCSI name has at most 223 bytes")]
    TooLong,
    #[display("an iSCSI name begins with iqn., eui. or naa.")]
    UnknownType,
    #[display("an iSCSI name has letters, digits, '-', '.' and ':' only")]
    BadCharacter,
    #[display("an iqn. name goes on with a year, a month and a domain, as in iqn.2026-11.org.example")]
    BadDate,
    #[display("an eui. name has 16 hexadecimal digits, a naa. name 16 or 32")]
    BadDigits,
}

impl Name {
    /// Checks a name and normalises it.
    pub fn new(name: &str) -> Result<Name, BadName> {
        if name.len() > NAME_BYTES_MAX {
            return Err(BadName::TooLong);
        }
        let name = name.to_ascii_lowercase();
        match name.split_at_checked(4) {
            Some(("iqn.", rest)) => check_qualified(rest)?,
            Some(("eui.", digits)) => check_digits(digits, &[16])?,
            Some(("naa.", digits)) => check_digits(digits, &[16, 32])?,
            _ => return Err(BadName::UnknownType),
        }
        Ok(Name(name.into()))
    }

    /// The name, normalised.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Name {
    type Err = BadName;

    fn from_str(name: &str) -> Result<Name, BadName> {
        Name::new(name)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// `yyyy-mm.reversed.domain[:anything]`. Initiators in the field have months such as 00 and domains with an
/// underscore; the date's form is checked and not its sense.
fn check_qualified(rest: &str) -> Result<(), BadName> {
    if !rest.chars().all(is_name_character) {
        return Err(BadName::BadCharacter);
    }
    let is_date = |(at, byte): (usize, u8)| if at == 4 { byte == b'-' } else { byte.is_ascii_digit() };
    match rest.split_once('.') {
        Some((date, domain)) if date.len() == 7 && date.bytes().enumerate().all(is_date) => {
            if domain.is_empty() || domain.starts_with(':') { Err(BadName::BadDate) } else { Ok(()) }
        }
        _ => Err(BadName::BadDate),
    }
}

fn check_digits(digits: &str, lengths: &[usize]) -> Result<(), BadName> {
    let good = lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if good { Ok(()) } else { Err(BadName::BadDigits) }
}

/// Section 4.2.7: no white space, no punctuation but "-", "." and ":". The underscore is there because names
/// in use have it (some appliances make them of host names).
fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || "-.:_".contains(character)
        || !(character.is_ascii() || character.is_whitespace() || character.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_all_three_types_are_taken() {
        for name in [
            "iqn.1991-05.com.microsoft:host",
            "iqn.2026-11.org.example",
            "iqn.2001-04.com.example:storage:diskarrays-sn-a8675309",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
            "naa.62004567ba64678d0123456789abcdef",
        ] {
            assert_eq!(Name::new(name).as_ref().map(Name::as_str), Ok(name));
        }
    }

    #[test]
    fn capitals_become_small() {
        assert_eq!(Name::new("IQN.1991-05.com.Example:Host"), Name::new("iqn.1991-05.com.example:host"));
    }

    #[test]
    fn what_is_no_name_says_why() {
        let long = format!("iqn.2026-11.org.example:{}", "x".repeat(200));
        for (name, why) in [
            ("", BadName::UnknownType),
            ("iq", BadName::UnknownType),
            ("iqn2026", BadName::UnknownType),
            ("wwn.0123456789abcdef", BadName::UnknownType),
            ("iqn.", BadName::BadDate),
            ("iqn.2026-11", BadName::BadDate),
            ("iqn.2026-11.", BadName::BadDate),
            ("iqn.2026-11.:disk", BadName::BadDate),
            ("iqn.26-11.org.example", BadName::BadDate),
            ("iqn.2026-11.org.example:a b", BadName::BadCharacter),
            ("iqn.2026-11.org.example:a/b", BadName::BadCharacter),
            ("eui.0200", BadName::BadDigits),
            ("eui.0200456xa425678d", BadName::BadDigits),
            (&long, BadName::TooLong),
        ] {
            assert_eq!(Name::new(name), Err(why), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_names_are_stable(text in "(iqn\\.|eui\\.|naa\\.)?\\PC{0,40}") {
            if let Ok(name) = Name::new(&text) {
                prop_assert_eq!(Name::new(name.as_str()), Ok(name.clone()));
            }
        }
    }
}
