//! Designators (SPC-4 7.8.6): permanent, globally unique names of a logical unit, its target and its ports.

use std::fmt;

use derive_more::Display;
use num_enum::FromPrimitive;

use crate::fields::{Hex, elements, text, u8_at, u16_at, utf8};

/// A name and the object that it identifies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Display)]
#[display("{association}: {name}")]
pub struct Designator {
    /// The object that it identifies.
    pub association: Association,
    /// PROTOCOL IDENTIFIER (SPC-4 table 468), if valid: 5 is iSCSI.
    pub protocol: Option<u8>,
    /// The name.
    pub name: Name,
}

/// The object that a designator identifies (SPC-4 table 600).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, FromPrimitive)]
#[repr(u8)]
pub enum Association {
    /// The logical unit, through whichever port it is accessed.
    #[display("logical unit")]
    LogicalUnit = 0,
    /// The target port that received the command.
    #[display("target port")]
    TargetPort = 1,
    /// The target device, with all its ports.
    #[display("target")]
    Target = 2,
    /// Reserved.
    #[display("unknown")]
    #[num_enum(default)]
    Unknown = 3,
}

/// A name, by its naming authority (SPC-4 table 601).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// 0: vendor-specific.
    VendorSpecific(Vec<u8>),
    /// 1: T10 vendor identification, and a vendor-specific identifier.
    T10 {
        /// The vendor.
        vendor: String,
        /// The vendor-specific identifier.
        name: String,
    },
    /// 2: EUI-64 based, of 8, 12 or 16 bytes.
    Eui64(Vec<u8>),
    /// 3: NAA: IEEE Extended (2), Locally Assigned (3), IEEE Registered (5) of 8 bytes, and IEEE Registered Extended
    /// (6) of 16.
    Naa(Vec<u8>),
    /// 4: the relative identifier of a target port.
    RelativeTargetPort(u16),
    /// 5: the port's group, for asymmetric access.
    TargetPortGroup(u16),
    /// 6: the logical unit's group.
    LogicalUnitGroup(u16),
    /// 7: an MD5 hash of other data, if no other name is available.
    Md5(Vec<u8>),
    /// 8: a SCSI name string: an iSCSI name, followed by `,t,0x…` for a port.
    ScsiName(String),
    /// 9: defined by the protocol: a USB address, a PCIe routing ID.
    ProtocolSpecific(Vec<u8>),
    /// 10: a UUID.
    Uuid([u8; 16]),
    /// Any other type, or one of the above with an invalid length.
    Other {
        /// DESIGNATOR TYPE.
        kind: u8,
        /// DESIGNATOR.
        bytes: Vec<u8>,
    },
}

impl Designator {
    /// Parses a designator; `None` if it is truncated.
    pub fn parse(bytes: &[u8]) -> Option<Designator> {
        let designator = bytes.get(4..4 + usize::from(*bytes.get(3)?))?;
        let association = Association::from(bytes[1] >> 4 & 3);
        let protocol = (bytes[1] & PIV != 0).then_some(bytes[0] >> 4);
        Some(Designator {
            association,
            protocol,
            name: Name::parse(bytes[1] & 0x0f, designator),
        })
    }

    /// Encodes the designator. A name is truncated to 255 bytes.
    pub fn write(&self) -> Vec<u8> {
        let (kind, code_set, bytes) = self.name.write();
        let association = (self.association as u8) << 4;
        let (protocol, piv) = self
            .protocol
            .map_or((0, 0), |protocol| (protocol << 4, PIV));
        debug_assert!(kind <= 0x0f && code_set <= 0x0f, "codes of four bits");
        let length = bytes.len().min(255);
        [
            &[
                protocol | code_set,
                piv | association | kind,
                0,
                length as u8,
            ],
            &bytes[..length],
        ]
        .concat()
    }

    /// Parses a list; it ends at the first truncated designator.
    pub fn list(bytes: &[u8]) -> Vec<Designator> {
        let length = |rest: &[u8]| Some(4 + usize::from(*rest.get(3)?));
        elements(bytes, length)
            .filter_map(Designator::parse)
            .collect()
    }

    /// DESIGNATOR TYPE and DESIGNATOR for EXTENDED COPY; `None` unless the name is globally unique and fits.
    pub fn for_copy(&self) -> Option<(u8, Vec<u8>)> {
        let (kind, _, bytes) = self.name.write();
        let fits = bytes.len() <= crate::CopyTarget::DESIGNATOR_BYTES_MAX;
        (matches!(self.name, Name::Naa(_) | Name::Eui64(_)) && fits).then_some((kind, bytes))
    }
}

impl Name {
    /// A SCSI name string of a target port (RFC 7143 4.4.2): the iSCSI name and the portal group tag.
    pub fn iscsi_target_port(name: &str, group: u16) -> Name {
        Name::ScsiName(format!("{name},t,0x{group:04x}"))
    }

