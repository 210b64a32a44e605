//! INQUIRY (SPC-4 6.6): identity and capabilities of a logical unit.

use crate::fields::{text, u8_at, u16_at};

/// The standard data (SPC-4 6.6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// PERIPHERAL QUALIFIER: 0 if a device is connected, 1 if one could be, 3 if none can be.
    pub qualifier: u8,
    /// PERIPHERAL DEVICE TYPE: [`device_type`] returns its name.
    pub device_type: u8,
    /// The medium is removable.
    pub removable: bool,
    /// HISUP: its LUNs have the format of SAM-5 4.7.
    pub hierarchical_luns: bool,
    /// VERSION: 6 is SPC-4, 7 SPC-5.
    pub version: u8,
    /// T10 VENDOR IDENTIFICATION.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// PRODUCT REVISION LEVEL.
    pub revision: String,
    /// TPGS: 1 or 3 if the target supports implicit changes of the access states of its ports; 2 or 3 if it
    /// supports explicit changes.
    pub target_port_groups: u8,
    /// 3PC: it supports third-party copy commands such as EXTENDED COPY.
    pub third_party_copy: bool,
    /// MULTIP: it may be accessible through several target ports.
    pub several_ports: bool,
    /// PROTECT: it supports protection information.
    pub protection: bool,
    /// CMDQUE: it supports command queuing.
    pub command_queuing: bool,
    /// VERSION DESCRIPTORS: the numbers of the standards with which the logical unit claims conformance;
    /// [`standard_name`] returns their names.
    pub standards: Vec<u16>,
}

impl Inquiry {
    /// Length of the fixed fields and the version descriptors; vendor-specific fields follow.
    pub const BYTES: usize = 96;

    /// Parses the data; `None` if it is too short.
    pub fn parse(data: &[u8]) -> Option<Inquiry> {
        let first = *data.get(..5)?.first()?;
        Some(Inquiry {
            qualifier: first >> 5,
            device_type: first & 0x1f,
            removable: data[1] & 0x80 != 0,
            hierarchical_luns: data[3] & 0x10 != 0,
            version: data[2],
            vendor: text(data, 8..16),
            product: text(data, 16..32),
            revision: text(data, 32..36),
            target_port_groups: u8_at(data, 5) >> 4 & 3,
            third_party_copy: u8_at(data, 5) & 0x08 != 0,
            several_ports: u8_at(data, 6) & 0x10 != 0,
            protection: u8_at(data, 5) & 0x01 != 0,
            command_queuing: u8_at(data, 7) & 0x02 != 0,
            standards: (58..74)
                .step_by(2)
                .map(|at| u16_at(data, at))
                .filter(|number| *number != 0)
                .collect(),
        })
    }

    /// Encodes the data in RESPONSE DATA FORMAT 2, with at most the first eight standards.
    pub fn write(&self) -> Vec<u8> {
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        let (tpgs, multip) = (self.target_port_groups << 4, flag(self.several_ports, 0x10));
        let mut data = vec![
            self.qualifier << 5 | self.device_type,
            flag(self.removable, 0x80),
            self.version,
            flag(self.hierarchical_luns, 0x10) | 2,
            Self::BYTES as u8 - 5,
            tpgs | flag(self.third_party_copy, 0x08) | flag(self.protection, 0x01),
            multip,
            flag(self.command_queuing, 0x02),
        ];
        for (text, bytes) in [(&self.vendor, 8), (&self.product, 16), (&self.revision, 4)] {
            data.extend(text.bytes().chain(std::iter::repeat(b' ')).take(bytes));
        }
        debug_assert_eq!(data.len(), 36, "the standard's first part");
        data.resize(58, 0);
        data.extend(
            self.standards
                .iter()
                .take(8)
                .flat_map(|number| number.to_be_bytes()),
        );
        debug_assert!(
            data.len() <= Self::BYTES,
            "more standards than the field has space for"
        );
        data.resize(Self::BYTES, 0);
        data
    }

    /// Whether it is a block device: a disk, or optical memory with the same commands (SPC-4 table 142).
    pub fn is_disk(&self) -> bool {
        matches!(self.device_type, 0x00 | 0x07)
    }

    /// Whether a device is connected at this address.
    pub fn is_there(&self) -> bool {
        self.qualifier == 0
    }

