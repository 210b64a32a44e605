//! Blocks (SBC-3): capacity, allocation status, and deallocation.

use crate::fields::{FieldValue, layout, u8_at, u16_at, u32_at, u64_at};

/// The capacity of a disk (SBC-3 5.15 and 5.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Number of blocks.
    pub blocks: u64,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT: log2 of the logical blocks in a physical block.
    pub physical_exponent: u8,
    /// LOWEST ALIGNED LOGICAL BLOCK ADDRESS: the first block that is aligned to a physical block.
    pub lowest_aligned: u16,
    /// The type of protection information with which the medium was formatted, 1 to 3.
    pub protection_type: Option<u8>,
    /// LBPME: blocks can be deallocated.
    pub thin: bool,
    /// LBPRZ: deallocated blocks read as zeros.
    pub read_zeros: bool,
    /// The target supports READ CAPACITY(16), and so the other 16-byte commands.
    pub long_commands: bool,
}

impl Capacity {
    /// Parses READ CAPACITY(16) data; `None` if it is truncated, or impossible for a disk.
    pub fn parse_16(data: &[u8]) -> Option<Capacity> {
        data.get(..12)?;
        let (protection, provisioning) = (u8_at(data, 12), u16_at(data, 14));
        Capacity {
            blocks: u64_at(data, 0).checked_add(1)?,
            block_bytes: u32_at(data, 8),
            physical_exponent: u8_at(data, 13) & 0x0f,
            lowest_aligned: provisioning & 0x3fff,
            // PROT_EN, and P_TYPE, which is one less than the type.
            protection_type: (protection & 1 != 0).then_some((protection >> 1 & 7) + 1),
            thin: provisioning & 0x8000 != 0,
            read_zeros: provisioning & 0x4000 != 0,
            long_commands: true,
        }
        .if_possible()
    }

    /// Parses READ CAPACITY(10) data; `None` if it is truncated, or impossible for a disk.
    pub fn parse_10(data: &[u8]) -> Option<Capacity> {
        let data = data.get(..8)?;
        Capacity {
            blocks: u64::from(u32_at(data, 0)) + 1,
            block_bytes: u32_at(data, 4),
            physical_exponent: 0,
            lowest_aligned: 0,
            protection_type: None,
            thin: false,
            read_zeros: false,
            long_commands: false,
        }
        .if_possible()
    }

    /// Encodes READ CAPACITY(16) data.
    pub fn write_16(&self) -> [u8; 32] {
        let mut data = [0; 32];
        data[..8].copy_from_slice(&self.blocks.saturating_sub(1).to_be_bytes());
        data[8..12].copy_from_slice(&self.block_bytes.to_be_bytes());
        data[12] = self
            .protection_type
            .map_or(0, |kind| (kind.wrapping_sub(1) & 7) << 1 | 1);
        data[13] = self.physical_exponent & 0x0f;
        let provisioning = u16::from(self.thin) << 15 | u16::from(self.read_zeros) << 14;
        data[14..16].copy_from_slice(&(provisioning | self.lowest_aligned & 0x3fff).to_be_bytes());
        data
    }

    /// Encodes READ CAPACITY(10) data. FFFFFFFFh for the last block refers the initiator to READ CAPACITY(16).
    pub fn write_10(&self) -> [u8; 8] {
        let last = u32::try_from(self.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
        (u64::from(last) << 32 | u64::from(self.block_bytes)).to_be_bytes()
    }

    /// Returns the capacity if its size in bytes fits the type and is not zero.
    fn if_possible(self) -> Option<Capacity> {
        self.blocks
            .checked_mul(u64::from(self.block_bytes))
            .filter(|bytes| *bytes > 0)
            .map(|_| self)
    }

    /// The capacity in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }
}

/// The provisioning status of blocks (SBC-3 5.6.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LbaStatus {
    /// 0: allocated, or unknown.
    #[default]
    Mapped,
    /// 1: not allocated.
    Deallocated,
    /// 2: space is reserved for the blocks, but they have no content.
    Anchored,
    /// 3 and 4: allocated; the code shows whether the blocks have been written.
    Other(u8),
}

