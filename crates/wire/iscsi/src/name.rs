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
//!
//! Only comparisons fold. A name is sent as its owner wrote it, because targets in the field (tgt, ceph-iscsi) compare
//! bytes.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use derive_more::{Display, Error};

/// Section 4.2.7: a name has at most 223 bytes, without the NUL.
pub const NAME_BYTES_MAX: usize = 223;

/// A name: as it was written for the wire, and folded for comparisons.
#[derive(Clone)]
pub struct Name {
    written: Box<str>,
    folded: Box<str>,
}

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
    /// A name of the standard's form.
    pub fn new(name: &str) -> Result<Name, BadName> {
        let name = Name::fold(name)?;
        name.irregularity().map_or(Ok(name), Err)
    }

    /// An initiator's name as initiators in the field have them. Its form may be none of the standard's
    /// (`xxxx-client.000200000318`); its characters must be, since the name is part of TransportIDs and of patterns.
    pub fn of_initiator(name: &str) -> Result<Name, BadName> {
        let name = Name::fold(name)?;
        if name.folded.chars().all(is_name_character) { Ok(name) } else { Err(BadName::BadCharacter) }
    }

    /// A name that a peer may have (`Target-911data`), to be sent to it: anything that a text key can carry.
    pub fn to_send(name: &str) -> Result<Name, BadName> {
        if name.chars().any(char::is_control) { Err(BadName::BadCharacter) } else { Name::fold(name) }
    }

    fn fold(name: &str) -> Result<Name, BadName> {
        match name.len() {
            0 => Err(BadName::UnknownType),
            1..=NAME_BYTES_MAX => Ok(Name { written: name.into(), folded: name.to_ascii_lowercase().into() }),
            _ => Err(BadName::TooLong),
        }
    }

    /// Why it is not of the standard's form, if it is not.
    pub fn irregularity(&self) -> Option<BadName> {
        let checked = match self.folded.split_at_checked(4) {
            Some(("iqn.", rest)) => check_qualified(rest),
            Some(("eui.", digits)) => check_digits(digits, &[16]),
            Some(("naa.", digits)) => check_digits(digits, &[16, 32]),
            _ => Err(BadName::UnknownType),
        };
        checked.err()
    }

    /// The same name, written in the normalised form that the standard asks for: that of what is served.
    pub fn normalised(self) -> Name {
        Name { written: self.folded.clone(), folded: self.folded }
    }

    /// The name folded, for comparisons.
    pub fn as_str(&self) -> &str {
        &self.folded
    }

    /// The name as it was written, for the wire.
    pub fn written(&self) -> &str {
        &self.written
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.folded == other.folded
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.folded.cmp(&other.folded)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded.hash(state);
    }
}

/// As it was written.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
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
        write!(f, "{:?}", &*self.written)
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
    fn a_name_is_folded_to_compare_and_stays_as_it_was_written() {
        let name = Name::new("IQN.1991-05.com.Example:Host").unwrap();
        assert_eq!(Ok(&name), Name::new("iqn.1991-05.com.example:host").as_ref());
        assert_eq!(
            (name.as_str(), name.written()),
            ("iqn.1991-05.com.example:host", "IQN.1991-05.com.Example:Host")
        );
        assert_eq!(name.to_string(), "IQN.1991-05.com.Example:Host");
    }

    /// Names of open-iscsi's and libiscsi's bug reports.
    #[test]
    fn names_of_the_field_are_taken_from_peers_and_told_apart() {
        for (name, why) in [
            ("Target-911data", BadName::UnknownType),
            ("xxxx-client.000200000318", BadName::UnknownType),
            ("iqn.com.sgmsys-10", BadName::BadDate),
            ("iqn.2015-1.workgroup:RAID.iscsi0.vg0.data1", BadName::BadDate),
            ("eui.0123", BadName::BadDigits),
        ] {
            assert_eq!(Name::new(name), Err(why));
            for name in [Name::of_initiator(name), Name::to_send(name)] {
                assert_eq!(name.map(|name| name.irregularity()), Ok(Some(why)));
            }
        }
        assert_eq!(Name::of_initiator("iqn.2026-11.x:a,i,0x1"), Err(BadName::BadCharacter), "a TransportID");
        assert_eq!(Name::of_initiator("iqn.2026-11.x:*"), Err(BadName::BadCharacter), "a pattern");
        assert_eq!(Name::to_send("iqn.2026-11.x:a b").map(|name| name.written().len()), Ok(17));
        assert_eq!(Name::to_send("disk\0IsX=1"), Err(BadName::BadCharacter));
        for name in [Name::of_initiator(""), Name::to_send("")] {
            assert_eq!(name, Err(BadName::UnknownType));
        }
        assert_eq!(Name::to_send(&"x".repeat(224)), Err(BadName::TooLong));
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
