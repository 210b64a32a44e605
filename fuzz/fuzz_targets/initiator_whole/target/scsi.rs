//! The target's responses to SCSI commands: by default, it is a disk of 2048 blocks of 512 bytes.

use iscsi::pdu::Bhs;

use super::{FINAL, NO_TAG, Target, Write, say};

const BLOCKS: u64 = 2048;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
/// Flags of a Data-In (RFC 7143 11.7.1): the residual bits, and the S bit for a status.
const UNDERFLOW: u8 = 0x02;
/// Maximum data of a Data-In, and of an R2T.
const SEGMENT: usize = 8192;

impl Target {
    pub(super) fn carry_out(&mut self, wire: usize, bhs: &Bhs, data: &[u8], said: &mut Vec<u8>) {
        let flags = bhs.u8(1);
        if flags & READS != 0 {
            return self.give(wire, bhs, said);
        }
        if flags & WRITES == 0 {
            return self.end(wire, bhs, said, 0);
        }
        let write = Write {
            wanted: bhs.u32(20),
            received: data.len() as u32,
            r2ts: 0,
        };
        self.writes.insert(bhs.itt_raw(), write);
        // Without the F bit, unsolicited data follows first.
        if flags & FINAL != 0 {
            self.ask_for_more(wire, bhs, said);
        }
    }

    /// Processes a Data-Out.
    pub(super) fn take(&mut self, wire: usize, bhs: &Bhs, data: &[u8], said: &mut Vec<u8>) {
        if let Some(write) = self.writes.get_mut(&bhs.itt_raw()) {
            write.received = write.received.saturating_add(data.len() as u32);
        }
        if bhs.u8(1) & FINAL != 0 {
            self.ask_for_more(wire, bhs, said);
        }
    }

    /// Sends an R2T, or the response if all data has arrived.
    fn ask_for_more(&mut self, wire: usize, bhs: &Bhs, said: &mut Vec<u8>) {
        let itt = bhs.itt_raw();
        let Some(write) = self.writes.get_mut(&itt) else {
            return;
        };
        let (at, number) = (write.received, write.r2ts);
        let left = write.wanted.saturating_sub(at);
        write.r2ts += 1;
        if left == 0 {
            self.writes.remove(&itt);
            return self.end(wire, bhs, said, 0);
        }
        let mut r2t = self.numbered(wire, 0x31, bhs);
        r2t.set_u8(1, FINAL);
        r2t.set_u32(20, number);
        r2t.set_u32(36, number);
        r2t.set_u32(40, at);
        r2t.set_u32(44, left.min(SEGMENT as u32));
        say(said, r2t, &[]);
    }

    fn give(&mut self, wire: usize, bhs: &Bhs, said: &mut Vec<u8>) {
        let wanted = bhs.u32(20) as usize;
        let data = match self.byte() {
            0..0xc0 => canned(&bhs.bytes::<16>(32), wanted),
            0xc0..0xe0 => {
                let count = usize::from(self.byte()) * 2;
                self.script(|script| script.bytes(count).to_vec())
            }
            0xe0..0xf0 => {
                let mut data = canned(&bhs.bytes::<16>(32), wanted);
                self.damage(&mut data);
                data
            }
            0xf0.. => Vec::new(),
        };
        let data = &data[..data.len().min(wanted)];
        for (number, piece) in data.chunks(SEGMENT).enumerate() {
            let mut data_in = self.numbered(wire, 0x25, bhs);
            let is_last = (number + 1) * SEGMENT >= data.len();
            data_in.set_u8(1, if is_last { FINAL } else { 0 });
            data_in.set_u32(20, NO_TAG);
            data_in.set_u32(24, 0);
            data_in.set_u32(36, number as u32);
            data_in.set_u32(40, (number * SEGMENT) as u32);
            say(said, data_in, piece);
        }
        self.end(wire, bhs, said, wanted - data.len());
    }

    /// Sends the SCSI Response, usually with GOOD status.
    fn end(&mut self, wire: usize, bhs: &Bhs, said: &mut Vec<u8>, missing: usize) {
        let (status, sense) = match self.byte() {
            0..0xd0 => (0x00, Vec::new()),
            0xd0..0xe0 => (
                0x02,
                vec![
                    0, 18, 0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0, 0, 0, 0, 0,
                ],
            ),
            0xe0..0xf0 => {
                let count = usize::from(self.byte());
                (0x02, self.script(|script| script.bytes(count).to_vec()))
            }
            other => (
                [0x08, 0x18, 0x28, 0x30, 0x40, 0xff, 0x04, 0x10][usize::from(other & 7)],
                Vec::new(),
            ),
        };
        let mut response = self.status(wire, 0x21, bhs);
        response.set_u8(3, status);
        if missing > 0 {
            response.set_u8(1, FINAL | UNDERFLOW);
            response.set_u32(44, missing as u32);
        }
        say(said, response, &sense);
    }
}

/// Returns the response data of a disk.
fn canned(cdb: &[u8; 16], wanted: usize) -> Vec<u8> {
    match (cdb[0], cdb[1] & 0x1f) {
        (0x12, 1) => page(cdb[2]),
        (0x12, _) => {
            let mut inquiry = vec![0, 0, 6, 2, 31, 0, 0, 2];
            inquiry.extend_from_slice(b"EXAMPLE disk            1   ");
            inquiry
        }
        (0x25, _) => [(BLOCKS as u32 - 1).to_be_bytes(), 512u32.to_be_bytes()].concat(),
        (0x9e, 0x10) => {
            let mut capacity = [0; 32];
            capacity[..8].copy_from_slice(&(BLOCKS - 1).to_be_bytes());
            capacity[8..12].copy_from_slice(&512u32.to_be_bytes());
            capacity[14] = 0xc0; // LBPME, LBPRZ
            capacity.to_vec()
        }
        (0x9e, 0x12) => {
            let mut status = vec![0, 0, 0, 20, 0, 0, 0, 0];
            status.extend_from_slice(&cdb[2..10]);
            status.extend_from_slice(&[0, 0, 0, 8, 0, 0, 0, 0]);
            status
        }
        (0x1a, _) => vec![
            23, 0, 0, 0, 0x08, 18, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
        (0xa0, _) => vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        _ => vec![0; wanted],
    }
}

/// Returns a page of vital product data.
fn page(code: u8) -> Vec<u8> {
    match code {
        0x00 => vec![0, 0x00, 0, 5, 0x00, 0x80, 0x83, 0xb0, 0xb1],
        0x80 => vec![0, 0x80, 0, 4, b'1', b'2', b'3', b'4'],
        0x83 => vec![0, 0x83, 0, 12, 1, 3, 0, 8, 0x50, 1, 2, 3, 4, 5, 6, 7],
        0xb0 => [&[0, 0xb0, 0, 60][..], &[0; 60]].concat(),
        0xb1 => [&[0, 0xb1, 0, 60, 0, 1][..], &[0; 58]].concat(),
        _ => vec![0, code, 0, 0],
    }
}
