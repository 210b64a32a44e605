//! What initiators ask of a disk before they use it, answered with constants (SPC-4, SBC-3).

use super::BLOCK_BYTES;

/// What a command comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// As many bytes of the disk as the initiator expects.
    Read,
    /// As many bytes for the disk as the initiator has.
    Write,
    /// These bytes, with status GOOD.
    Data(Vec<u8>),
    /// CHECK CONDITION: INVALID COMMAND OPERATION CODE.
    Unknown,
}

/// What is done about a CDB.
pub(super) fn of(cdb: &[u8; 16], blocks: u64) -> Answer {
    match cdb[0] {
        0x28 | 0x88 => Answer::Read,
        0x2a | 0x8a => Answer::Write,
        0x00 | 0x1b | 0x35 | 0x91 => Answer::Data(Vec::new()), // TEST UNIT READY, START STOP UNIT, SYNCHRONIZE CACHE
        0x03 => Answer::Data(vec![0x70, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        0x12 => inquiry(cdb).map_or(Answer::Unknown, |data| limited(data, u16_at(cdb, 3).into())),
        0x1a => limited(vec![3, 0, 0, 0], cdb[4].into()),
        0x5a => limited(vec![0, 6, 0, 0, 0, 0, 0, 0], u16_at(cdb, 7).into()),
        0x25 => Answer::Data(capacity_10(blocks)),
        0x9e if cdb[1] & 0x1f == 0x10 => limited(capacity_16(blocks), u32_at(cdb, 10) as usize),
        0xa0 => limited(vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], u32_at(cdb, 6) as usize),
        _ => Answer::Unknown,
    }
}

fn limited(mut data: Vec<u8>, allocation_length: usize) -> Answer {
    data.truncate(allocation_length);
    Answer::Data(data)
}

/// Standard data, or one of the pages that say who this is and that it does not turn.
fn inquiry(cdb: &[u8; 16]) -> Option<Vec<u8>> {
    const NAME: &[u8; 28] = b"LINERATERAW CEILING     0000";
    let page = |code: u8, data: &[u8]| {
        let length = data.len() as u8; // all of them are shorter than 100 bytes
        Some([&[0, code, 0, length], data].concat())
    };
    match (cdb[1] & 1, cdb[2]) {
        (0, _) => Some([&[0, 0, 6, 0x12, 31, 0, 0, 2], &NAME[..]].concat()),
        (_, 0x00) => page(0x00, &[0x00, 0x80, 0x83, 0xb1]),
        (_, 0x80) => page(0x80, b"raw0"),
        // One T10 vendor designator in ASCII.
        (_, 0x83) => page(0x83, &[&[0x02, 0x01, 0, 12], &b"LINERATEraw0"[..]].concat()),
        (_, 0xb1) => page(0xb1, &[&[0, 1], &[0; 58][..]].concat()),
        _ => None,
    }
}

fn capacity_10(blocks: u64) -> Vec<u8> {
    let last = u32::try_from(blocks - 1).unwrap_or(u32::MAX); // then the initiator asks for the longer form
    [last.to_be_bytes(), (BLOCK_BYTES as u32).to_be_bytes()].concat()
}

fn capacity_16(blocks: u64) -> Vec<u8> {
    let mut data = (blocks - 1).to_be_bytes().to_vec();
    data.extend((BLOCK_BYTES as u32).to_be_bytes());
    data.resize(32, 0);
    data
}

fn u16_at(cdb: &[u8; 16], at: usize) -> u16 {
    u16::from_be_bytes([cdb[at], cdb[at + 1]])
}

fn u32_at(cdb: &[u8; 16], at: usize) -> u32 {
    u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]])
}
