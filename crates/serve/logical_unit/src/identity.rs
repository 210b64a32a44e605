//! The identity of a logical unit: names that are stable across restarts and renames. The names are derived
//! from a stored UUID, or are configured: for example, the names of a disk that was migrated from another
//! target.

use std::fmt;
use std::str::FromStr;

use derive_more::Display;
use scsi::Name;

/// The identity of a logical unit as INQUIRY and its VPD pages report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Stored with the volume.
    pub uuid: [u8; 16],
    /// Names that do not derive from the UUID.
    pub given: GivenNames,
}

/// Names specified for a logical unit. `None` selects Linerate's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenNames {
    /// PRODUCT SERIAL NUMBER. Fits completely in an INQUIRY with an allocation length of 255 bytes, as sent
    /// by SPC-2 initiators.
    pub serial: Option<Ascii<1, 251>>,
    /// The NAA designator.
    pub naa: Option<Naa>,
    /// The T10 vendor ID based designator: eight characters of the vendor, padded with spaces, and a
    /// vendor-specific part.
    pub t10_id: Option<Ascii<9, 255>>,
    /// T10 VENDOR IDENTIFICATION.
    pub vendor: Option<Ascii<1, 8>>,
    /// PRODUCT IDENTIFICATION.
    pub product: Option<Ascii<1, 16>>,
    /// PRODUCT REVISION LEVEL.
    pub revision: Option<Ascii<1, 4>>,
}

/// ASCII data as defined in SPC-4 4.4.1: MIN to MAX characters from 20h to 7Eh, not all of them spaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ascii<const MIN: usize, const MAX: usize>(String);

/// An NAA designator (SPC-4 7.8.6.6) with the length of its type: 8 bytes for IEEE Extended (2h), Locally
/// Assigned (3h) and IEEE Registered (5h), 16 bytes for IEEE Registered Extended (6h).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Naa(Vec<u8>);

/// The reason why a text is not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum NameError {
    /// The name is too short or too long: its length, the minimum and the maximum.
    #[display("it has {_0} characters; use {_1} to {_2} ASCII characters")]
    Length(usize, usize, usize),
    /// The name contains this character, which is not printable ASCII.
    #[display(
        "{_0:?} is not a printable ASCII character; use letters, digits, punctuation and spaces"
    )]
    Character(char),
    /// The name consists only of spaces.
    #[display("it contains only spaces; use a name, or remove the key")]
    Blank,
    /// The text has neither 16 hexadecimal digits that start with 2, 3 or 5, nor 32 that start with 6.
    #[display(
        "it is not an NAA identifier; write 0x and 32 hexadecimal digits that begin with 6, or 16 that \
                 begin with 5, 3 or 2"
    )]
    Naa,
}

impl std::error::Error for NameError {}

impl<const MIN: usize, const MAX: usize> FromStr for Ascii<MIN, MAX> {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Ascii<MIN, MAX>, NameError> {
        if let Some(other) = text.chars().find(|c| !(' '..='~').contains(c)) {
            return Err(NameError::Character(other));
        }
        match text.len() {
            length if !(MIN..=MAX).contains(&length) => Err(NameError::Length(length, MIN, MAX)),
            _ if text.trim().is_empty() => Err(NameError::Blank),
            _ => Ok(Ascii(text.to_owned())),
        }
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Display for Ascii<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses the form `0x6…` that udev writes, the form `naa.6…` that ESXi writes, or the digits alone.
impl FromStr for Naa {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Naa, NameError> {
        let digits = ["0x", "0X", "naa."]
            .iter()
            .find_map(|prefix| text.strip_prefix(prefix))
            .unwrap_or(text);
        let kind = digits.chars().next();
        let is_fit = digits.chars().all(|c| c.is_ascii_hexdigit())
            && matches!(
                (kind, digits.len()),
                (Some('2' | '3' | '5'), 16) | (Some('6'), 32)
            );
        let number = u128::from_str_radix(digits, 16)
            .ok()
            .filter(|_| is_fit)
            .ok_or(NameError::Naa)?;
        Ok(Naa(number.to_be_bytes()[16 - digits.len() / 2..].to_vec()))
    }
}

impl fmt::Display for Naa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Identity {
    /// Creates the default identity of a volume with this UUID.
    pub fn new(uuid: [u8; 16]) -> Identity {
        Identity {
            uuid,
            given: GivenNames::default(),
        }
    }

    /// T10 VENDOR IDENTIFICATION.
    pub fn vendor(&self) -> &str {
        self.given
            .vendor
            .as_ref()
            .map_or("LINERATE", |vendor| &vendor.0)
    }

    /// PRODUCT IDENTIFICATION. By default it is the same on all volumes: ESXi copies between LUNs only if it
    /// matches.
    pub fn product(&self) -> &str {
        self.given
            .product
            .as_ref()
            .map_or("VOLUME", |product| &product.0)
    }

