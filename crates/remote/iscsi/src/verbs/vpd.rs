//! Vital product data pages (SPC-4 7.8, SBC-3 6.6): what does not change about a logical unit.

use std::fmt;

use scsi::cdb;

use super::VerbError;
use super::designator::Designator;
use super::fields::{Field, Hex, elements, read_all, text, u8_at, u16_at, u32_at, u64_at};
use super::transport_id::TransportId;
use super::vpd_pages::{
    BLOCK_DEVICE_CHARACTERISTICS, BLOCK_LIMITS, EXTENDED_INQUIRY, LOGICAL_BLOCK_PROVISIONING,
    ZONED_BLOCK_DEVICE,
};
use crate::unit::Unit;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vpd {
    /// PAGE CODE: [`page_name`] has its name.
    pub code: u8,
    /// What it says.
    pub content: VpdContent,
    /// All of it, as it came.
    pub bytes: Vec<u8>,
}

/// What a page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VpdContent {
    /// 00h: the pages there are.
    Pages(Vec<u8>),
    /// 80h: the serial number.
    SerialNumber(String),
    /// 83h: who this is.
    Designators(Vec<Designator>),
    /// 87h: which mode pages are whose.
    ModePagePolicies(Vec<Policy>),
    /// 88h: the target's ports.
    Ports(Vec<Port>),
    /// Pages that are numbers and flags: 86h, B0h, B1h, B2h, B6h.
    Fields(Vec<Field>),
    /// Pages that only vendors know, and those that are not taken apart here.
    Bytes(Vec<u8>),
}

/// Nothing.
impl Default for VpdContent {
    fn default() -> VpdContent {
        VpdContent::Bytes(Vec::new())
    }
}

/// Who shares a mode page (SPC-4 7.8.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// POLICY PAGE CODE; 3Fh stands for all others.
    pub page: u8,
    /// POLICY SUBPAGE CODE.
    pub subpage: u8,
    /// MLUS: it is shared by several logical units.
    pub several_units: bool,
    /// MODE PAGE POLICY: 0 shared, 1 one for each target port, 3 one for each I_T nexus.
    pub policy: u8,
}

/// A port of the target (SPC-4 7.8.14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// RELATIVE PORT IDENTIFIER.
    pub relative: u16,
    /// If it is used as an initiator too: its name as one.
    pub initiator: Option<TransportId>,
    /// Its names as a target.
    pub designators: Vec<Designator>,
}

impl Vpd {
    /// Takes an answer apart; `None` if it is not that page.
    pub fn parse(code: u8, data: &[u8]) -> Option<Vpd> {
        let length = usize::from(u16_at(data.get(..4)?, 2));
        if data[1] != code {
            return None;
        }
        let data = &data[..data.len().min(4 + length)];
        let content = match code {
            0x00 => VpdContent::Pages(data[4..].to_vec()),
            0x80 => VpdContent::SerialNumber(text(data, 4..data.len())),
            0x83 => VpdContent::Designators(Designator::list(&data[4..])),
            0x87 => VpdContent::ModePagePolicies(data[4..].chunks_exact(4).map(Policy::parse).collect()),
            0x88 => VpdContent::Ports(elements(&data[4..], Port::length).filter_map(Port::parse).collect()),
            0x86 => VpdContent::Fields(read_all(EXTENDED_INQUIRY, data)),
            0xb0 => VpdContent::Fields(read_all(BLOCK_LIMITS, data)),
            0xb1 => VpdContent::Fields(read_all(BLOCK_DEVICE_CHARACTERISTICS, data)),
            0xb2 => VpdContent::Fields(read_all(LOGICAL_BLOCK_PROVISIONING, data)),
            0xb6 => VpdContent::Fields(read_all(ZONED_BLOCK_DEVICE, data)),
            _ => VpdContent::Bytes(data[4..].to_vec()),
        };
        Some(Vpd { code, content, bytes: data.to_vec() })
    }
}

impl Policy {
    fn parse(bytes: &[u8]) -> Policy {
        let (page, subpage) = (u8_at(bytes, 0) & 0x3f, u8_at(bytes, 1));
        Policy { page, subpage, several_units: u8_at(bytes, 2) & 0x80 != 0, policy: u8_at(bytes, 2) & 3 }
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
            initiator: (initiator > 0).then(|| TransportId::parse(&bytes[8..initiator_end])).flatten(),
            designators: Designator::list(bytes.get(initiator_end + 4..)?),
        })
    }
}

/// What a Linerate target tells in page C0h: as long as it is the same, no write that was acknowledged has been lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheGeneration([u8; 16]);

impl CacheGeneration {
    /// Of the page with its header; `None` of another vendor's.
    pub fn parse(page: &[u8]) -> Option<CacheGeneration> {
        let generation = page.get(4..)?.strip_prefix(b"LINERATE\x01")?.get(3..)?;
        generation.first_chunk().copied().map(CacheGeneration)
    }
}