    /// Encodes DESIGNATOR.
    pub fn designator(&self) -> Vec<u8> {
        self.write().2
    }

    /// DESIGNATOR TYPE, CODE SET (1 binary, 2 ASCII, 3 UTF-8) and DESIGNATOR.
    fn write(&self) -> (u8, u8, Vec<u8>) {
        let relative = |number: &u16| [&[0, 0], &number.to_be_bytes()[..]].concat();
        match self {
            Name::VendorSpecific(bytes) => (0, 1, bytes.clone()),
            Name::T10 { vendor, name } => (1, 2, format!("{vendor:<8}{name}").into_bytes()),
            Name::Eui64(bytes) => (2, 1, bytes.clone()),
            Name::Naa(bytes) => (3, 1, bytes.clone()),
            Name::RelativeTargetPort(port) => (4, 1, relative(port)),
            Name::TargetPortGroup(group) => (5, 1, relative(group)),
            Name::LogicalUnitGroup(group) => (6, 1, relative(group)),
            Name::Md5(bytes) => (7, 1, bytes.clone()),
            // Ends with at least one NUL; the length is a multiple of four (SPC-4 7.8.6.11).
            Name::ScsiName(name) => {
                let mut bytes = name.as_bytes().to_vec();
                bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
                debug_assert!(
                    bytes.ends_with(&[0]) && bytes.len().is_multiple_of(4),
                    "SPC-4 7.8.6.11"
                );
                (8, 3, bytes)
            }
            Name::ProtocolSpecific(bytes) => (9, 1, bytes.clone()),
            Name::Uuid(uuid) => (10, 1, [&[0x10, 0], &uuid[..]].concat()),
            Name::Other { kind, bytes } => (*kind, 1, bytes.clone()),
        }
    }

    fn parse(kind: u8, bytes: &[u8]) -> Name {
        let owned = bytes.to_vec();
        match (kind, bytes.len()) {
            (0, _) => Name::VendorSpecific(owned),
            (1, 8..) => Name::T10 {
                vendor: text(bytes, 0..8),
                name: text(bytes, 8..bytes.len()),
            },
            (2, 8 | 12 | 16) => Name::Eui64(owned),
            (3, length) if length == naa_bytes(bytes) => Name::Naa(owned),
            (4, 4) => Name::RelativeTargetPort(u16_at(bytes, 2)),
            (5, 4) => Name::TargetPortGroup(u16_at(bytes, 2)),
            (6, 4) => Name::LogicalUnitGroup(u16_at(bytes, 2)),
            (7, 16) => Name::Md5(owned),
            (8, _) => Name::ScsiName(utf8(bytes)),
            (9, _) => Name::ProtocolSpecific(owned),
            (10, 18) => bytes
                .last_chunk()
                .map_or(Name::Other { kind, bytes: owned }, |uuid| Name::Uuid(*uuid)),
            (kind, _) => Name::Other { kind, bytes: owned },
        }
    }
}

/// PROTOCOL IDENTIFIER is valid.
const PIV: u8 = 0x80;

/// The length of an NAA designator, from its first four bits (SPC-4 table 606).
fn naa_bytes(bytes: &[u8]) -> usize {
    match u8_at(bytes, 0) >> 4 {
        2 | 3 | 5 => 8,
        6 => 16,
        _ => usize::MAX,
    }
}

