//! LUNs (SAM-5 4.7): their address methods, and REPORT LUNS (SPC-4 6.33).

use std::fmt;

use crate::fields::{Hex, u32_at, u64_at};

/// The requested LUNs: SELECT REPORT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LunSelection {
    /// The LUNs of logical units that are not well-known.
    Ordinary = 0,
    /// The LUNs of well-known logical units.
    WellKnown = 1,
    /// All LUNs.
    All = 2,
}

/// The LUN of the REPORT LUNS well-known logical unit (SAM-5 4.7.7.5.1).
pub const REPORT_LUNS_WELL_KNOWN: u64 = 0xc101_0000_0000_0000;

/// A decoded LUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LunAddress {
    /// A logical unit of the target itself, by number: peripheral, flat space and extended flat space addressing.
    Number(u64),
    /// A well-known logical unit.
    WellKnown(u8),
    /// A logical unit behind a bridge: several levels, or a bus.
    Hierarchical(u64),
    /// Reserved by the standard.
    Reserved(u64),
}

impl LunAddress {
    /// Decodes an address.
    pub fn parse(lun: u64) -> LunAddress {
        let bytes = lun.to_be_bytes();
        match bytes[0] {
            _ if flat_number(lun).is_some() => LunAddress::Number(lun >> 48 & 0x3fff),
            0xc1 if bytes[2..] == [0; 6] => LunAddress::WellKnown(bytes[1]),
            // Extended flat space addressing: 3 and 5 bytes (SAM-5 4.7.7.5.2 and 4.7.7.5.3).
            0xd2 if bytes[4..] == [0; 4] => LunAddress::Number(lun >> 32 & 0xff_ffff),
            0xe2 if bytes[6..] == [0; 2] => LunAddress::Number(lun >> 16 & 0xff_ffff_ffff),
            0xc0.. => LunAddress::Reserved(lun),
            _ => LunAddress::Hierarchical(lun),
        }
    }

    /// Encodes the address as a target reports it: peripheral device addressing below 256, flat space
    /// addressing below 16,384, and extended flat space addressing from 16,384 (SAM-5 4.7.7.2, 4.7.7.4 and
    /// 4.7.7.5).
    pub fn write(self) -> u64 {
        match self {
            LunAddress::Number(number @ 0..=0xff) => number << 48,
            LunAddress::Number(number @ 0x100..=0x3fff) => (0x4000 | number) << 48,
            LunAddress::Number(number @ 0x4000..=0xff_ffff) => (0xd200_0000 | number) << 32,
            LunAddress::Number(number) => 0xe2 << 56 | (number & 0xff_ffff_ffff) << 16,
            LunAddress::WellKnown(number) => 0xc1 << 56 | u64::from(number) << 48,
            LunAddress::Hierarchical(lun) | LunAddress::Reserved(lun) => lun,
        }
    }
}

/// The number in a single-level address that an initiator has composed; `None` for other addresses. The
/// address uses flat space addressing, or peripheral device addressing (SAM-5 4.7.7.2) with the bus
/// identifier as bits 8 to 13 of the number: libiscsi, QEMU and LIO write LUN 256 as 0100h, and a target
/// without buses has no other use for this address.
#[inline]
pub fn flat_number(lun: u64) -> Option<u16> {
    let first = (lun >> 48) as u16;
    if lun & 0x0000_ffff_ffff_ffff != 0 {
        return None;
    }
    match first >> 14 {
        0b00 | 0b01 => Some(first & 0x3fff),
        _ => None,
    }
}

impl fmt::Display for LunAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LunAddress::Number(number) => write!(f, "{number}"),
            LunAddress::WellKnown(0x01) => write!(f, "well-known 01h (REPORT LUNS)"),
            LunAddress::WellKnown(0x02) => write!(f, "well-known 02h (ACCESS CONTROLS)"),
            LunAddress::WellKnown(0x03) => write!(f, "well-known 03h (TARGET LOG PAGES)"),
            LunAddress::WellKnown(0x04) => write!(f, "well-known 04h (SECURITY PROTOCOL)"),
            LunAddress::WellKnown(0x05) => write!(f, "well-known 05h (MANAGEMENT PROTOCOL)"),
            LunAddress::WellKnown(other) => write!(f, "well-known {other:02x}h"),
            LunAddress::Hierarchical(lun) => write!(f, "hierarchical {}", Hex(&lun.to_be_bytes())),
            LunAddress::Reserved(lun) => write!(f, "reserved {}", Hex(&lun.to_be_bytes())),
        }
    }
}

