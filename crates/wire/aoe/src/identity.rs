//! The sector of IDENTIFY DEVICE (ACS-3 section 7.12): 256 words.

/// Length in bytes.
pub const IDENTITY_BYTES: usize = 512;

/// The identity of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Words 27 to 46: 40 characters of ASCII.
    pub model: String,
    /// Words 10 to 19: 20 characters.
    pub serial: String,
    /// Words 23 to 26: 8 characters.
    pub firmware: String,
    /// Words 100 to 103 if the device has the 48-bit feature set, else 60 and 61: sectors of 512 bytes.
    pub sectors: u64,
    /// Word 83, bit 10: EXT commands.
    pub is_extended: bool,
    /// Word 83, bit 12: FLUSH CACHE.
    pub has_flush: bool,
    /// Word 83, bit 13: FLUSH CACHE EXT.
    pub has_flush_ext: bool,
    /// Words 82 and 85, bit 5.
    pub write_cache: WriteCache,
    /// Word 169, bit 0: DATA SET MANAGEMENT with TRIM. Word 69, bits 14 and 5: deallocated sectors read as zeros.
    pub trims: bool,
    /// Word 105: maximum number of sectors of ranges in a TRIM command; 0 if not reported.
    pub trim_sectors_max: u16,
    /// Word 106: log2 of the logical sectors in a physical one.
    pub physical_exponent: u8,
    /// Word 217: 1 is a non-rotating device.
    pub is_solid_state: bool,
}

/// Whether acknowledged writes may be in a cache until a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteCache {
    /// Not reported: the bit in word 82 is clear. Some servers with a cache leave both words zero.
    #[default]
    Unknown,
    /// A cache is supported, but disabled: acknowledged writes are on stable storage.
    Off,
    /// The cache is enabled.
    On,
}

const LBA28_SECTORS_MAX: u64 = 0x0fff_ffff;

/// Word 83 and others are valid if their two upper bits are 01.
const VALID: u16 = 0x4000;
const EXTENDED: u16 = 1 << 10;
const FLUSH: u16 = 1 << 12;
const FLUSH_EXT: u16 = 1 << 13;
const WRITE_CACHE: u16 = 1 << 5;
const SEVERAL_PER_PHYSICAL: u16 = 1 << 13;
const TRIM_READS_THE_SAME: u16 = 1 << 14;
const TRIM_READS_ZEROS: u16 = 1 << 5;
const SOLID_STATE: u16 = 1;
/// Word 255 contains a checksum if its low byte is this.
const SIGNATURE: u8 = 0xa5;

impl Identity {
    /// Whether a write cache is reported as enabled.
    pub fn has_write_cache(&self) -> bool {
        self.write_cache == WriteCache::On
    }

    /// Parses the sector.
    pub fn parse(sector: &[u8; IDENTITY_BYTES]) -> Identity {
        let word = |at: usize| u16::from_le_bytes([sector[2 * at], sector[2 * at + 1]]);
        let number = |at: usize, words: usize| {
            (0..words)
                .rev()
                .fold(0, |number, step| number << 16 | u64::from(word(at + step)))
        };
        let text = |at: usize, words: usize| {
            let bytes: Vec<u8> = (at..at + words)
                .flat_map(|at| word(at).to_be_bytes())
                .collect();
            let is_printed = |byte: &&u8| (0x20..0x7f).contains(*byte);
            let text: String = bytes
                .iter()
                .filter(is_printed)
                .map(|byte| char::from(*byte))
                .collect();
            text.trim().to_owned()
        };
        let valid = |at: usize| {
            if word(at) & 0xc000 == VALID {
                word(at)
            } else {
                0
            }
        };
        let has = |flags: u16, flag: u16| flags & flag != 0;
        let is_extended = has(valid(83), EXTENDED);
        let physical = valid(106);
        Identity {
            model: text(27, 20),
            serial: text(10, 10),
            firmware: text(23, 4),
            sectors: if is_extended {
                number(100, 4)
            } else {
                number(60, 2)
            },
            is_extended,
            has_flush: has(valid(83), FLUSH),
            has_flush_ext: has(valid(83), FLUSH_EXT),
            write_cache: match (has(word(82), WRITE_CACHE), has(word(85), WRITE_CACHE)) {
                (_, true) => WriteCache::On,
                (true, false) => WriteCache::Off,
                (false, false) => WriteCache::Unknown,
            },
            trims: has(word(169), 1)
                && has(word(69), TRIM_READS_THE_SAME)
                && has(word(69), TRIM_READS_ZEROS),
            trim_sectors_max: word(105),
            physical_exponent: if has(physical, SEVERAL_PER_PHYSICAL) {
                (physical & 0x0f) as u8
            } else {
                0
            },
            is_solid_state: word(217) == SOLID_STATE,
        }
    }