/// The limits of commands (SBC-3 6.6.4), for those who make them. Zero, as in the page, is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// MAXIMUM COMPARE AND WRITE LENGTH, in blocks; zero: the command is not known.
    pub compare_and_write_blocks: u8,
    /// MAXIMUM TRANSFER LENGTH, in blocks.
    pub transfer_blocks: u32,
    /// MAXIMUM UNMAP LBA COUNT, in blocks of one command; zero: UNMAP is not known.
    pub unmap_blocks: u32,
    /// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
    pub unmap_descriptors: u32,
    /// OPTIMAL UNMAP GRANULARITY, in blocks.
    pub unmap_granularity_blocks: u32,
    /// UNMAP GRANULARITY ALIGNMENT, in blocks: where the first granule begins, if the page says so.
    pub unmap_alignment_blocks: u32,
    /// MAXIMUM WRITE SAME LENGTH, in blocks.
    pub write_same_blocks: u64,
    /// MAXIMUM ATOMIC TRANSFER LENGTH, in blocks.
    pub atomic_blocks: u32,
}

impl BlockLimits {
    /// From a page of at least its header. What a shorter one of an older standard lacks is no limit.
    pub fn parse(page: &[u8]) -> BlockLimits {
        let alignment = u32_at(page, 32);
        BlockLimits {
            compare_and_write_blocks: u8_at(page, 5),
            transfer_blocks: u32_at(page, 8),
            unmap_blocks: u32_at(page, 20),
            unmap_descriptors: u32_at(page, 24),
            unmap_granularity_blocks: u32_at(page, 28),
            // UGAVALID in its highest bit.
            unmap_alignment_blocks: if alignment >> 31 == 1 { alignment & 0x7fff_ffff } else { 0 },
            write_same_blocks: u64_at(page, 36),
            atomic_blocks: u32_at(page, 44),
        }
    }
}

/// How blocks can be given back (SBC-3 6.6.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provisioning {
    /// LBPU: by UNMAP.
    pub by_unmap: bool,
    /// LBPWS: by WRITE SAME(16) with UNMAP.
    pub by_write_same_16: bool,
    /// LBPWS10: by WRITE SAME(10) with UNMAP.
    pub by_write_same_10: bool,
    /// LBPRZ: blocks that are given back read as zeros.
    pub read_zeros: bool,
    /// ANC_SUP: blocks can be anchored.
    pub anchors: bool,
}

impl Provisioning {
    /// From a page of at least its header.
    pub fn parse(page: &[u8]) -> Provisioning {
        let flags = u8_at(page, 5);
        Provisioning {
            by_unmap: flags & 0x80 != 0,
            by_write_same_16: flags & 0x40 != 0,
            by_write_same_10: flags & 0x20 != 0,
            read_zeros: flags & 0x04 != 0,
            anchors: flags & 0x02 != 0,
        }
    }
}

/// The standard's name of a page.
pub fn page_name(code: u8) -> &'static str {
    match code {
        0x00 => "Supported VPD Pages",
        0x80 => "Unit Serial Number",
        0x83 => "Device Identification",
        0x84 => "Software Interface Identification",
        0x85 => "Management Network Addresses",
        0x86 => "Extended INQUIRY Data",
        0x87 => "Mode Page Policy",
        0x88 => "SCSI Ports",
        0x89 => "ATA Information",
        0x8a => "Power Condition",
        0x8d => "Power Consumption",
        0x8f => "Third-Party Copy",
        0x90 => "Protocol Specific Logical Unit Information",
        0x91 => "Protocol Specific Port Information",
        0xb0 => "Block Limits",
        0xb1 => "Block Device Characteristics",
        0xb2 => "Logical Block Provisioning",
        0xb3 => "Referrals",
        0xb4 => "Supported Block Lengths and Protection Types",
        0xb5 => "Block Device Characteristics Extension",
        0xb6 => "Zoned Block Device Characteristics",
        0xb7 => "Block Limits Extension",
        0xc0.. => "vendor-specific",
        _ => "reserved",
    }
}

const NAME: &str = "INQUIRY";
/// Every page that a disk is likely to have fits; a longer one is asked for again. Targets of old take no more than
/// a byte's worth.
const BYTES: u32 = 255;

impl Unit {
    /// Asks for a page.
    pub async fn vpd(&self, code: u8) -> Result<Vpd, VerbError> {
        let cdb = |bytes| cdb::inquiry(Some(code), bytes as u16);
        let whole = |answer: &[u8]| 4 + u64::from(u16_at(answer, 2));
        let data = self.ask_all(NAME, cdb, BYTES, u32::from(u16::MAX), whole).await?;
        Vpd::parse(code, &data).ok_or(VerbError::Nonsense(NAME))
    }

