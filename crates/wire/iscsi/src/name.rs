//! iSCSI names (RFC 7143 section 4.2.7), and the addresses of portals ([`TargetAddress`]).
//!
//! ```text
//!   iqn.2026-11.org.example:storage.disk1    a domain, and a month in which the author of the name owned it
//!   eui.02004567a425678d                     an IEEE EUI-64
//!   naa.52004567ba64678d                     a T10 NAA, of 8 or 16 bytes
//! ```
//!
//! Names are compared byte by byte after normalisation (RFC 3722). We implement the ASCII part: upper case is
//! folded to lower case. Non-ASCII characters are left unchanged, since every initiator that uses them has
//! already folded them.
//!
//! Names are folded only for comparisons. They are sent as configured, because some targets (tgt, ceph-iscsi)
//! compare names without folding.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use derive_more::{Display, Error};

/// Section 4.2.7: a name has at most 223 bytes, without the NUL.
pub const NAME_BYTES_MAX: usize = 223;

/// A name: unchanged for the wire, and folded for comparisons.
#[derive(Clone)]
pub struct Name {
    written: Box<str>,
    folded: Box<str>,
}

/// Why a name is invalid.
#[expect(
    missing_docs,
    reason = "where a variant has no more to say than it displays"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum BadName {
    /// Longer than [`NAME_BYTES_MAX`].
    #[display("an iSCSI name must have at most 223 bytes")]
    TooLong,
    #[display("an iSCSI name must start with iqn., eui. or naa.")]
    UnknownType,
    #[display("an iSCSI name must contain only letters, digits, '-', '.' and ':'")]
    BadCharacter,
    #[display(
        "an iqn. name must continue with a year, a month and a domain, for example iqn.2026-11.org.example"
    )]
    BadDate,
    #[display("an eui. name must have 16 hexadecimal digits, and a naa. name 16 or 32")]
    BadDigits,
}

impl Name {
    /// A name in the standard's form.
    pub fn new(name: &str) -> Result<Name, BadName> {
        let name = Name::fold(name)?;
        name.irregularity().map_or(Ok(name), Err)
    }

    /// An initiator's name as used in the field. It need not have a standard form
    /// (`xxxx-client.000200000318`), but must use the standard's characters, since the name is part of
    /// TransportIDs and of patterns.
    pub fn of_initiator(name: &str) -> Result<Name, BadName> {
        let name = Name::fold(name)?;
        if name.folded.chars().all(is_name_character) {
            Ok(name)
        } else {
            Err(BadName::BadCharacter)
        }
    }

    /// A peer's name, to be sent to that peer. It may be any text that a key can carry, for example
    /// `Target-911data`.
    pub fn to_send(name: &str) -> Result<Name, BadName> {
        if name.chars().any(char::is_control) {
            Err(BadName::BadCharacter)
        } else {
            Name::fold(name)
        }
    }

    fn fold(name: &str) -> Result<Name, BadName> {
        match name.len() {
            0 => Err(BadName::UnknownType),
            1..=NAME_BYTES_MAX => Ok(Name {
                written: name.into(),
                folded: name.to_ascii_lowercase().into(),
            }),
            _ => Err(BadName::TooLong),
        }
    }

    /// Why the name does not have the standard's form; `None` if it does.
    pub fn irregularity(&self) -> Option<BadName> {
        let checked = match self.folded.split_at_checked(4) {
            Some(("iqn.", rest)) => check_qualified(rest),
            Some(("eui.", digits)) => check_digits(digits, &[16]),
            Some(("naa.", digits)) => check_digits(digits, &[16, 32]),
            _ => Err(BadName::UnknownType),
        };
        checked.err()
    }

    /// The same name in the standard's normalised form, for targets that are served.
    pub fn normalised(self) -> Name {
        Name {
            written: self.folded.clone(),
            folded: self.folded,
        }
    }

    /// The name folded, for comparisons.
    pub fn as_str(&self) -> &str {
        &self.folded
    }

    /// The unfolded name, for the wire.
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

/// Prints the unfolded name.
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

/// Checks the part of an iqn. name after the type: `yyyy-mm.reversed.domain[:anything]`. Initiators in the
/// field use months such as 00 and domains with an underscore; only the form of the date is checked.
fn check_qualified(rest: &str) -> Result<(), BadName> {
    if !rest.chars().all(is_name_character) {
        return Err(BadName::BadCharacter);
    }
    let is_date = |(at, byte): (usize, u8)| {
        if at == 4 {
            byte == b'-'
        } else {
            byte.is_ascii_digit()
        }
    };
    match rest.split_once('.') {
        Some((date, domain)) if date.len() == 7 && date.bytes().enumerate().all(is_date) => {
            if domain.is_empty() || domain.starts_with(':') {
                Err(BadName::BadDate)
            } else {
                Ok(())
            }
        }
        _ => Err(BadName::BadDate),
    }
}

fn check_digits(digits: &str, lengths: &[usize]) -> Result<(), BadName> {
    let good =
        lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if good {
        Ok(())
    } else {
        Err(BadName::BadDigits)
    }
}

/// Whether a name may contain a character. Section 4.2.7 forbids white space, and all punctuation except "-",
/// "." and ":". The underscore is accepted because names in use contain it (some appliances derive them from
/// host names).
fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || "-.:_".contains(character)
        || !(character.is_ascii() || character.is_whitespace() || character.is_control())
}