    /// Encodes the sector.
    pub fn bytes(&self) -> [u8; IDENTITY_BYTES] {
        let mut words = [0u16; IDENTITY_BYTES / 2];
        let mut text = |at: usize, count: usize, text: &str| {
            let mut bytes = text.bytes().map(|byte| {
                if (0x20..0x7f).contains(&byte) {
                    byte
                } else {
                    b'?'
                }
            });
            for word in &mut words[at..at + count] {
                let [first, second] = [bytes.next().unwrap_or(b' '), bytes.next().unwrap_or(b' ')];
                *word = u16::from_be_bytes([first, second]);
            }
        };
        text(10, 10, &self.serial);
        text(23, 4, &self.firmware);
        text(27, 20, &self.model);
        let flag = |has: bool, flag: u16| if has { flag } else { 0 };
        words[47] = 0x8000; // no READ MULTIPLE
        words[49] = 0x0300; // LBA, DMA
        words[50] = VALID;
        let lba28 = self.sectors.min(LBA28_SECTORS_MAX);
        (words[60], words[61]) = (lba28 as u16, (lba28 >> 16) as u16);
        words[69] = flag(self.trims, TRIM_READS_THE_SAME | TRIM_READS_ZEROS);
        words[80] = 0x03f0; // ATA8-ACS to ACS-3, and earlier versions
        words[82] = flag(self.write_cache != WriteCache::Unknown, WRITE_CACHE);
        let sets = flag(self.is_extended, EXTENDED)
            | flag(self.has_flush, FLUSH)
            | flag(self.has_flush_ext, FLUSH_EXT);
        words[83] = VALID | sets;
        words[84] = VALID;
        words[85] = flag(self.write_cache == WriteCache::On, WRITE_CACHE);
        words[86] = sets;
        words[87] = VALID;
        if self.is_extended {
            for (step, word) in words[100..104].iter_mut().enumerate() {
                *word = (self.sectors >> (16 * step)) as u16;
            }
        }
        words[105] = flag(self.trims, self.trim_sectors_max);
        let exponent = u16::from(self.physical_exponent & 0x0f);
        words[106] = VALID | flag(exponent > 0, SEVERAL_PER_PHYSICAL | exponent);
        words[169] = flag(self.trims, 1);
        words[217] = flag(self.is_solid_state, SOLID_STATE);
        let mut sector = [0; IDENTITY_BYTES];
        for (bytes, word) in sector.as_chunks_mut::<2>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        sector[510] = SIGNATURE;
        let sum = sector.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        sector[511] = sum.wrapping_neg();
        sector
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_says_comes_back() {
        let identity = Identity {
            model: "LINERATE VIRTUAL-DISK".to_owned(),
            serial: "0123456789abcdef".to_owned(),
            firmware: "0001".to_owned(),
            sectors: 1 << 40 | 7,
            is_extended: true,
            has_flush: true,
            has_flush_ext: true,
            write_cache: WriteCache::On,
            trims: true,
            trim_sectors_max: 1,
            physical_exponent: 3,
            is_solid_state: true,
        };
        let sector = identity.bytes();
        assert_eq!(Identity::parse(&sector), identity);
        assert_eq!(
            sector.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)),
            0,
            "the checksum of word 255"
        );
        assert_eq!(
            &sector[54..62],
            b"ILENARET",
            "characters are swapped in each word"
        );
        assert_eq!(
            Identity::parse(&[0xff; IDENTITY_BYTES]).sectors,
            u64::from(u32::MAX),
            "nothing is valid"
        );
    }

    #[test]
    fn a_cache_that_is_off_is_told_from_one_that_nothing_is_said_of() {
        for write_cache in [WriteCache::Unknown, WriteCache::Off, WriteCache::On] {
            let identity = Identity {
                write_cache,
                ..Identity::default()
            };
            assert_eq!(Identity::parse(&identity.bytes()), identity);
        }
    }

    #[test]
    fn a_device_of_28_bits_says_no_more_than_it_has() {
        let identity = Identity {
            sectors: 5,
            ..Identity::default()
        };
        assert_eq!(Identity::parse(&identity.bytes()), identity);
        let longer = Identity {
            sectors: 1 << 40,
            ..Identity::default()
        };
        assert_eq!(Identity::parse(&longer.bytes()).sectors, LBA28_SECTORS_MAX);
    }
}
