//! ATA commands in a frame (AoEr11 section 3.1): the registers of a disk, which the client writes and reads.
//!
//! ```text
//!   10 flags: E extended 40h, D 10h, A asynchronous 02h, W data to the device 01h
//!   11 feature; in a response the error register        14 six bytes of LBA, the lowest first
//!   12 sector count                                     20 reserved
//!   13 command; in a response the status register       22 data
//! ```
//!
//! Command and register numbers are those of ATA/ATAPI Command Set-3 (ACS-3).

/// Length of the part between header and data.
pub(crate) const BODY_BYTES: usize = 12;

const EXTENDED: u8 = 0x40;
const ASYNCHRONOUS: u8 = 0x02;
const WRITE: u8 = 0x01;

const DATA_SET_MANAGEMENT: u8 = 0x06;
const READ_SECTORS: u8 = 0x20;
const READ_SECTORS_EXT: u8 = 0x24;
const READ_DMA_EXT: u8 = 0x25;
const WRITE_SECTORS: u8 = 0x30;
const WRITE_SECTORS_EXT: u8 = 0x34;
const WRITE_DMA_EXT: u8 = 0x35;
const WRITE_DMA_FUA_EXT: u8 = 0x3d;
const READ_DMA: u8 = 0xc8;
const WRITE_DMA: u8 = 0xca;
const CHECK_POWER_MODE: u8 = 0xe5;
const FLUSH_CACHE: u8 = 0xe7;
const FLUSH_CACHE_EXT: u8 = 0xea;
const IDENTIFY_DEVICE: u8 = 0xec;

/// DATA SET MANAGEMENT: deallocate the ranges.
const TRIM: u8 = 0x01;

/// A command, or its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ata {
    /// The flags E, D, A and W.
    pub flags: u8,
    /// The feature register of a command, the error register of a response.
    pub feature_or_error: u8,
    /// Sector count.
    pub count: u8,
    /// The command register of a command, the status register of a response.
    pub command_or_status: u8,
    /// LBA, 48 bits.
    pub lba: u64,
}

/// The operation that a command requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtaOperation {
    /// IDENTIFY DEVICE: a sector of [`Identity`](crate::Identity).
    Identify,
    /// READ SECTORS, READ DMA, with EXT or without.
    Read {
        /// The first sector.
        lba: u64,
        /// Number of sectors.
        sectors: u32,
    },
    /// WRITE SECTORS, WRITE DMA, with EXT or without.
    Write {
        /// The first sector.
        lba: u64,
        /// Number of sectors.
        sectors: u32,
        /// WRITE DMA FUA EXT: the data must be on stable storage when the response is sent.
        is_durable: bool,
    },
    /// FLUSH CACHE, with EXT or without.
    Flush,
    /// CHECK POWER MODE: the response reports an active device.
    CheckPower,
    /// DATA SET MANAGEMENT with TRIM, with [`TrimRanges`] as data.
    Trim {
        /// Number of sectors.
        sectors: u32,
    },
    /// Any other command.
    Unsupported,
}

/// Bits of the status register (ACS-3 section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status;

impl Status {
    /// The device is ready.
    pub const READY: u8 = 0x40;
    /// The command has failed; the error register contains the reason.
    pub const ERROR: u8 = 0x01;
    /// The device has failed.
    pub const FAULT: u8 = 0x20;
}

/// Bits of the error register (ACS-3 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtaError {
    /// The command is not supported, or not permitted.
    Aborted = 0x04,
    /// The sector does not exist.
    NoSector = 0x10,
    /// The data is unreadable.
    Uncorrectable = 0x40,
}

impl Ata {
    /// A command that reads these sectors. `vblade` supports READ SECTORS EXT, but not DMA.
    pub fn read(lba: u64, sectors: u8) -> Ata {
        Ata {
            flags: EXTENDED,
            count: sectors,
            command_or_status: READ_SECTORS_EXT,
            lba,
            ..Ata::default()
        }
    }

