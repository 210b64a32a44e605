//! CDBs by layout.

pub fn six(opcode: u8, lba: u32, blocks: u8) -> [u8; 6] {
    let lba = lba.to_be_bytes();
    [opcode, lba[1], lba[2], lba[3], blocks, 0]
}

pub fn ten(opcode: u8, flags: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

pub fn twelve(opcode: u8, flags: u8, lba: u32, blocks: u32) -> [u8; 12] {
    let mut cdb = [0; 12];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[6..10].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

pub fn sixteen(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// Creates a CDB of ten, twelve or sixteen bytes, depending on the operation code.
pub fn sized(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Vec<u8> {
    match opcode >> 5 {
        1 | 2 => ten(opcode, flags, lba as u32, blocks as u16).to_vec(),
        5 => twelve(opcode, flags, lba as u32, blocks).to_vec(),
        _ => sixteen(opcode, flags, lba, blocks).to_vec(),
    }
}

pub const TEST_UNIT_READY: [u8; 6] = [0; 6];

pub fn inquiry(page: Option<u8>, allocation_length: u16) -> [u8; 6] {
    let [high, low] = allocation_length.to_be_bytes();
    [
        0x12,
        u8::from(page.is_some()),
        page.unwrap_or(0),
        high,
        low,
        0,
    ]
}

/// Creates START STOP UNIT with these bits in byte 4.
pub fn start_stop(bits: u8) -> [u8; 6] {
    [0x1b, 0, 0, 0, bits, 0]
}

pub fn prevent(prevent: u8) -> [u8; 6] {
    [0x1e, 0, 0, 0, prevent, 0]
}

pub fn compare_and_write(lba: u64, blocks: u8) -> [u8; 16] {
    let mut cdb = sixteen(0x89, 0, lba, 0);
    cdb[13] = blocks;
    cdb
}

pub fn write_atomic(lba: u64, blocks: u16) -> [u8; 16] {
    let mut cdb = sixteen(0x9c, 0, lba, 0);
    cdb[12..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

pub fn get_lba_status(lba: u64, allocation_length: u32) -> [u8; 16] {
    sixteen(0x9e, 0x12, lba, allocation_length)
}

/// Creates UNMAP and its parameter list.
pub fn unmap(extents: &[(u64, u32)]) -> ([u8; 10], Vec<u8>) {
    let bytes = extents.len() as u16 * 16;
    let mut list = (bytes + 6).to_be_bytes().to_vec();
    list.extend(bytes.to_be_bytes());
    list.extend([0; 4]);
    for (lba, blocks) in extents {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    (ten(0x42, 0, 0, list.len() as u16), list)
}