    /// The name of the SPC version with which it claims conformance.
    pub fn version_name(&self) -> &'static str {
        match self.version {
            0 => "no standard",
            3 => "SPC",
            4 => "SPC-2",
            5 => "SPC-3",
            6 => "SPC-4",
            7 => "SPC-5",
            8 => "SPC-6",
            _ => "an unknown version",
        }
    }
}

/// The name of a PERIPHERAL DEVICE TYPE (SPC-4 table 142).
pub fn device_type(code: u8) -> &'static str {
    match code & 0x1f {
        0x00 => "disk",
        0x01 => "tape",
        0x02 => "printer",
        0x03 => "processor",
        0x04 => "write-once device",
        0x05 => "CD or DVD",
        0x07 => "optical memory",
        0x08 => "medium changer",
        0x0c => "storage array controller",
        0x0d => "enclosure",
        0x0e => "simplified disk",
        0x0f => "optical card",
        0x10 => "bridge controller",
        0x11 => "object storage",
        0x12 => "automation drive interface",
        0x13 => "security manager",
        0x14 => "zoned disk",
        0x1e => "well-known logical unit",
        0x1f => "unknown device, or none",
        _ => "device of a reserved type",
    }
}

/// The name of a standard by its version descriptor, regardless of the revision; `None` for standards that do
/// not apply to disks. Each standard has 32 numbers (SPC-4 table 145): one for the standard itself, and
/// others for its drafts.
pub fn standard_name(number: u16) -> Option<&'static str> {
    Some(match number & !0x1f {
        0x0020 => "SAM",
        0x0040 => "SAM-2",
        0x0060 => "SAM-3",
        0x0080 => "SAM-4",
        0x00a0 => "SAM-5",
        0x0120 => "SPC",
        0x0180 => "SBC",
        0x0260 => "SPC-2",
        0x0300 => "SPC-3",
        0x0320 => "SBC-2",
        0x0460 => "SPC-4",
        0x04c0 => "SBC-3",
        0x05c0 => "SPC-5",
        0x0600 => "SBC-4",
        0x0620 => "ZBC",
        0x0960 => "iSCSI",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The relevant INQUIRY data of a disk of tgt 1.0.85.
    fn tgt() -> Vec<u8> {
        let mut data = vec![0, 0, 5, 2, 61, 0, 0, 2];
        data.extend(b"IET     VIRTUAL-DISK    0001");
        data.resize(58, 0);
        data.extend([0x09, 0x60, 0x03, 0x00]);
        data.resize(66, 0);
        data
    }

    #[test]
    fn a_disk_introduces_itself() {
        let disk = Inquiry::parse(&tgt()).unwrap();
        assert_eq!(
            (disk.vendor.as_str(), disk.product.as_str()),
            ("IET", "VIRTUAL-DISK")
        );
        assert_eq!(
            (disk.is_there(), device_type(disk.device_type)),
            (true, "disk")
        );
        assert_eq!((disk.version_name(), disk.command_queuing), ("SPC-3", true));
        let names: Vec<_> = disk
            .standards
            .iter()
            .map(|number| standard_name(*number))
            .collect();
        assert_eq!(names, [Some("iSCSI"), Some("SPC-3")]);
    }

    #[test]
    fn an_empty_address_says_so() {
        let empty = Inquiry::parse(&[0x7f, 0, 5, 2, 0]).unwrap();
        assert!(!empty.is_there());
        assert_eq!(empty.vendor, "");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            device_type in 0u8..32, flags: [bool; 6], version: u8, vendor in "[A-Z]{0,8}", product in "[A-Z0-9]{0,16}",
            target_port_groups in 0u8..4, standards in prop::collection::vec(1u16.., 0..8),
        ) {
            let [removable, hierarchical_luns, third_party_copy, several_ports, protection, command_queuing] = flags;
            let inquiry = Inquiry {
                qualifier: 0, device_type, removable, hierarchical_luns, version, vendor, product, revision: "1".into(),
                target_port_groups, third_party_copy, several_ports, protection, command_queuing, standards,
            };
            prop_assert_eq!(Inquiry::parse(&inquiry.write()), Some(inquiry));
        }

        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..96)) {
            prop_assert_eq!(Inquiry::parse(&bytes).is_some(), bytes.len() >= 5);
        }
    }
}
