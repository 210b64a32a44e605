//! Vital product data pages (SPC-4 7.8, SBC-3 6.6): the fixed properties of a logical unit.

use std::fmt;

use crate::designator::Designator;
use crate::fields::{Field, FieldAt, Hex, elements, layout, read_all, text, u16_at};
use crate::transport_id::TransportId;

/// A VPD page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vpd {
    /// PAGE CODE: [`page_name`] returns its name.
    pub code: u8,
    /// The content.
    pub content: VpdContent,
    /// The whole page, as received.
    pub bytes: Vec<u8>,
}

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VpdContent {
    /// 00h: the supported pages.
    Pages(Vec<u8>),
    /// 80h: the serial number.
    SerialNumber(String),
    /// 83h: device identification.
    Designators(Vec<Designator>),
    /// 87h: mode page policies.
    ModePagePolicies(Vec<Policy>),
    /// 88h: the target's ports.
    Ports(Vec<Port>),
    /// Pages that consist of numbers and flags.
    Fields(Vec<Field>),
    /// Vendor-specific pages, and those that are not parsed here.
    Bytes(Vec<u8>),
}

/// No bytes.
impl Default for VpdContent {
    fn default() -> VpdContent {
        VpdContent::Bytes(Vec::new())
    }
}

layout! {
    /// The sharing of a mode page (SPC-4 7.8.10).
    Policy: 4 bytes,
    {
        page: u8 = (0, 5, 6, "POLICY PAGE CODE", "3Fh: all other pages"),
        subpage: u8 = (1, 7, 8, "POLICY SUBPAGE CODE", "FFh: all other subpages"),
        several_units: bool = (2, 7, 1, "MLUS", "it is shared by several logical units"),
        policy: u8 =
            (2, 1, 2, "MODE PAGE POLICY", "0 shared, 1 one for each target port, 3 one for each I_T nexus"),
    }
}

/// A port of the target (SPC-4 7.8.14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// RELATIVE PORT IDENTIFIER.
    pub relative: u16,
    /// Its name as an initiator port, if it is also an initiator port.
    pub initiator: Option<TransportId>,
    /// Its names as a target port.
    pub designators: Vec<Designator>,
}

impl Vpd {
    /// Parses a page; `None` if it is a different page.
    pub fn parse(code: u8, data: &[u8]) -> Option<Vpd> {
        let length = usize::from(u16_at(data.get(..4)?, 2));
        if data[1] != code {
            return None;
        }
        let data = &data[..data.len().min(4 + length)];
        let content = definition(code).map_or(bytes as Read, |(_, _, read)| *read)(data);
        Some(Vpd {
            code,
            content,
            bytes: data.to_vec(),
        })
    }

    /// Encodes a page of a connected disk: header and content. The content is truncated to 65,535 bytes.
    pub fn write(code: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
        [
            &[0, code],
            &length.to_be_bytes()[..],
            &content[..usize::from(length)],
        ]
        .concat()
    }
}

impl Port {
    fn length(bytes: &[u8]) -> Option<usize> {
        let designators = 12 + usize::from(u16_at(bytes.get(..8)?, 6));
        Some(designators + usize::from(u16_at(bytes.get(..designators)?, designators - 2)))
    }

    fn parse(bytes: &[u8]) -> Option<Port> {
        let initiator = usize::from(u16_at(bytes, 6));
        let initiator_end = 8 + initiator;
        Some(Port {
            relative: u16_at(bytes, 2),
            initiator: (initiator > 0)
                .then(|| TransportId::parse(&bytes[8..initiator_end]))
                .flatten(),
            designators: Designator::list(bytes.get(initiator_end + 4..)?),
        })
    }

