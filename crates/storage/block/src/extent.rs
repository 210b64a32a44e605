//! Block addresses, block counts, and the geometry of a device.

use derive_more::Display;

/// The address of a logical block, counted from the start of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lba(pub u64);

/// A number of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Blocks(pub u64);

/// The length of a logical block in bytes: a power of two from 512 to 65,536.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize {
    shift: u8,
}

impl BlockSize {
    /// 512 bytes, which every initiator accepts.
    pub const B512: BlockSize = BlockSize { shift: 9 };
    /// 4,096 bytes ("4K native").
    pub const B4096: BlockSize = BlockSize { shift: 12 };

    /// Creates a block size. Returns `None` unless `bytes` is a power of two from 512 to 65,536.
    pub fn new(bytes: u32) -> Option<BlockSize> {
        let legal = bytes.is_power_of_two() && (512..=65_536).contains(&bytes);
        legal.then(|| BlockSize {
            shift: bytes.trailing_zeros() as u8,
        })
    }

    /// Returns the length in bytes.
    pub fn bytes(self) -> u32 {
        1 << self.shift
    }

    /// Returns log2 of the length in bytes.
    pub fn shift(self) -> u32 {
        u32::from(self.shift)
    }

    /// Returns the number of blocks in `bytes`; `None` if it is not a whole number.
    pub fn exact(self, bytes: u64) -> Option<Blocks> {
        (bytes & (u64::from(self.bytes()) - 1) == 0).then_some(Blocks(bytes >> self.shift))
    }
}

/// A range of consecutive logical blocks, which may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display)]
#[display("{}+{}", lba.0, blocks.0)]
pub struct Extent {
    /// The first block.
    pub lba: Lba,
    /// Number of blocks, including the first.
    pub blocks: Blocks,
}

impl Extent {
    /// Creates an extent of `blocks` blocks from `lba` on.
    pub fn new(lba: u64, blocks: u64) -> Extent {
        Extent {
            lba: Lba(lba),
            blocks: Blocks(blocks),
        }
    }

    /// Returns the block after the last, or `None` if it is beyond the address space.
    pub fn end(self) -> Option<Lba> {
        self.lba.0.checked_add(self.blocks.0).map(Lba)
    }

    /// Returns whether the extent has no blocks.
    pub fn is_empty(self) -> bool {
        self.blocks.0 == 0
    }

    /// Divides the extent, from its start, into chunks of `blocks_max` blocks; the last may be shorter. A
    /// `blocks_max` of 0 counts as 1.
    pub fn chunks(self, blocks_max: u64) -> Chunks {
        Chunks {
            rest: self,
            blocks_max: blocks_max.max(1),
        }
    }

    /// Returns whether the two extents share a block.
    pub fn overlaps(self, other: Extent) -> bool {
        let (a, b) = (u128::from(self.lba.0), u128::from(other.lba.0));
        a < b + u128::from(other.blocks.0) && b < a + u128::from(self.blocks.0)
    }
}

/// The chunks of an extent ([`Extent::chunks`]).
#[derive(Clone, Debug)]
pub struct Chunks {
    rest: Extent,
    blocks_max: u64,
}

impl Iterator for Chunks {
    type Item = Extent;

    #[inline]
    fn next(&mut self) -> Option<Extent> {
        let Extent { lba, blocks } = self.rest;
        let count = blocks.0.min(self.blocks_max);
        self.rest = Extent::new(lba.0.saturating_add(count), blocks.0 - count);
        (count > 0).then_some(Extent {
            lba,
            blocks: Blocks(count),
        })
    }
}

/// The geometry of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The length of a logical block.
    pub block_size: BlockSize,
    /// Number of logical blocks.
    pub blocks: Blocks,
    /// log2 of the logical blocks in a physical block (READ CAPACITY(16), SBC-3 5.16.2): 3 for 512e.
    pub physical_exponent: u8,
}

impl Geometry {
    /// Returns the capacity in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.0 << self.block_size.shift()
    }

    /// Returns whether every block of `extent` exists.
    pub fn contains(&self, extent: Extent) -> bool {
        extent.end().is_some_and(|end| end.0 <= self.blocks.0)
    }

    /// Returns the length of `extent` in bytes. `extent` must lie within the device.
    pub fn length(&self, extent: Extent) -> u64 {
        extent.blocks.0 << self.block_size.shift()
    }

    /// Returns the byte at which `extent` starts. `extent` must lie within the device.
    pub fn offset(&self, extent: Extent) -> u64 {
        extent.lba.0 << self.block_size.shift()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_powers_of_two_from_512() {
        assert_eq!(BlockSize::new(512), Some(BlockSize::B512));
        assert_eq!(BlockSize::new(4096).map(BlockSize::bytes), Some(4096));
        for bad in [0, 1, 256, 513, 520, 131_072] {
            assert_eq!(BlockSize::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_extent_at_the_end_of_the_address_space_is_not_contained() {
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(8),
            physical_exponent: 0,
        };
        assert!(geometry.contains(Extent::new(0, 8)));
        assert!(geometry.contains(Extent::new(8, 0)));
        assert!(!geometry.contains(Extent::new(8, 1)));
        assert!(!geometry.contains(Extent::new(u64::MAX, 2)));
    }

    #[test]
    fn the_chunks_of_an_extent_leave_no_gap() {
        let chunks: Vec<Extent> = Extent::new(10, 25).chunks(10).collect();
        assert_eq!(
            chunks,
            [Extent::new(10, 10), Extent::new(20, 10), Extent::new(30, 5)]
        );
        assert_eq!(Extent::new(10, 0).chunks(10).count(), 0);
        assert_eq!(Extent::new(10, 2).chunks(0).count(), 2);
        assert_eq!(Extent::new(u64::MAX - 1, 2).chunks(1).count(), 2);
    }

    #[test]
    fn neighbours_do_not_overlap() {
        assert!(!Extent::new(0, 4).overlaps(Extent::new(4, 4)));
        assert!(Extent::new(0, 5).overlaps(Extent::new(4, 4)));
        assert!(!Extent::new(2, 0).overlaps(Extent::new(2, 0)));
    }
}