/// `naa.600…`, `eui.…`, `t10.…` in the notation of multipath tools and operating systems.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::VendorSpecific(bytes) => write!(f, "vendor.{}", Hex(bytes)),
            Name::T10 { vendor, name } => write!(f, "t10.{vendor} {name}"),
            Name::Eui64(bytes) => write!(f, "eui.{}", Hex(bytes)),
            Name::Naa(bytes) => write!(f, "naa.{}", Hex(bytes)),
            Name::RelativeTargetPort(port) => write!(f, "relative target port {port}"),
            Name::TargetPortGroup(group) => write!(f, "target port group {group}"),
            Name::LogicalUnitGroup(group) => write!(f, "logical unit group {group}"),
            Name::Md5(bytes) => write!(f, "md5.{}", Hex(bytes)),
            Name::ScsiName(name) => f.write_str(name),
            Name::ProtocolSpecific(bytes) => write!(f, "protocol-specific {}", Hex(bytes)),
            Name::Uuid(bytes) => {
                let [a, b, c, d, e] = [
                    &bytes[..4],
                    &bytes[4..6],
                    &bytes[6..8],
                    &bytes[8..10],
                    &bytes[10..],
                ];
                write!(
                    f,
                    "uuid.{}-{}-{}-{}-{}",
                    Hex(a),
                    Hex(b),
                    Hex(c),
                    Hex(d),
                    Hex(e)
                )
            }
            Name::Other { kind, bytes } => write!(f, "designator of type {kind}: {}", Hex(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(code: [u8; 2], bytes: &[u8]) -> String {
        let head = [code[0], code[1], 0, bytes.len() as u8];
        Designator::parse(&[&head, bytes].concat())
            .unwrap()
            .to_string()
    }

    #[test]
    fn every_kind_has_its_words() {
        assert_eq!(
            named([1, 0x03], &[0x50, 1, 2, 3, 4, 5, 6, 7]),
            "logical unit: naa.5001020304050607"
        );
        assert_eq!(
            named([1, 0x03], &[0x60; 16]),
            format!("logical unit: naa.{}", "60".repeat(16))
        );
        assert_eq!(
            named([1, 0x02], &[7; 8]),
            format!("logical unit: eui.{}", "07".repeat(8))
        );
        assert_eq!(
            named([2, 0x01], b"IET     disk 1"),
            "logical unit: t10.IET disk 1"
        );
        assert_eq!(
            named([0x51, 0x94], &[0, 0, 1, 2]),
            "target port: relative target port 258"
        );
        assert_eq!(
            named([0x51, 0x95], &[0, 0, 0, 3]),
            "target port: target port group 3"
        );
        assert_eq!(
            named([0x01, 0x06], &[0, 0, 0, 4]),
            "logical unit: logical unit group 4"
        );
        assert_eq!(
            named([0x53, 0xa8], b"iqn.2026-01.io:x\0\0\0\0"),
            "target: iqn.2026-01.io:x"
        );
        let uuid = [&[0x10, 0][..], &(0u8..16).collect::<Vec<_>>()].concat();
        assert_eq!(
            named([1, 0x0a], &uuid),
            "logical unit: uuid.00010203-0405-0607-0809-0a0b0c0d0e0f"
        );
    }

    #[test]
    fn a_name_of_the_wrong_length_is_shown_as_it_is() {
        assert_eq!(
            named([1, 0x03], &[0x50, 1]),
            "logical unit: designator of type 3: 5001"
        );
        assert_eq!(
            named([1, 0x04], &[1]),
            "logical unit: designator of type 4: 01"
        );
    }

    #[test]
    fn a_list_ends_where_it_is_cut_short() {
        let list = [1, 3, 0, 8, 0x50, 1, 2, 3, 4, 5, 6, 7, 1, 3, 0, 8, 0x50];
        assert_eq!(Designator::list(&list).len(), 1);
    }

    /// The designators of a Linerate logical unit and its port.
    #[test]
    fn designators_look_as_in_the_standard() {
        let of_target = |name| Designator {
            association: Association::Target,
            protocol: Some(5),
            name,
        };
        assert_eq!(
            of_target(Name::ScsiName("iqn.x:y".into())).write(),
            *b"\x53\xa8\0\x08iqn.x:y\0"
        );
        let of_port = |name| Designator {
            association: Association::TargetPort,
            protocol: Some(5),
            name,
        };
        assert_eq!(
            of_port(Name::RelativeTargetPort(258)).write(),
            [0x51, 0x94, 0, 4, 0, 0, 1, 2]
        );
        assert_eq!(
            of_port(Name::iscsi_target_port("iqn.x:y", 1))
                .name
                .to_string(),
            "iqn.x:y,t,0x0001"
        );
        let of_unit = |name| Designator {
            association: Association::LogicalUnit,
            protocol: None,
            name,
        };
        let name = Name::T10 {
            vendor: "IET".into(),
            name: "disk 1".into(),
        };
        assert_eq!(of_unit(name).write(), *b"\x02\x01\0\x0eIET     disk 1");
    }

    fn name() -> impl Strategy<Value = Name> {
        let bytes = |length| prop::collection::vec(any::<u8>(), length);
        prop_oneof![
            bytes(9).prop_map(Name::VendorSpecific),
            ("[A-Z]{1,8}", "[a-z0-9]{0,20}").prop_map(|(vendor, name)| Name::T10 { vendor, name }),
            bytes(12).prop_map(Name::Eui64),
            bytes(15).prop_map(|bytes| Name::Naa([vec![0x60], bytes].concat())),
            any::<u16>().prop_map(Name::RelativeTargetPort),
            any::<u16>().prop_map(Name::TargetPortGroup),
            any::<u16>().prop_map(Name::LogicalUnitGroup),
            bytes(16).prop_map(Name::Md5),
            "[a-z0-9.:,]{0,223}".prop_map(Name::ScsiName),
            bytes(4).prop_map(Name::ProtocolSpecific),
            any::<[u8; 16]>().prop_map(Name::Uuid),
        ]
    }

    proptest! {
        #[test]
        fn a_name_comes_back_as_it_was(name in name(), protocol in prop::option::of(0u8..16)) {
            let designator = Designator { association: Association::TargetPort, protocol, name };
            prop_assert_eq!(Designator::parse(&designator.write()), Some(designator));
        }

        #[test]
        fn any_list_is_read(bytes in prop::collection::vec(any::<u8>(), 0..96)) {
            for designator in Designator::list(&bytes) {
                designator.for_copy();
                prop_assert!(!designator.to_string().chars().any(char::is_control));
            }
        }
    }
}