    /// Encodes the port.
    pub fn write(&self) -> Vec<u8> {
        let initiator = self
            .initiator
            .as_ref()
            .map(TransportId::write)
            .unwrap_or_default();
        let designators = self
            .designators
            .iter()
            .map(Designator::write)
            .collect::<Vec<_>>()
            .concat();
        let mut port = vec![0, 0];
        port.extend(self.relative.to_be_bytes());
        port.extend([0; 2]);
        port.extend((initiator.len() as u16).to_be_bytes());
        port.extend(initiator);
        port.extend([0; 2]);
        debug_assert!(
            designators.len() <= usize::from(u16::MAX),
            "designators beyond their length"
        );
        port.extend((designators.len() as u16).to_be_bytes());
        port.extend(designators);
        port
    }
}

/// Page C0h of a Linerate target: the generation of its cache. While the generation stays the same, no
/// acknowledged write has been lost.
///
/// A new I_T nexus receives a POWER ON unit attention whether or not the target was restarted. An initiator
/// that reconnects therefore needs this page to determine whether its unflushed writes are lost. The write
/// verifier of NFS serves the same purpose (RFC 1813 3.3.7).
///
/// ```text
///   4..12   "LINERATE"
///  12       1, the version
///  13..16   reserved
///  16..32   the generation, to be compared for equality only
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheGeneration(pub [u8; 16]);

impl CacheGeneration {
    /// Parses the page with its header; `None` if it is another vendor's.
    pub fn parse(page: &[u8]) -> Option<CacheGeneration> {
        let generation = page.get(4..)?.strip_prefix(b"LINERATE\x01")?.get(3..)?;
        generation.first_chunk().copied().map(CacheGeneration)
    }

    /// Encodes the page with its header.
    pub fn write(self) -> Vec<u8> {
        Vpd::write(0xc0, &[&b"LINERATE\x01\0\0\0"[..], &self.0].concat())
    }
}

/// The name of a page in the standard.
pub fn page_name(code: u8) -> &'static str {
    match definition(code) {
        Some((_, name, _)) => name,
        None if code >= 0xc0 => "vendor-specific",
        None => "reserved",
    }
}

/// Parses a page with its header.
type Read = fn(&[u8]) -> VpdContent;

fn definition(code: u8) -> Option<&'static (u8, &'static str, Read)> {
    PAGES.iter().find(|(known, _, _)| *known == code)
}

/// The standard pages of disks: code, name, and parser.
const PAGES: &[(u8, &str, Read)] = &[
    (0x00, "Supported VPD Pages", |page| {
        VpdContent::Pages(page[4..].to_vec())
    }),
    (0x80, "Unit Serial Number", |page| {
        VpdContent::SerialNumber(text(page, 4..page.len()))
    }),
    (0x83, "Device Identification", |page| {
        VpdContent::Designators(Designator::list(&page[4..]))
    }),
    (0x84, "Software Interface Identification", bytes),
    (0x85, "Management Network Addresses", bytes),
    (0x86, "Extended INQUIRY Data", |page| {
        fields(ExtendedInquiry::FIELDS, page)
    }),
    (0x87, "Mode Page Policy", |page| {
        VpdContent::ModePagePolicies(page[4..].chunks_exact(4).map(Policy::parse).collect())
    }),
    (0x88, "SCSI Ports", |page| {
        VpdContent::Ports(
            elements(&page[4..], Port::length)
                .filter_map(Port::parse)
                .collect(),
        )
    }),
    (0x89, "ATA Information", bytes),
    (0x8a, "Power Condition", bytes),
    (0x8d, "Power Consumption", bytes),
    (0x8f, "Third-Party Copy", bytes),
    (0x90, "Protocol Specific Logical Unit Information", bytes),
    (0x91, "Protocol Specific Port Information", bytes),
    (0xb0, "Block Limits", |page| {
        fields(BlockLimits::FIELDS, page)
    }),
    (0xb1, "Block Device Characteristics", |page| {
        fields(BlockDeviceCharacteristics::FIELDS, page)
    }),
    (0xb2, "Logical Block Provisioning", |page| {
        fields(Provisioning::FIELDS, page)
    }),
    (0xb3, "Referrals", bytes),
    (0xb4, "Supported Block Lengths and Protection Types", bytes),
    (0xb5, "Block Device Characteristics Extension", bytes),
    (0xb6, "Zoned Block Device Characteristics", |page| {
        fields(ZonedBlockDevice::FIELDS, page)
    }),
    (0xb7, "Block Limits Extension", bytes),
];

