//! The command descriptor block, read field by field.

use block::Extent;

/// A CDB as received. Missing bytes of a short CDB read as zero, which is also the value of every reserved
/// field. The operation code determines which bytes are evaluated.
#[derive(Clone, Copy)]
pub(crate) struct Cdb<'a>(pub(crate) &'a [u8]);

impl Cdb<'_> {
    pub(crate) fn byte(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    /// The whole CDB, padded with zeros to 16 bytes, the longest supported CDB.
    pub(crate) fn full(self) -> [u8; 16] {
        std::array::from_fn(|at| self.byte(at))
    }

    pub(crate) fn bit(self, at: usize, bit: u8) -> bool {
        self.byte(at) >> bit & 1 == 1
    }

    pub(crate) fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes(self.bytes(at))
    }

    pub(crate) fn u32(self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }

    pub(crate) fn u64(self, at: usize) -> u64 {
        u64::from_be_bytes(self.bytes(at))
    }

    fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        match self.0.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => *bytes,
            None => std::array::from_fn(|i| self.byte(at + i)),
        }
    }

    pub(crate) fn opcode(self) -> u8 {
        self.byte(0)
    }

    /// Whether the initiator requests an auto contingent allegiance (NACA, bit 2 of the CONTROL byte).
    pub(crate) fn naca(self) -> bool {
        self.bit(self.layout().control_at(), 2)
    }

    /// The CDB's layout, by its group code (SPC-4 4.2.5.1).
    pub(crate) fn layout(self) -> Layout {
        match self.opcode() >> 5 {
            0 => Layout::Six,
            1 | 2 => Layout::Ten,
            5 => Layout::Twelve,
            _ => Layout::Sixteen,
        }
    }

    /// The blocks that a READ, WRITE, VERIFY or cache command names. In 6-byte commands, 0 means 256 blocks
    /// (SBC-3 5.11); in the others, its meaning depends on the command.
    pub(crate) fn extent(self) -> Extent {
        match self.layout() {
            Layout::Six => {
                let lba = self.u32(0) & 0x1f_ffff;
                let blocks = if self.byte(4) == 0 {
                    256
                } else {
                    u64::from(self.byte(4))
                };
                Extent::new(u64::from(lba), blocks)
            }
            Layout::Ten => Extent::new(u64::from(self.u32(2)), u64::from(self.u16(7))),
            Layout::Twelve => Extent::new(u64::from(self.u32(2)), u64::from(self.u32(6))),
            Layout::Sixteen => Extent::new(self.u64(2), u64::from(self.u32(10))),
        }
    }
}

/// The positions of the common fields of a CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Six,
    Ten,
    Twelve,
    Sixteen,
}

impl Layout {
    /// The position of the first byte of the transfer length.
    pub(crate) fn length_at(self) -> u16 {
        match self {
            Layout::Six => 4,
            Layout::Ten => 7,
            Layout::Twelve => 6,
            Layout::Sixteen => 10,
        }
    }

    /// The position of the CONTROL byte, which is the last byte.
    pub(crate) fn control_at(self) -> usize {
        match self {
            Layout::Six => 5,
            Layout::Ten => 9,
            Layout::Twelve => 11,
            Layout::Sixteen => 15,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_six_byte_command_of_zero_blocks_means_256() {
        assert_eq!(
            Cdb(&[0x08, 0xff, 0xff, 0xfe, 0, 0]).extent(),
            Extent::new(0x1f_fffe, 256)
        );
        assert_eq!(Cdb(&[0x0a, 0, 0, 1, 2, 0]).extent(), Extent::new(1, 2));
    }

    #[test]
    fn each_layout_has_its_places() {
        let mut cdb = [0u8; 16];
        cdb[..10].copy_from_slice(&[0x28, 0, 0, 1, 2, 3, 0, 4, 5, 0]);
        assert_eq!(Cdb(&cdb).extent(), Extent::new(0x10203, 0x405));
        cdb[..12].copy_from_slice(&[0xa8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 0, 0]);
        assert_eq!(Cdb(&cdb).extent(), Extent::new(0x10203, 0x0405_0607));
        cdb.copy_from_slice(&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]);
        assert_eq!(
            Cdb(&cdb).extent(),
            Extent::new(0x0102_0304_0506_0708, 0x090a_0b0c)
        );
    }

    #[test]
    fn bytes_that_are_missing_read_as_zero() {
        assert_eq!(Cdb(&[0x88, 0, 1]).extent(), Extent::new(1 << 56, 0));
        assert_eq!(Cdb(&[]).opcode(), 0);
    }
}
