//! Classes of commands with separate latencies.

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// READ of any length.
    Read,
    /// WRITE of any length, and WRITE AND VERIFY.
    Write,
    /// Everything else, WRITE SAME and UNMAP too: their cost has little to do with the bytes that they move.
    Other,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 3] = [Class::Read, Class::Write, Class::Other];

    /// By the operation code (SBC-4 table 36), and by the service action of those that share 7Fh.
    pub fn from_cdb(cdb: &[u8]) -> Class {
        match cdb {
            [0x08 | 0x28 | 0xa8 | 0x88, ..] => Class::Read,
            [0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e, ..] => Class::Write,
            [0x7f, _, _, _, _, _, _, _, 0x00, 0x09, ..] => Class::Read,
            [0x7f, _, _, _, _, _, _, _, 0x00, 0x0b | 0x0c, ..] => Class::Write,
            _ => Class::Other,
        }
    }
}