// The address in a TargetAddress key (RFC 7143 section 13.8): `domainname[:port]`, without the portal group tag.

/// The address of a portal for initiators: a host, and optionally a port (3260 by default).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetAddress {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    Name(String),
}

/// Why a text is not usable as an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum BadTargetAddress {
    /// Neither an IP address nor a domain name.
    #[display("the host must be an IPv4 address, an IPv6 address in brackets, or a domain name")]
    Host,
    /// The address has a zone, so it is valid on one machine only.
    #[display("an IPv6 zone such as %eth0 is valid only on this machine; initiators cannot use it")]
    Zone,
    /// The port is invalid.
    #[display("the port must be a number from 1 to 65535")]
    Port,
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::V4(address) => write!(f, "{address}")?,
            Host::V6(address) => write!(f, "[{address}]")?,
            Host::Name(name) => f.write_str(name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl FromStr for TargetAddress {
    type Err = BadTargetAddress;

    fn from_str(text: &str) -> Result<TargetAddress, BadTargetAddress> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (address, rest) = bracketed.split_once(']').ok_or(BadTargetAddress::Host)?;
                if address.contains('%') {
                    return Err(BadTargetAddress::Zone);
                }
                (
                    Host::V6(address.parse().map_err(|_| BadTargetAddress::Host)?),
                    rest,
                )
            }
            None => {
                let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
                let address = host.parse().map(Host::V4).ok();
                let name = || is_domain_name(host).then(|| Host::Name(host.to_owned()));
                (address.or_else(name).ok_or(BadTargetAddress::Host)?, rest)
            }
        };
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => None,
            None => return Err(BadTargetAddress::Host),
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some(
                port.parse()
                    .ok()
                    .filter(|port| *port != 0)
                    .ok_or(BadTargetAddress::Port)?,
            ),
            Some(_) => return Err(BadTargetAddress::Port),
        };
        Ok(TargetAddress { host, port })
    }
}

/// Whether a text is a domain name: labels of letters, digits and hyphens (RFC 1123 section 2.1). Underscores
/// are accepted, since names in use contain them. The last label must not be a number: 300.1.1.1 is a
/// mistyped address.
fn is_domain_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= 253
        && name.split('.').all(is_label)
        && !name.split('.').next_back().is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        assert_eq!(
            Ok(&name),
            Name::new("iqn.1991-05.com.example:host").as_ref()
        );
        assert_eq!(
            (name.as_str(), name.written()),
            (
                "iqn.1991-05.com.example:host",
                "IQN.1991-05.com.Example:Host"
            )
        );
        assert_eq!(name.to_string(), "IQN.1991-05.com.Example:Host");
    }

    /// Names from bug reports of open-iscsi and libiscsi.
    #[test]
    fn names_of_the_field_are_taken_from_peers_and_told_apart() {
        for (name, why) in [
            ("Target-911data", BadName::UnknownType),
            ("xxxx-client.000200000318", BadName::UnknownType),
            ("iqn.com.sgmsys-10", BadName::BadDate),
            (
                "iqn.2015-1.workgroup:RAID.iscsi0.vg0.data1",
                BadName::BadDate,
            ),
            ("eui.0123", BadName::BadDigits),
        ] {
            assert_eq!(Name::new(name), Err(why));
            for name in [Name::of_initiator(name), Name::to_send(name)] {
                assert_eq!(name.map(|name| name.irregularity()), Ok(Some(why)));
            }
        }
        assert_eq!(
            Name::of_initiator("iqn.2026-11.x:a,i,0x1"),
            Err(BadName::BadCharacter),
            "a TransportID"
        );
        assert_eq!(
            Name::of_initiator("iqn.2026-11.x:*"),
            Err(BadName::BadCharacter),
            "a pattern"
        );
        assert_eq!(
            Name::to_send("iqn.2026-11.x:a b").map(|name| name.written().len()),
            Ok(17)
        );
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

    #[test]
    fn addresses_that_initiators_understand_are_taken_as_written() {
        for text in [
            "192.0.2.1",
            "192.0.2.1:3260",
            "[2001:db8::1]:3261",
            "[::1]",
            "san.example.com:3260",
            "san_1",
            "1und1.example.",
        ] {
            assert_eq!(text.parse::<TargetAddress>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn addresses_that_lock_initiators_out_are_refused() {
        use BadTargetAddress::{Host, Port, Zone};
        for (text, why) in [
            ("", Host),
            (" ", Host),
            ("::1", Host),
            (":3260", Host),
            ("a b", Host),
            ("a\nb", Host),
            ("[::1", Host),
            ("[::1]x", Host),
            ("300.1.1.1:3260", Host),
            ("-san.example.com", Host),
            (&"x".repeat(300), Host),
            ("127.0.0.1:", Port),
            ("127.0.0.1:99999", Port),
            ("127.0.0.1:0", Port),
            ("127.0.0.1:+80", Port),
            ("127.0.0.1:abc", Port),
            ("127.0.0.1:3260,1", Port),
            ("127.0.0.1:3260\0X=1", Port),
            ("iscsi://127.0.0.1:3260", Port),
            ("[fe80::1%eth0]:3260", Zone),
        ] {
            assert_eq!(text.parse::<TargetAddress>(), Err(why), "{text:?}");
        }
    }
}
