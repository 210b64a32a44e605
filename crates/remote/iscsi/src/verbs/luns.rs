//! REPORT LUNS (SPC-4 6.33), and what the forms of a LUN say (SAM-5 4.7).

use std::fmt;

use iscsi::pdu::Lun;
use scsi::cdb;

use super::VerbError;
use super::fields::{Hex, u32_at, u64_at};
use crate::unit::Unit;

/// Which LUNs are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LunSelection {
    /// Those of logical units that store something.
    Ordinary,
    /// Those of well-known logical units.
    WellKnown,
    /// All.
    All,
}

/// What a LUN says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LunAddress {
    /// A logical unit of the target itself, by its number: peripheral, flat space and extended flat space addressing.
    Number(u64),
    /// A well-known logical unit.
    WellKnown(u8),
    /// Something behind a bridge: several levels, or a bus.
    Hierarchical(Lun),
    /// No logical unit, as far as the standard tells.
    Reserved(Lun),
}

impl LunAddress {
    /// What an address says.
    pub fn of(lun: Lun) -> LunAddress {
        let bytes = lun.0.to_be_bytes();
        let [first, second, ..] = bytes;
        let (one_level, is_flat) = (bytes[2..] == [0; 6], first >> 6 == 1);
        match first {
            0 if one_level => LunAddress::Number(u64::from(second)),
            _ if is_flat && one_level => LunAddress::Number(lun.0 >> 48 & 0x3fff),
            0xc1 if one_level => LunAddress::WellKnown(second),
            // Extended flat space addressing: 3 and 5 bytes (SAM-5 4.7.7.5.2 and 4.7.7.5.3).
            0xd2 if bytes[4..] == [0; 4] => LunAddress::Number(lun.0 >> 32 & 0xff_ffff),
            0xe2 if bytes[6..] == [0; 2] => LunAddress::Number(lun.0 >> 16 & 0xff_ffff_ffff),
            0xc0.. => LunAddress::Reserved(lun),
            _ => LunAddress::Hierarchical(lun),
        }
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
            LunAddress::Hierarchical(lun) => write!(f, "hierarchical {}", Hex(&lun.0.to_be_bytes())),
            LunAddress::Reserved(lun) => write!(f, "reserved {}", Hex(&lun.0.to_be_bytes())),
        }
    }
}

const NAME: &str = "REPORT LUNS";
/// LUNs that are asked for at first.
const FIRST: u32 = 255;
/// LUNs that are asked for at most: a target has 16,384 by two bytes of an address.
const MOST: u32 = 0x1_0000;
const HEADER_BYTES: u32 = 8;

impl Unit {
    /// Asks which logical units the target has for us. Any of its LUNs may be asked, 0 before all.
    pub async fn report_luns(&self, which: LunSelection) -> Result<Vec<Lun>, VerbError> {
        let select = match which {
            LunSelection::Ordinary => 0,
            LunSelection::WellKnown => 1,
            LunSelection::All => 2,
        };
        let cdb = |bytes| cdb::report_luns_of(select, bytes);
        let answer =
            self.ask_all(NAME, cdb, HEADER_BYTES + 8 * FIRST, HEADER_BYTES + 8 * MOST, whole).await?;
        parse(&answer).ok_or(VerbError::Nonsense(NAME))
    }
}

/// LUN LIST LENGTH does not count the header.
fn whole(answer: &[u8]) -> u64 {
    u64::from(HEADER_BYTES) + u64::from(u32_at(answer, 0))
}

fn parse(answer: &[u8]) -> Option<Vec<Lun>> {
    let list = answer.get(HEADER_BYTES as usize..)?;
    let length = list.len().min(u32_at(answer, 0) as usize);
    Some(list[..length].chunks_exact(8).map(|lun| Lun(u64_at(lun, 0))).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::unit::address;

    fn words(bytes: [u8; 8]) -> String {
        LunAddress::of(Lun(u64::from_be_bytes(bytes))).to_string()
    }

    #[test]
    fn every_form_says_what_it_is() {
        assert_eq!(words([0, 5, 0, 0, 0, 0, 0, 0]), "5");
        assert_eq!(words([0x41, 0x2c, 0, 0, 0, 0, 0, 0]), "300");
        assert_eq!(words([0xd2, 1, 0, 0, 0, 0, 0, 0]), "65536");
        assert_eq!(words([0xe2, 0, 0, 0, 1, 0, 0, 0]), "256");
        assert_eq!(words([0xc1, 1, 0, 0, 0, 0, 0, 0]), "well-known 01h (REPORT LUNS)");
        assert_eq!(words([1, 2, 0, 3, 0, 0, 0, 0]), "hierarchical 0102000300000000");
        assert_eq!(words([0, 2, 0, 3, 0, 0, 0, 0]), "hierarchical 0002000300000000");
        assert_eq!(words([0x80, 2, 0, 0, 0, 0, 0, 0]), "hierarchical 8002000000000000");
        assert_eq!(words([0xff; 8]), "reserved ffffffffffffffff");
    }

    #[test]
    fn a_list_ends_where_its_header_says() {
        let answer = [&[0, 0, 0, 8, 0, 0, 0, 0][..], &[0, 1, 0, 0, 0, 0, 0, 0], &[9; 8]].concat();
        assert_eq!(parse(&answer), Some(vec![address(1)]));
        assert_eq!(parse(&[0xff; 12]), Some(vec![]));
        assert_eq!(parse(&[0; 7]), None);
    }

    proptest! {
        #[test]
        fn a_number_written_is_the_number_read(number: u16) {
            prop_assert_eq!(LunAddress::of(address(number)), LunAddress::Number(u64::from(number)));
        }

        #[test]
        fn any_lun_has_words(lun: u64) {
            prop_assert!(!LunAddress::of(Lun(lun)).to_string().is_empty());
        }
    }
}