    /// A command that writes these sectors.
    pub fn write_sectors(lba: u64, sectors: u8) -> Ata {
        let command_or_status = WRITE_SECTORS_EXT;
        Ata {
            flags: EXTENDED | WRITE,
            count: sectors,
            command_or_status,
            lba,
            ..Ata::default()
        }
    }

    /// IDENTIFY DEVICE.
    pub fn identify() -> Ata {
        Ata {
            count: 1,
            command_or_status: IDENTIFY_DEVICE,
            ..Ata::default()
        }
    }

    /// FLUSH CACHE, or FLUSH CACHE EXT.
    pub fn flush(is_extended: bool) -> Ata {
        match is_extended {
            true => Ata {
                flags: EXTENDED,
                command_or_status: FLUSH_CACHE_EXT,
                ..Ata::default()
            },
            false => Ata {
                command_or_status: FLUSH_CACHE,
                ..Ata::default()
            },
        }
    }

    /// DATA SET MANAGEMENT with TRIM, with `sectors` sectors of ranges as data.
    pub fn trim(sectors: u8) -> Ata {
        Ata {
            flags: EXTENDED | WRITE,
            feature_or_error: TRIM,
            count: sectors,
            command_or_status: DATA_SET_MANAGEMENT,
            lba: 0,
        }
    }

    /// The operation that a command requests. As in ATA, a count of 0 means 256, or 65,536 for an EXT command.
    pub fn operation(&self) -> AtaOperation {
        let is_extended = matches!(
            self.command_or_status,
            READ_SECTORS_EXT | READ_DMA_EXT | WRITE_SECTORS_EXT | WRITE_DMA_EXT | WRITE_DMA_FUA_EXT
        );
        let lba = if is_extended {
            self.lba
        } else {
            self.lba & 0x0fff_ffff
        };
        let sectors = match (self.count, is_extended) {
            (0, false) => 1 << 8,
            (0, true) => 1 << 16,
            (count, _) => u32::from(count),
        };
        match self.command_or_status {
            IDENTIFY_DEVICE => AtaOperation::Identify,
            READ_SECTORS | READ_DMA | READ_SECTORS_EXT | READ_DMA_EXT => {
                AtaOperation::Read { lba, sectors }
            }
            WRITE_SECTORS | WRITE_DMA | WRITE_SECTORS_EXT | WRITE_DMA_EXT => AtaOperation::Write {
                lba,
                sectors,
                is_durable: false,
            },
            WRITE_DMA_FUA_EXT => AtaOperation::Write {
                lba,
                sectors,
                is_durable: true,
            },
            FLUSH_CACHE | FLUSH_CACHE_EXT => AtaOperation::Flush,
            CHECK_POWER_MODE => AtaOperation::CheckPower,
            DATA_SET_MANAGEMENT if self.feature_or_error & TRIM != 0 => {
                AtaOperation::Trim { sectors }
            }
            _ => AtaOperation::Unsupported,
        }
    }

    /// The response to a successful command. As with `vblade`, the count is the number of remaining sectors:
    /// 0.
    pub fn done(&self) -> Ata {
        Ata {
            feature_or_error: 0,
            count: 0,
            command_or_status: Status::READY,
            ..*self
        }
    }

    /// The response to a failed command.
    pub fn failed(&self, error: AtaError) -> Ata {
        let command_or_status = Status::READY | Status::ERROR;
        Ata {
            feature_or_error: error as u8,
            command_or_status,
            ..*self
        }
    }

    /// The response to a command whose device has failed.
    pub fn faulted(&self) -> Ata {
        let command_or_status = Status::READY | Status::FAULT | Status::ERROR;
        Ata {
            feature_or_error: AtaError::Aborted as u8,
            command_or_status,
            ..*self
        }
    }