fn fields(layout: &[FieldAt], page: &[u8]) -> VpdContent {
    VpdContent::Fields(read_all(layout, page))
}

fn bytes(page: &[u8]) -> VpdContent {
    VpdContent::Bytes(page[4..].to_vec())
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.page, self.subpage) {
            (0x3f, _) => write!(f, "all other mode pages")?,
            (page, 0) => write!(f, "mode page {page:02x}h")?,
            (page, subpage) => write!(f, "mode page {page:02x}h/{subpage:02x}h")?,
        }
        f.write_str(match self.policy {
            0 => ": shared",
            1 => ": one for each target port",
            2 => ": one for each initiator port",
            _ => ": one for each I_T nexus",
        })?;
        f.write_str(if self.several_units {
            ", by several logical units"
        } else {
            ""
        })
    }
}

/// The page's name and code, and a line for each item.
impl fmt::Display for Vpd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:02x}h)", page_name(self.code), self.code)?;
        match &self.content {
            VpdContent::Pages(pages) => pages
                .iter()
                .try_for_each(|code| write!(f, "\n  {code:02x}h  {}", page_name(*code))),
            VpdContent::SerialNumber(serial) => write!(f, "\n  {serial}"),
            VpdContent::Designators(designators) => lines(f, designators),
            VpdContent::ModePagePolicies(policies) => lines(f, policies),
            VpdContent::Ports(ports) => ports.iter().try_for_each(|port| {
                write!(f, "\n  port {}", port.relative)?;
                port.initiator
                    .iter()
                    .try_for_each(|id| write!(f, "\n    initiator: {id}"))?;
                port.designators
                    .iter()
                    .try_for_each(|name| write!(f, "\n    {name}"))
            }),
            VpdContent::Fields(fields) => lines(f, fields),
            VpdContent::Bytes(bytes) if bytes.is_empty() => write!(f, "\n  nothing"),
            VpdContent::Bytes(bytes) => bytes
                .chunks(32)
                .try_for_each(|row| write!(f, "\n  {}", Hex(row))),
        }
    }
}

fn lines(f: &mut fmt::Formatter<'_>, all: &[impl fmt::Display]) -> fmt::Result {
    all.iter().try_for_each(|one| write!(f, "\n  {one}"))
}

/// The header of a page of `bytes` in total.
const fn vpd_header(code: u8, bytes: u8) -> [u8; 4] {
    [0, code, 0, bytes - 4]
}