    /// The codes of the pages there are.
    pub async fn vpd_pages(&self) -> Result<Vec<u8>, VerbError> {
        match self.vpd(0).await?.content {
            VpdContent::Pages(pages) => Ok(pages),
            _ => Err(VerbError::Nonsense(NAME)),
        }
    }

    /// The Block Limits page; none of its limits if the target does not have it.
    pub async fn block_limits(&self) -> Result<BlockLimits, VerbError> {
        self.bytes_of(0xb0).await.map(|page| BlockLimits::parse(&page))
    }

    /// The Logical Block Provisioning page; none of its ways if the target does not have it.
    pub async fn provisioning(&self) -> Result<Provisioning, VerbError> {
        self.bytes_of(0xb2).await.map(|page| Provisioning::parse(&page))
    }

    /// A page; empty if there is none.
    async fn bytes_of(&self, code: u8) -> Result<Vec<u8>, VerbError> {
        match self.vpd(code).await {
            Ok(page) => Ok(page.bytes),
            Err(error) if error.is_unsupported() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
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
        f.write_str(if self.several_units { ", by several logical units" } else { "" })
    }
}

/// The page's name and code, and a line for each thing that it says.
impl fmt::Display for Vpd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:02x}h)", page_name(self.code), self.code)?;
        match &self.content {
            VpdContent::Pages(pages) => {
                pages.iter().try_for_each(|code| write!(f, "\n  {code:02x}h  {}", page_name(*code)))
            }
            VpdContent::SerialNumber(serial) => write!(f, "\n  {serial}"),
            VpdContent::Designators(designators) => lines(f, designators),
            VpdContent::ModePagePolicies(policies) => lines(f, policies),
            VpdContent::Ports(ports) => ports.iter().try_for_each(|port| {
                write!(f, "\n  port {}", port.relative)?;
                port.initiator.iter().try_for_each(|id| write!(f, "\n    initiator: {id}"))?;
                port.designators.iter().try_for_each(|name| write!(f, "\n    {name}"))
            }),
            VpdContent::Fields(fields) => lines(f, fields),
            VpdContent::Bytes(bytes) if bytes.is_empty() => write!(f, "\n  nothing"),
            VpdContent::Bytes(bytes) => bytes.chunks(32).try_for_each(|row| write!(f, "\n  {}", Hex(row))),
        }
    }
}

fn lines(f: &mut fmt::Formatter<'_>, all: &[impl fmt::Display]) -> fmt::Result {
    all.iter().try_for_each(|one| write!(f, "\n  {one}"))
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
        assert_eq!((limits.compare_and_write_blocks, limits.transfer_blocks), (1, 128));
        assert_eq!(limits.unmap_alignment_blocks, 7);
        let words = Vpd::parse(0xb0, &page).unwrap().to_string();
        assert!(words.contains("MAX_TRANSFER = 128 (longest transfer, in blocks)"), "{words}");
    }

    #[test]
    fn a_short_page_of_an_older_standard_has_fewer_fields() {
        let page = [0, 0xb0, 0, 12, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
        let VpdContent::Fields(fields) = Vpd::parse(0xb0, &page).unwrap().content else { panic!() };
        assert_eq!(fields.last().unwrap().name, "OPTIMAL_TRANSFER");
        assert_eq!(BlockLimits::parse(&page).unmap_blocks, 0);
    }

    #[test]
    fn ports_are_told_with_their_names() {
        let designator = [0x51, 0x94, 0, 4, 0, 0, 0, 1];
        let page = [&[0, 0x88, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8][..], &designator].concat();
        let VpdContent::Ports(ports) = Vpd::parse(0x88, &page).unwrap().content else { panic!() };
        assert_eq!((ports.len(), ports[0].relative, ports[0].designators.len()), (1, 1, 1));
    }

    #[test]
    fn policies_are_told_in_words() {
        let page = Vpd::parse(0x87, &[0, 0x87, 0, 4, 0x3f, 0xff, 0x80, 0]).unwrap();
        assert!(page.to_string().ends_with("all other mode pages: shared, by several logical units"));
    }

    proptest! {
        #[test]
        fn any_page_is_read_or_refused(
            code in prop::sample::select(vec![0u8, 0x80, 0x83, 0x86, 0x87, 0x88, 0xb0, 0xb1, 0xb2, 0xb6, 0xc0]),
            mut bytes in prop::collection::vec(any::<u8>(), 0..128),
        ) {
            if let Some(second) = bytes.get_mut(1) {
                *second = code;
            }
            BlockLimits::parse(&bytes);
            Provisioning::parse(&bytes);
            if let Some(page) = Vpd::parse(code, &bytes) {
                prop_assert!(page.to_string().lines().all(|line| !line.chars().any(char::is_control)));
            }
        }
    }
}
