//! Response data of a command: Data-In PDUs, then status, with the last of them where allowed (RFC 7143
//! sections 11.4 and 11.7).

use super::event::Receipt;
use crate::pdu::Residual;

/// Expected data transfer lengths, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpectedLengths {
    pub(super) write: u32,
    pub(super) read: u32,
    pub(super) bidirectional: bool,
}

/// The driver's response, and how much of it has been sent.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) status: u8,
    /// Empty if there is none; an empty box owns no memory.
    pub(super) sense: Box<[u8]>,
    /// Acknowledgement that the driver wants of the status.
    pub(super) receipt: Option<Box<Receipt>>,
    /// Size of the Data-In.
    data_in: u32,
    /// Bytes requested by the CDB.
    expected: u64,
    sent: u32,
    data_sn: u32,
}

/// The range of one Data-In PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) data_sn: u32,
    /// It ends a burst, or the data.
    pub(super) is_final: bool,
    /// It carries the status, and is the last.
    pub(super) with_status: bool,
}

/// Limits on Data-In: the initiator's MaxRecvDataSegmentLength, and MaxBurstLength.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) segment: u32,
    pub(super) burst: u32,
}

impl Outbound {
    pub(super) fn new(
        status: u8,
        sense: &[u8],
        data_in: u32,
        expected: u64,
        lengths: ExpectedLengths,
    ) -> Outbound {
        Outbound {
            status,
            sense: sense.into(),
            receipt: None,
            data_in: data_in.min(lengths.read),
            expected,
            sent: 0,
            data_sn: 0,
        }
    }

    /// The next range; `None` if all data have been sent.
    pub(super) fn next_chunk(&mut self, limits: Limits, lengths: ExpectedLengths) -> Option<Chunk> {
        let left = self.data_in - self.sent;
        if left == 0 {
            return None;
        }
        let burst_left = limits.burst - self.sent % limits.burst;
        let length = left.min(limits.segment).min(burst_left);
        let is_last = length == left;
        let chunk = Chunk {
            offset: self.sent,
            length,
            data_sn: self.data_sn,
            is_final: is_last || length == burst_left,
            with_status: is_last && self.rides_on_data(lengths),
        };
        self.sent += length;
        self.data_sn += 1;
        Some(chunk)
    }

    /// Section 11.7.3: status may come with the last Data-In "if the command completed without an exception"; two
    /// residuals do not fit there.
    fn rides_on_data(&self, lengths: ExpectedLengths) -> bool {
        self.status == GOOD && self.sense.is_empty() && !lengths.bidirectional
    }

    /// Number of Data-In PDUs sent.
    pub(super) fn data_sn(&self) -> u32 {
        self.data_sn
    }

    /// The residual of the written data if it writes, else of the read data.
    pub(super) fn residual(&self, lengths: ExpectedLengths) -> Residual {
        let edtl = if lengths.bidirectional || lengths.read == 0 { lengths.write } else { lengths.read };
        residual(self.expected, edtl)
    }

    /// The residual of a bidirectional command's read data.
    pub(super) fn read_residual(&self, lengths: ExpectedLengths) -> Residual {
        match lengths.bidirectional {
            true => residual(u64::from(self.data_in), lengths.read),
            false => Residual::None,
        }
    }
}

/// Section 11.4.5: bytes requested against bytes expected by the initiator.
fn residual(moved: u64, expected: u32) -> Residual {
    let saturated = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    match moved.cmp(&u64::from(expected)) {
        std::cmp::Ordering::Equal => Residual::None,
        std::cmp::Ordering::Less => Residual::Underflow(saturated(u64::from(expected) - moved)),
        std::cmp::Ordering::Greater => Residual::Overflow(saturated(moved - u64::from(expected))),
    }
}

/// SAM-5 5.3.1.
const GOOD: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    const READ: ExpectedLengths = ExpectedLengths { write: 0, read: 10_000, bidirectional: false };

    #[test]
    fn data_is_cut_by_segments_and_bursts() {
        let mut answer = Outbound::new(0, &[], 10_000, 10_000, READ);
        let limits = Limits { segment: 3000, burst: 4096 };
        let chunks: Vec<_> = std::iter::from_fn(|| answer.next_chunk(limits, READ)).collect();
        let shape: Vec<_> = chunks.iter().map(|c| (c.offset, c.length, c.is_final, c.with_status)).collect();
        assert_eq!(
            shape,
            [
                (0, 3000, false, false),
                (3000, 1096, true, false),
                (4096, 3000, false, false),
                (7096, 1096, true, false),
                (8192, 1808, true, true),
            ]
        );
        assert!(chunks.iter().map(|chunk| chunk.data_sn).eq(0..5));
    }

    #[test]
    fn status_with_sense_does_not_ride_on_data() {
        let mut answer = Outbound::new(2, &[0x70], 512, 512, READ);
        let chunk = answer.next_chunk(Limits { segment: 8192, burst: 8192 }, READ);
        assert_eq!(chunk.map(|chunk| (chunk.is_final, chunk.with_status)), Some((true, false)));
    }

    #[test]
    fn more_data_than_expected_is_cut_and_told() {
        let mut answer = Outbound::new(0, &[], 12_000, 12_000, READ);
        let limits = Limits { segment: 1 << 20, burst: 1 << 20 };
        assert_eq!(answer.next_chunk(limits, READ).map(|chunk| chunk.length), Some(10_000));
        assert_eq!(answer.residual(READ), Residual::Overflow(2000));
    }

    #[test]
    fn residuals_saturate() {
        assert_eq!(residual(u64::MAX, 1), Residual::Overflow(u32::MAX));
        assert_eq!(residual(0, u32::MAX), Residual::Underflow(u32::MAX));
    }
}