layout! {
    /// Extended INQUIRY data (SPC-4 7.8.7).
    ExtendedInquiry: 64 bytes from vpd_header(0x86, 64),
    {
        activate_microcode: u8 = (4, 7, 2, "ACTIVATE_MICROCODE", "activation of new microcode"),
        spt: u8 = (4, 5, 3, "SPT", "types of protection that can be formatted"),
        grd_chk: bool = (4, 2, 1, "GRD_CHK", "guard tags are checked"),
        app_chk: bool = (4, 1, 1, "APP_CHK", "application tags are checked"),
        ref_chk: bool = (4, 0, 1, "REF_CHK", "reference tags are checked"),
        uask_sup: bool = (5, 5, 1, "UASK_SUP", "unit attentions have sense-key specific data"),
        group_sup: bool = (5, 4, 1, "GROUP_SUP", "commands can be grouped"),
        prior_sup: bool = (5, 3, 1, "PRIOR_SUP", "commands have priorities"),
        headsup: bool = (5, 2, 1, "HEADSUP", "HEAD OF QUEUE commands"),
        ordsup: bool = (5, 1, 1, "ORDSUP", "ORDERED commands"),
        simpsup: bool = (5, 0, 1, "SIMPSUP", "SIMPLE commands"),
        wu_sup: bool = (6, 3, 1, "WU_SUP", "WRITE LONG can mark blocks as uncorrectable"),
        crd_sup: bool = (6, 2, 1, "CRD_SUP", "error correction can be disabled"),
        nv_sup: bool = (6, 1, 1, "NV_SUP", "non-volatile cache"),
        v_sup: bool = (6, 0, 1, "V_SUP", "volatile cache"),
        p_i_i_sup: bool = (7, 4, 1, "P_I_I_SUP", "protection information in intervals"),
        luiclr: bool = (7, 0, 1, "LUICLR", "an I_T nexus loss is cleared for all logical units"),
        r_sup: bool = (8, 4, 1, "R_SUP", "referrals"),
        cbcs: bool = (8, 0, 1, "CBCS", "capability-based command security"),
        multi_i_t_nexus_microcode: u8 =
            (9, 3, 4, "MULTI_I_T_NEXUS_MICROCODE", "microcode by several I_T nexuses"),
        extended_self_test: u16 =
            (10, 7, 16, "EXTENDED_SELF_TEST", "minutes that an extended self-test takes"),
        poa_sup: bool = (12, 7, 1, "POA_SUP", "power-on activation of microcode"),
        hra_sup: bool = (12, 6, 1, "HRA_SUP", "hard-reset activation of microcode"),
        vsa_sup: bool = (12, 5, 1, "VSA_SUP", "vendor-specific activation of microcode"),
        max_sense: u8 = (13, 7, 8, "MAX_SENSE", "longest sense data, in bytes"),
    }

    /// Command limits (SBC-3 6.6.4).
    BlockLimits: 64 bytes from vpd_header(0xb0, 64),
    {
        wsnz: bool = (4, 0, 1, "WSNZ", "WRITE SAME of zero blocks is rejected"),
        compare_and_write_blocks: u8 =
            (5, 7, 8, "MAX_COMPARE_AND_WRITE", "longest COMPARE AND WRITE, in blocks"),
        optimal_granularity: u16 =
            (6, 7, 16, "OPTIMAL_GRANULARITY", "optimal transfers are multiples of it, in blocks"),
        transfer_blocks: u32 = (8, 7, 32, "MAX_TRANSFER", "longest transfer, in blocks"),
        optimal_transfer: u32 = (12, 7, 32, "OPTIMAL_TRANSFER", "optimal transfer, in blocks"),
        max_prefetch: u32 = (16, 7, 32, "MAX_PREFETCH", "longest PRE-FETCH, in blocks"),
        unmap_blocks: u32 = (20, 7, 32, "MAX_UNMAP", "maximum blocks of one UNMAP"),
        unmap_descriptors: u32 = (24, 7, 32, "MAX_UNMAP_DESCRIPTORS", "maximum descriptors of one UNMAP"),
        unmap_granularity_blocks: u32 =
            (28, 7, 32, "UNMAP_GRANULARITY", "optimal UNMAP granularity, in blocks"),
        ugavalid: bool = (32, 7, 1, "UGAVALID", "the alignment is valid"),
        unmap_alignment_blocks: u32 = (32, 6, 31, "UNMAP_ALIGNMENT", "LBA of the first granule"),
        write_same_blocks: u64 = (36, 7, 64, "MAX_WRITE_SAME", "longest WRITE SAME, in blocks"),
        atomic_blocks: u32 = (44, 7, 32, "MAX_ATOMIC", "longest WRITE ATOMIC, in blocks"),
        atomic_alignment: u32 = (48, 7, 32, "ATOMIC_ALIGNMENT", "alignment of WRITE ATOMIC, in blocks"),
        atomic_granularity: u32 = (52, 7, 32, "ATOMIC_GRANULARITY", "granularity of WRITE ATOMIC, in blocks"),
        max_atomic_bounded: u32 =
            (56, 7, 32, "MAX_ATOMIC_BOUNDED", "longest WRITE ATOMIC with boundaries, in blocks"),
        max_atomic_boundary: u32 = (60, 7, 32, "MAX_ATOMIC_BOUNDARY", "largest atomic boundary, in blocks"),
    }

    /// The characteristics of the medium (SBC-3 6.6.3).
    BlockDeviceCharacteristics: 64 bytes from vpd_header(0xb1, 64),
    {
        medium_rotation_rate: u16 =
            (4, 7, 16, "MEDIUM_ROTATION_RATE", "rotation rate in rpm; 1: non-rotating; 0: unknown"),
        product_type: u8 = (6, 7, 8, "PRODUCT_TYPE", "type of flash card"),
        wabereq: u8 = (7, 7, 2, "WABEREQ", "content of unwritten blocks"),
        wacereq: u8 = (7, 5, 2, "WACEREQ", "content after a cryptographic erase"),
        nominal_form_factor: u8 = (7, 3, 4, "NOMINAL_FORM_FACTOR", "form factor"),
        zoned: u8 = (8, 5, 2, "ZONED", "1: host-aware zones; 2: zones that the device manages"),
        fuab: bool = (8, 1, 1, "FUAB", "SYNCHRONIZE CACHE and FUA conform to the standard"),
        vbuls: bool = (8, 0, 1, "VBULS", "VERIFY checks unmapped blocks"),
        depopulation_time: u32 =
            (12, 7, 32, "DEPOPULATION_TIME", "time to remove a storage element, in seconds"),
    }

    /// Logical block provisioning (SBC-3 6.6.5).
    Provisioning: 8 bytes from vpd_header(0xb2, 8),
    {
        threshold_exponent: u8 = (4, 7, 8, "THRESHOLD_EXPONENT", "threshold unit: 2^value blocks"),
        by_unmap: bool = (5, 7, 1, "LBPU", "UNMAP deallocates blocks"),
        by_write_same_16: bool = (5, 6, 1, "LBPWS", "WRITE SAME(16) with UNMAP deallocates blocks"),
        by_write_same_10: bool = (5, 5, 1, "LBPWS10", "WRITE SAME(10) with UNMAP deallocates blocks"),
        lbprz: u8 = (5, 4, 3, "LBPRZ", "deallocated blocks read as 1: zeros; 2: a pattern"),
        anchors: bool = (5, 1, 1, "ANC_SUP", "blocks can be anchored"),
        dp: bool = (5, 0, 1, "DP", "a designator of the resource pool follows"),
        minimum_percentage: u8 = (6, 7, 5, "MINIMUM_PERCENTAGE", "granularity of threshold percentages"),
        provisioning_type: u8 =
            (6, 2, 3, "PROVISIONING_TYPE", "0: not reported; 1: resource provisioned; 2: thin"),
        threshold_percentage: u8 =
            (7, 7, 8, "THRESHOLD_PERCENTAGE", "warning threshold, in percent of use"),
    }

    /// The zones of a zoned disk (ZBC 6.5).
    ZonedBlockDevice: 64 bytes from vpd_header(0xb6, 64),
    {
        urswrz: bool = (4, 0, 1, "URSWRZ", "reads are not restricted in sequential zones"),
        optimal_open: u32 = (8, 7, 32, "OPTIMAL_OPEN", "optimal number of open sequential zones"),
        optimal_non_sequential: u32 =
            (12, 7, 32, "OPTIMAL_NON_SEQUENTIAL", "optimal number of zones written out of order"),
        max_open: u32 = (16, 7, 32, "MAX_OPEN", "most open sequential zones"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_that_was_not_asked_for_is_refused() {
        assert!(Vpd::parse(0x80, &[0, 0x83, 0, 0]).is_none());
        assert!(Vpd::parse(0x80, &[0, 0x80, 0]).is_none());
    }

    #[test]
    fn a_page_ends_where_its_header_says() {
        let serial = Vpd::parse(0x80, b"\0\x80\0\x04abcd behind").unwrap();
        assert_eq!(serial.content, VpdContent::SerialNumber("abcd".into()));
        let cut = Vpd::parse(0x80, b"\0\x80\xff\xffab").unwrap();
        assert_eq!(cut.content, VpdContent::SerialNumber("ab".into()));
    }

    #[test]
    fn limits_are_numbers_and_words() {
        let mut page = [0; 64];
        (page[1], page[3], page[5], page[11], page[32], page[35]) = (0xb0, 60, 1, 128, 0x80, 7);
        let limits = BlockLimits::parse(&page);
        assert_eq!(
            (limits.compare_and_write_blocks, limits.transfer_blocks),
            (1, 128)
        );
        assert_eq!(limits.unmap_alignment_blocks, 7);
        let words = Vpd::parse(0xb0, &page).unwrap().to_string();
        assert!(
            words.contains("MAX_TRANSFER = 128 (longest transfer, in blocks)"),
            "{words}"
        );
    }

    #[test]
    fn a_short_page_of_an_older_standard_has_fewer_fields() {
        let page = [0, 0xb0, 0, 12, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
        let VpdContent::Fields(fields) = Vpd::parse(0xb0, &page).unwrap().content else {
            panic!()
        };
        assert_eq!(fields.last().unwrap().name, "OPTIMAL_TRANSFER");
        assert_eq!(BlockLimits::parse(&page).unmap_blocks, 0);
    }

    #[test]
    fn what_is_written_is_read() {
        let generation = CacheGeneration([7; 16]);
        assert_eq!(
            CacheGeneration::parse(&generation.write()),
            Some(generation)
        );
        let policy = Policy {
            page: 0x3f,
            subpage: 0xff,
            several_units: true,
            policy: 3,
        };
        assert_eq!(Policy::parse(&policy.write()), policy);
        let name = TransportId::Iscsi {
            name: "iqn.x:i".into(),
            isid: None,
        };
        let designator = Designator::parse(&[0x51, 0x94, 0, 4, 0, 0, 0, 1]).unwrap();
        let port = Port {
            relative: 1,
            initiator: Some(name),
            designators: vec![designator; 2],
        };
        let none = Port {
            relative: 2,
            initiator: None,
            designators: vec![],
        };
        let page = Vpd::write(0x88, &[port.write(), none.write()].concat());
        assert_eq!(
            Vpd::parse(0x88, &page).unwrap().content,
            VpdContent::Ports(vec![port, none])
        );
    }

    #[test]
    fn ports_are_told_with_their_names() {
        let designator = [0x51, 0x94, 0, 4, 0, 0, 0, 1];
        let page = [
            &[0, 0x88, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8][..],
            &designator,
        ]
        .concat();
        let VpdContent::Ports(ports) = Vpd::parse(0x88, &page).unwrap().content else {
            panic!()
        };
        assert_eq!(
            (ports.len(), ports[0].relative, ports[0].designators.len()),
            (1, 1, 1)
        );
    }

    #[test]
    fn policies_are_told_in_words() {
        let page = Vpd::parse(0x87, &[0, 0x87, 0, 4, 0x3f, 0xff, 0x80, 0]).unwrap();
        assert!(
            page.to_string()
                .ends_with("all other mode pages: shared, by several logical units")
        );
    }

    proptest! {
        #[test]
        fn any_page_is_read_or_refused(
            code in prop::sample::select(PAGES.iter().map(|(code, ..)| *code).chain([0xc0]).collect::<Vec<_>>()),
            mut bytes in prop::collection::vec(any::<u8>(), 0..128),
        ) {
            if let Some(second) = bytes.get_mut(1) {
                *second = code;
            }
            BlockLimits::parse(&bytes);
            Provisioning::parse(&bytes);
            prop_assert_eq!(BlockLimits::parse(&BlockLimits::parse(&bytes).write()), BlockLimits::parse(&bytes));
            CacheGeneration::parse(&bytes);
            if let Some(page) = Vpd::parse(code, &bytes) {
                prop_assert!(page.to_string().lines().all(|line| !line.chars().any(char::is_control)));
            }
        }
    }
}