    /// PRODUCT REVISION LEVEL.
    pub fn revision(&self) -> &str {
        self.given
            .revision
            .as_ref()
            .map_or("0001", |revision| &revision.0)
    }

    /// The unit serial number (VPD page 80h): the UUID in 32 hexadecimal digits, unless one is given.
    pub fn serial(&self) -> String {
        let of_uuid = || self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        self.given
            .serial
            .as_ref()
            .map_or_else(of_uuid, |serial| serial.0.clone())
    }

    /// The NAA designator. By default it is locally assigned (SPC-4 7.8.6.6.4), NAA 3h, from 60 bits of the
    /// UUID. NAA 6h would require an IEEE company identifier, which Linerate does not have.
    pub fn naa(&self) -> Vec<u8> {
        self.given
            .naa
            .as_ref()
            .map_or_else(|| self.own_naa().to_vec(), |naa| naa.0.clone())
    }

    fn own_naa(&self) -> [u8; 8] {
        let mut hash = Fnv::new();
        self.uuid.iter().for_each(|byte| hash.add(*byte));
        let local = hash.0 & 0x0fff_ffff_ffff_ffff;
        (0x3000_0000_0000_0000 | local).to_be_bytes()
    }

    /// The designators of the logical unit in VPD page 83h. The designator based on the T10 vendor ID (SPC-4
    /// 7.8.6.4) consists of the vendor and a vendor-specific part. ESXi and Hyper-V compare only the first
    /// eight characters of that part, so these must differ between volumes. They are derived from a hash of
    /// the UUID, because the UUID itself may start with a date.
    pub fn names(&self) -> [Name; 2] {
        let (vendor, name) = match &self.given.t10_id {
            Some(Ascii(id)) => (id[..8].to_owned(), id[8..].to_owned()),
            None => {
                let unique = self.own_naa()[2..]
                    .iter()
                    .rev()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                (self.vendor().to_owned(), unique)
            }
        };
        [Name::Naa(self.naa()), Name::T10 { vendor, name }]
    }

    /// Whether `designator` is one of the [`Identity::names`], as encoded in VPD page 83h.
    pub fn has_designator(&self, designator: &[u8]) -> bool {
        self.names()
            .iter()
            .any(|name| name.designator() == designator)
    }
}

/// The FNV-1a hash of a whole UUID. A part of the UUID would not be sufficient, because the version and
/// variant bits are the same in all UUIDs. The hash function must never change: the names of existing volumes
/// depend on it.
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_frozen() {
        let identity = Identity::new(*b"0123456789abcdef");
        assert_eq!(identity.serial(), "30313233343536373839616263646566");
        assert_eq!(
            identity.naa(),
            [0x3e, 0x37, 0x39, 0x13, 0xe5, 0xad, 0x67, 0x7d]
        );
        assert_eq!(
            (identity.vendor(), identity.product(), identity.revision()),
            ("LINERATE", "VOLUME", "0001")
        );
        assert_eq!(identity.naa(), Identity::new(*b"0123456789abcdef").naa());
        assert_ne!(identity.naa(), Identity::new(*b"0123456789abcdeg").naa());
    }

    #[test]
    fn an_naa_identifier_has_the_length_of_its_format() {
        let long = "6001405a1b2c3d4e5f60718293a4b5c6";
        for text in [
            format!("0x{long}"),
            format!("naa.{long}"),
            long.to_uppercase(),
        ] {
            assert_eq!(
                text.parse::<Naa>().map(|naa| naa.to_string()),
                Ok(format!("0x{long}")),
                "{text}"
            );
        }
        assert_eq!(
            "0x5000c50012345678".parse::<Naa>().map(|naa| naa.0.len()),
            Ok(8)
        );
        for bad in [
            "",
            "0x",
            "0x6001405",
            "0x5000c5001234567",
            &long[1..],
            "0x+000c50012345678",
            "4000c50012345678",
            "ä",
        ] {
            assert_eq!(bad.parse::<Naa>(), Err(NameError::Naa), "{bad}");
        }
        assert_eq!(
            format!("5{}", &long[1..]).parse::<Naa>(),
            Err(NameError::Naa)
        );
    }

    #[test]
    fn ascii_data_are_printable_and_fit() {
        let vendor = |text: &str| text.parse::<Ascii<1, 8>>().map(|vendor| vendor.0);
        assert_eq!(vendor("LIO-ORG"), Ok("LIO-ORG".to_owned()));
        assert_eq!(vendor(" ~"), Ok(" ~".to_owned()));
        assert_eq!(vendor(""), Err(NameError::Length(0, 1, 8)));
        assert_eq!(vendor("123456789"), Err(NameError::Length(9, 1, 8)));
        assert_eq!(vendor("a\tb"), Err(NameError::Character('\t')));
        assert_eq!(vendor("Kürzel"), Err(NameError::Character('ü')));
        assert_eq!(vendor("  "), Err(NameError::Blank));
    }
}