impl FieldValue for LbaStatus {
    fn from_number(number: u64) -> LbaStatus {
        match number as u8 & 0x0f {
            0 => LbaStatus::Mapped,
            1 => LbaStatus::Deallocated,
            2 => LbaStatus::Anchored,
            other => LbaStatus::Other(other),
        }
    }

    fn number(self) -> u64 {
        match self {
            LbaStatus::Mapped => 0,
            LbaStatus::Deallocated => 1,
            LbaStatus::Anchored => 2,
            LbaStatus::Other(code) => code.into(),
        }
    }
}

layout! {
    /// A descriptor of GET LBA STATUS (SBC-3 5.6.2.2): contiguous blocks with the same status.
    LbaStatusDescriptor: 16 bytes,
    {
        lba: u64 = (0, 7, 64, "LBA", "the first block"),
        blocks: u32 = (8, 7, 32, "NUMBER OF LOGICAL BLOCKS", "number of blocks"),
        status: LbaStatus = (12, 3, 4, "PROVISIONING STATUS", "state"),
    }

    /// A descriptor of UNMAP (SBC-3 5.28.2): contiguous blocks to deallocate.
    UnmapDescriptor: 16 bytes,
    {
        lba: u64 = (0, 7, 64, "LBA", "the first block"),
        blocks: u32 = (8, 7, 32, "NUMBER OF LOGICAL BLOCKS", "number of blocks"),
    }
}

impl LbaStatusDescriptor {
    /// The length of the header of a list.
    pub const HEADER_BYTES: usize = 8;

    /// The received descriptors; if the last one is truncated, it is omitted.
    pub fn parse_list(answer: &[u8]) -> impl Iterator<Item = LbaStatusDescriptor> {
        let list = answer.get(Self::HEADER_BYTES..).unwrap_or_default();
        list.chunks_exact(Self::BYTES)
            .map(LbaStatusDescriptor::parse)
    }

    /// Encodes a list.
    pub fn write_list(descriptors: impl Iterator<Item = LbaStatusDescriptor>) -> Vec<u8> {
        let mut data = vec![0; Self::HEADER_BYTES];
        for descriptor in descriptors {
            data.extend(descriptor.write());
        }
        debug_assert!(
            (data.len() - Self::HEADER_BYTES).is_multiple_of(Self::BYTES),
            "whole descriptors"
        );
        // PARAMETER DATA LENGTH does not include itself.
        let length = (data.len() - 4) as u32;
        data[..4].copy_from_slice(&length.to_be_bytes());
        data
    }
}

impl UnmapDescriptor {
    /// The length of the header of a list.
    pub const HEADER_BYTES: usize = 8;
    /// Maximum number of descriptors in a list, whose length has two bytes.
    pub const COUNT_MAX: usize = 4095;

    /// The descriptors of a list; `None` if it is too short for a header. An incomplete last one is ignored.
    pub fn parse_list(list: &[u8]) -> Option<impl ExactSizeIterator<Item = UnmapDescriptor>> {
        let descriptors = list.get(Self::HEADER_BYTES..)?;
        let count = usize::from(u16_at(list, 2)).min(descriptors.len()) / Self::BYTES;
        Some(
            descriptors
                .chunks_exact(Self::BYTES)
                .take(count)
                .map(UnmapDescriptor::parse),
        )
    }