    /// In a response: whether the command has failed.
    pub fn has_failed(&self) -> bool {
        self.command_or_status & (Status::ERROR | Status::FAULT) != 0
    }

    pub(crate) fn parse(body: &[u8]) -> Option<(Ata, &[u8])> {
        let (head, data) = body.split_first_chunk::<BODY_BYTES>()?;
        let [
            flags,
            feature_or_error,
            count,
            command_or_status,
            a,
            b,
            c,
            d,
            e,
            f,
            ..,
        ] = *head;
        let lba = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        Some((
            Ata {
                flags,
                feature_or_error,
                count,
                command_or_status,
                lba,
            },
            data,
        ))
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let Ata {
            flags,
            feature_or_error,
            count,
            command_or_status,
            lba,
        } = *self;
        out.extend_from_slice(&[
            flags & !ASYNCHRONOUS,
            feature_or_error,
            count,
            command_or_status,
        ]);
        debug_assert!(lba < 1 << 48, "an LBA of 48 bits");
        out.extend_from_slice(&lba.to_le_bytes()[..6]);
        out.extend_from_slice(&[0; 2]);
    }
}

/// Maximum length of a range of DATA SET MANAGEMENT, in sectors.
pub const TRIM_RANGE_SECTORS_MAX: u64 = 65_535;

/// The ranges in the data of DATA SET MANAGEMENT (ACS-3 section 7.5): an LBA of 48 bits and a length of 16
/// bits each. Ranges of length 0 are skipped.
#[derive(Clone, Debug)]
pub struct TrimRanges<'a>(std::slice::ChunksExact<'a, u8>);

impl<'a> TrimRanges<'a> {
    /// The ranges in these sectors.
    pub fn new(data: &'a [u8]) -> TrimRanges<'a> {
        TrimRanges(data.chunks_exact(8))
    }
}

/// First sector and number of sectors.
impl Iterator for TrimRanges<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        loop {
            let entry = self.0.next()?;
            let entry = u64::from_le_bytes(entry.try_into().ok()?);
            let (lba, length) = (entry & 0xffff_ffff_ffff, entry >> 48);
            if length > 0 {
                return Some((lba, length));
            }
        }
    }
}

/// Fills a sector with ranges that cover the beginning of a longer range, and returns the number of sectors
/// covered.
pub fn write_trim_ranges(lba: u64, sectors: u64, out: &mut [u8; crate::SECTOR_BYTES]) -> u64 {
    let mut written = 0;
    for entry in out.chunks_exact_mut(8) {
        let length = (sectors - written).min(TRIM_RANGE_SECTORS_MAX);
        let value = if length == 0 {
            0
        } else {
            (lba + written) & 0xffff_ffff_ffff | length << 48
        };
        entry.copy_from_slice(&value.to_le_bytes());
        written += length;
    }
    debug_assert!(written <= sectors, "ranges beyond the request");
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_none_is_the_most() {
        let none = |command_or_status| {
            Ata {
                command_or_status,
                lba: 1 << 40 | 5,
                ..Ata::default()
            }
            .operation()
        };
        assert_eq!(
            none(READ_SECTORS),
            AtaOperation::Read {
                lba: 5,
                sectors: 256
            }
        );
        assert_eq!(
            none(READ_SECTORS_EXT),
            AtaOperation::Read {
                lba: 1 << 40 | 5,
                sectors: 65_536
            }
        );
    }

    #[test]
    fn ranges_come_back() {
        let mut sector = [0xff; crate::SECTOR_BYTES];
        assert_eq!(write_trim_ranges(10, 100_000, &mut sector), 100_000);
        assert_eq!(
            TrimRanges::new(&sector).collect::<Vec<_>>(),
            [(10, 65_535), (65_545, 34_465)]
        );
        assert_eq!(
            write_trim_ranges(0, u64::MAX >> 16, &mut sector),
            64 * TRIM_RANGE_SECTORS_MAX
        );
    }
}