/// The parameter data of REPORT LUNS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LunList {
    /// The addresses in wire format.
    pub luns: Vec<u64>,
}

impl LunList {
    /// Parses the parameter data; `None` if it is too short for a header.
    pub fn parse(answer: &[u8]) -> Option<LunList> {
        let list = answer.get(8..)?;
        let length = list.len().min(u32_at(answer, 0) as usize);
        Some(LunList {
            luns: list[..length]
                .chunks_exact(8)
                .map(|lun| u64_at(lun, 0))
                .collect(),
        })
    }

    /// Encodes the parameter data. LUN LIST LENGTH does not include the header.
    pub fn write(&self) -> Vec<u8> {
        let length = u32::try_from(self.luns.len() * 8).unwrap_or(!7);
        let mut data = [length.to_be_bytes(), [0; 4]].concat();
        data.extend(self.luns.iter().flat_map(|lun| lun.to_be_bytes()));
        debug_assert_eq!(data.len(), 8 * (1 + self.luns.len()));
        data
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(bytes: [u8; 8]) -> String {
        LunAddress::parse(u64::from_be_bytes(bytes)).to_string()
    }

    #[test]
    fn every_form_says_what_it_is() {
        assert_eq!(words([0, 5, 0, 0, 0, 0, 0, 0]), "5");
        assert_eq!(words([0x41, 0x2c, 0, 0, 0, 0, 0, 0]), "300");
        assert_eq!(words([0xd2, 1, 0, 0, 0, 0, 0, 0]), "65536");
        assert_eq!(words([0xe2, 0, 0, 0, 1, 0, 0, 0]), "256");
        assert_eq!(
            words([0xc1, 1, 0, 0, 0, 0, 0, 0]),
            "well-known 01h (REPORT LUNS)"
        );
        assert_eq!(
            words([1, 2, 0, 3, 0, 0, 0, 0]),
            "hierarchical 0102000300000000"
        );
        assert_eq!(
            words([0, 2, 0, 3, 0, 0, 0, 0]),
            "hierarchical 0002000300000000"
        );
        assert_eq!(
            words([0x80, 2, 0, 0, 0, 0, 0, 0]),
            "hierarchical 8002000000000000"
        );
        assert_eq!(words([0xff; 8]), "reserved ffffffffffffffff");
    }

    #[test]
    fn numbers_are_written_in_the_shortest_form() {
        let written = |number| LunAddress::Number(number).write();
        assert_eq!(
            (written(3), written(300)),
            (0x0003_0000_0000_0000, 0x412c_0000_0000_0000)
        );
        assert_eq!(
            (written(0x8001), written(1 << 24)),
            (0xd200_8001_0000_0000, 0xe200_0100_0000_0000)
        );
        assert_eq!(LunAddress::WellKnown(1).write(), REPORT_LUNS_WELL_KNOWN);
    }

    #[test]
    fn only_flat_forms_have_a_flat_number() {
        assert_eq!(flat_number(0x0001_0002_0000_0000), None);
        assert_eq!(
            flat_number(0x0101_0000_0000_0000),
            Some(257),
            "as libiscsi writes it"
        );
        assert_eq!(flat_number(0x412c_0000_0000_0000), Some(300));
        assert_eq!(flat_number(REPORT_LUNS_WELL_KNOWN), None);
        assert_eq!(
            flat_number(0x4003_0000_0000_0000),
            Some(3),
            "flat space addressing of a small number"
        );
    }

    #[test]
    fn a_list_ends_where_its_header_says() {
        let answer = [
            &[0, 0, 0, 8, 0, 0, 0, 0][..],
            &[0, 1, 0, 0, 0, 0, 0, 0],
            &[9; 8],
        ]
        .concat();
        assert_eq!(
            LunList::parse(&answer),
            Some(LunList {
                luns: vec![1 << 48]
            })
        );
        assert_eq!(LunList::parse(&[0xff; 12]), Some(LunList::default()));
        assert_eq!(LunList::parse(&[0; 7]), None);
    }

    proptest! {
        #[test]
        fn a_number_written_is_the_number_read(number in 0u64..1 << 40) {
            prop_assert_eq!(LunAddress::parse(LunAddress::Number(number).write()), LunAddress::Number(number));
        }

        #[test]
        fn any_lun_has_words(lun: u64) {
            prop_assert!(!LunAddress::parse(lun).to_string().is_empty());
        }

        #[test]
        fn a_list_comes_back_as_it_was(luns: Vec<u64>) {
            let list = LunList { luns };
            prop_assert_eq!(LunList::parse(&list.write()), Some(list));
        }
    }
}