    /// Encodes a list of up to [`UnmapDescriptor::COUNT_MAX`] descriptors.
    pub fn write_list(descriptors: impl Iterator<Item = UnmapDescriptor>) -> Vec<u8> {
        let mut list = vec![0; Self::HEADER_BYTES];
        for descriptor in descriptors.take(Self::COUNT_MAX) {
            list.extend(descriptor.write());
        }
        debug_assert!(
            list.len() - 2 <= usize::from(u16::MAX),
            "a list beyond its length"
        );
        // UNMAP DATA LENGTH does not include itself.
        let (data_length, length) = (
            (list.len() - 2) as u16,
            (list.len() - Self::HEADER_BYTES) as u16,
        );
        list[..2].copy_from_slice(&data_length.to_be_bytes());
        list[2..4].copy_from_slice(&length.to_be_bytes());
        list
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_capacity_that_nobody_can_count_is_refused() {
        assert_eq!(Capacity::parse_16(&[0xff; 32]), None);
        assert_eq!(Capacity::parse_16(&[0; 32]), None);
        assert_eq!(Capacity::parse_16(&[0; 11]), None);
        assert_eq!(Capacity::parse_10(&[0, 0, 0, 7, 0, 0, 2]), None);
    }

    #[test]
    fn a_capacity_tells_how_blocks_lie() {
        let data = [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 2, 0, 0b011, 3, 0xc0, 1];
        let capacity = Capacity::parse_16(&data).unwrap();
        assert_eq!(
            (
                capacity.blocks,
                capacity.bytes(),
                capacity.physical_exponent
            ),
            (8, 4096, 3)
        );
        assert_eq!(
            (capacity.protection_type, capacity.lowest_aligned),
            (Some(2), 1)
        );
        assert!(capacity.thin && capacity.read_zeros);
    }

    #[test]
    fn a_list_of_unmap_looks_as_in_the_standard() {
        let list = UnmapDescriptor::write_list([UnmapDescriptor { lba: 1, blocks: 2 }].into_iter());
        assert_eq!(
            list,
            [
                0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0
            ]
        );
        assert!(UnmapDescriptor::parse_list(&list[..7]).is_none());
    }

    proptest! {
        #[test]
        fn a_capacity_comes_back_as_it_was(
            blocks in 1u64..1 << 50, physical_exponent in 0u8..16, lowest_aligned in 0u16..0x4000,
            protection_type in prop::option::of(1u8..9), thin: bool, read_zeros: bool,
        ) {
            let capacity = Capacity {
                blocks, block_bytes: 512, physical_exponent, lowest_aligned, protection_type, thin, read_zeros,
                long_commands: true,
            };
            prop_assert_eq!(Capacity::parse_16(&capacity.write_16()), Some(capacity));
            let short = Capacity::parse_10(&capacity.write_10()).unwrap();
            prop_assert_eq!((short.blocks, short.block_bytes), (blocks.min(1 << 32), 512));
        }

        #[test]
        fn descriptors_come_back_as_they_were(all: Vec<(u64, u32, u8)>) {
            let of = |(lba, blocks, code): (u64, u32, u8)| {
                LbaStatusDescriptor { lba, blocks, status: LbaStatus::from_number(code.into()) }
            };
            let descriptors: Vec<_> = all.iter().copied().map(of).collect();
            let list = LbaStatusDescriptor::write_list(descriptors.iter().copied());
            prop_assert_eq!(LbaStatusDescriptor::parse_list(&list).collect::<Vec<_>>(), descriptors);
            let of = |(lba, blocks, _): (u64, u32, u8)| UnmapDescriptor { lba, blocks };
            let descriptors: Vec<_> = all.iter().copied().map(of).collect();
            let list = UnmapDescriptor::write_list(descriptors.iter().copied());
            prop_assert_eq!(UnmapDescriptor::parse_list(&list).unwrap().collect::<Vec<_>>(), descriptors);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..96)) {
            let _ = (Capacity::parse_16(&bytes), Capacity::parse_10(&bytes));
            LbaStatusDescriptor::parse_list(&bytes).for_each(drop);
            UnmapDescriptor::parse_list(&bytes).into_iter().flatten().for_each(drop);
        }
    }
}
