//! Decides which data are recorded whole: those of all commands except reads and writes.
//!
//! A Data-In does not say what it answers; its command did, and both have the same tag.

use iscsi::pdu::{Bhs, Opcode};

/// The tags of the last commands that moved something else than blocks.
#[derive(Clone)]
pub(super) struct Whole {
    tags: [u32; TAGS],
    /// Which of them is overwritten next.
    oldest: usize,
}

/// As many such commands at once do not happen outside of tests.
const TAGS: usize = 16;
/// Nothing has this tag (RFC 7143 section 11.2.1.8).
const RESERVED: u32 = 0xffff_ffff;
/// Where a SCSI Command has its CDB, and its operation code first of all.
const CDB: usize = 32;

impl Default for Whole {
    fn default() -> Whole {
        Whole { tags: [RESERVED; TAGS], oldest: 0 }
    }
}

impl Whole {
    /// Remembers a command's tag, or forgets it, if this heads a command.
    pub(super) fn notice(&mut self, bhs: &Bhs) {
        if !is(bhs, Opcode::ScsiCommand) {
            return;
        }
        let tag = bhs.itt_raw();
        // All of them every time: so the compiler compares several at once.
        self.tags.iter_mut().for_each(|known| *known = if *known == tag { RESERVED } else { *known });
        if !moves_blocks(bhs.u8(CDB)) {
            self.tags[self.oldest] = tag;
            self.oldest = (self.oldest + 1) % TAGS;
        }
    }

    /// Whether the data of this PDU are to be kept whole.
    pub(super) fn is_wanted(&self, bhs: &Bhs) -> bool {
        let of_a_command = [Opcode::ScsiCommand, Opcode::DataIn, Opcode::DataOut];
        !of_a_command.iter().any(|opcode| is(bhs, *opcode)) || self.has(bhs.itt_raw())
    }

    /// As above.
    fn has(&self, tag: u32) -> bool {
        self.tags.iter().fold(false, |found, known| found | (*known == tag))
    }
}

fn is(bhs: &Bhs, opcode: Opcode) -> bool {
    bhs.u8(0) & 0x3f == opcode as u8
}

/// Whether the data of a command are a medium's (SBC-3 table 12).
fn moves_blocks(operation_code: u8) -> bool {
    match operation_code {
        0x08 | 0x28 | 0xa8 | 0x88 => true, // READ (6), (10), (12), (16)
        0x0a | 0x2a | 0xaa | 0x8a => true, // WRITE
        0x2e | 0xae | 0x8e | 0x2f | 0xaf | 0x8f => true, // WRITE AND VERIFY, VERIFY
        0x41 | 0x93 | 0x89 | 0x9c => true, // WRITE SAME, COMPARE AND WRITE, WRITE ATOMIC (16)
        0x7f => true,                      // the 32-byte forms of all these
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(tag: u32, operation_code: u8) -> Bhs {
        let mut bhs = Bhs::new(Opcode::ScsiCommand);
        bhs.set_u32(16, tag);
        bhs.set_u8(CDB, operation_code);
        bhs
    }

    fn answer(tag: u32) -> Bhs {
        let mut bhs = Bhs::new(Opcode::DataIn);
        bhs.set_u32(16, tag);
        bhs
    }

    #[test]
    fn data_are_wanted_that_are_no_mediums() {
        let mut whole = Whole::default();
        whole.notice(&command(1, 0x12)); // INQUIRY
        whole.notice(&command(2, 0x28)); // READ (10)
        assert!(whole.is_wanted(&answer(1)));
        assert!(!whole.is_wanted(&answer(2)));
        assert!(whole.is_wanted(&Bhs::new(Opcode::TextResponse)));
    }

    #[test]
    fn a_tag_that_is_used_again_counts_for_its_last_command() {
        let mut whole = Whole::default();
        whole.notice(&command(1, 0x12));
        whole.notice(&command(1, 0x8a)); // WRITE (16)
        assert!(!whole.is_wanted(&answer(1)));
    }
}
