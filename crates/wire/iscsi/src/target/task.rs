//! A SCSI task, from the arrival of its command to its status. For a write, this module determines the next
//! valid Data-Out PDU and the data to request (RFC 7143 sections 4.2.5.2, 11.7 and 11.8). For the response,
//! it determines the data and the status to send (sections 11.4 and 11.7).
//!
//! ```text
//!   0            immediate       unsolicited        burst_start                          wanted   EDTL
//!   | data with the command | Data-Out, TTT=none | R2T 0, MaxBurst | R2T 1, MaxBurst | rest |      |
//!   '------------ at most FirstBurstLength ------'
//! ```
//!
//! DataPDUInOrder and DataSequenceInOrder are Yes, so the offset of the next byte to arrive is known, even if
//! several R2Ts are outstanding.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Instant;

use super::{Command, ConnectionId, DataFault, Receipt};
use crate::negotiate::Parameters;
use crate::pdu::{DataOut, Itt, Lun, Residual, ScsiCommand, Sn, Ttt};
use crate::slab::Key;

#[derive(Debug)]
pub(super) struct Task {
    pub(super) connection: ConnectionId,
    pub(super) itt: Itt,
    pub(super) lun: Lun,
    pub(super) immediate: bool,
    /// The task was announced to the driver.
    pub(super) announced: bool,
    /// The command, while it is held.
    pub(super) waiting: Option<Box<HeldCommand>>,
    pub(super) lengths: ExpectedLengths,
    pub(super) inbound: Inbound,
    /// The driver's response.
    pub(super) outbound: Option<Outbound>,
    /// The response is queued.
    pub(super) queued: bool,
}

/// A command that arrived before its turn in CmdSN order, with its data.
#[derive(Debug)]
pub(super) struct HeldCommand {
    pub(super) command: Command,
    /// Time of arrival.
    pub(super) since: Instant,
    pub(super) staged: Vec<StagedData>,
    /// There was no staging space for its data.
    pub(super) overrun: bool,
}

/// Data of a held command.
#[derive(Debug)]
pub(super) struct StagedData {
    pub(super) offset: u32,
    pub(super) bytes: Vec<u8>,
}

/// States of a task for [`crate::observed`].
pub const TASK_STATES: [&str; 5] = [
    "not there",
    "waits for its turn",
    "takes data",
    "with the driver",
    "answered",
];

/// Events of a task.
pub const TASK_EVENTS: [&str; 9] = [
    "SCSI Command of its tag",
    "Data-Out",
    "its data are there",
    "ABORT TASK",
    "QUERY TASK",
    "the driver takes data",
    "the driver answers",
    "the driver gives it up",
    "its connection is lost",
];

impl Task {
    /// Whether its command is held.
    pub(super) fn is_held(&self) -> bool {
        self.waiting.is_some()
    }

    pub(super) fn staged_bytes(&self) -> usize {
        let staged = self.waiting.iter().flat_map(|waiting| &waiting.staged);
        staged.map(|staged| staged_cost(staged.bytes.len())).sum()
    }

    /// Whether further data is dropped: the driver did not request any, has responded, or was notified that
    /// the data cannot become complete.
    pub(super) fn refuses_data(&self) -> bool {
        self.outbound.is_some() || !(self.inbound.is_wanted() || self.is_held())
    }
}

/// Memory charged for a held piece of data, in bytes. This includes an overhead, which is larger than the
/// data of small pieces.
pub(super) fn staged_cost(length: usize) -> usize {
    const OVERHEAD_BYTES: usize = 64;
    length + OVERHEAD_BYTES
}

/// State of a write's data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inbound {
    /// Bytes that the driver accepts; `None` until it calls `expect_data`.
    wanted: Option<u32>,
    /// All bytes before this offset have arrived.
    received: u32,
    /// A data segment of the command, or of a Data-Out, is being received.
    segment_pending: bool,
    /// Unsolicited Data-Out PDUs are still outstanding.
    unsolicited_open: bool,
    /// Start of the solicited data.
    burst_start: u32,
    /// R2Ts by number: those below `fulfilled` have been answered, those below `sent` have been sent, and
    /// those below `planned` have been sent or queued.
    fulfilled: u32,
    sent: u32,
    planned: u32,
    /// Next DataSN of the current sequence.
    data_sn: Sn,
    fault: Option<DataFault>,
    complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Wait for data.
    Wait,
    /// Send this many R2Ts.
    SendR2ts(u32),
    /// All data has arrived.
    Complete,
}

/// The range of an R2T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    pub(super) r2t_sn: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
}

impl Inbound {
    /// The initial state, with a fault if the command's header violates the rules for unsolicited data.
    pub(super) fn new(command: &ScsiCommand, rules: &Parameters) -> Inbound {
        let immediate = command.data_segment_length;
        let most = rules
            .first_burst_length
            .min(command.expected_data_transfer_length);
        let allowed =
            immediate == 0 || (command.write && rules.immediate_data && immediate <= most);
        let fault = !allowed || (!command.is_final && rules.initial_r2t);
        Inbound {
            segment_pending: immediate > 0,
            unsolicited_open: !command.is_final,
            fault: fault.then_some(DataFault::Unsolicited),
            ..Inbound::default()
        }
    }

    pub(super) fn fault(&self) -> Option<DataFault> {
        self.fault
    }

    /// All bytes before this offset have arrived.
    pub(super) fn received(&self) -> u32 {
        self.received
    }

    /// Whether the driver accepts data, and no error has occurred.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some() && self.fault.is_none()
    }

    /// Whether the driver accepts data at this offset, or may still accept it: when immediate data arrives,
    /// the driver may not have decided yet.
    pub(super) fn takes_from(&self, offset: u32) -> bool {
        self.wanted.is_none_or(|wanted| offset < wanted)
    }

    /// The driver accepts this many bytes.
    pub(super) fn expect(&mut self, wanted: u32) {
        self.wanted = Some(wanted);
    }

    /// Checks that a Data-Out is the next valid one, and returns its offset.
    pub(super) fn check(
        &self,
        pdu: &DataOut,
        key: Key,
        rules: &Parameters,
        edtl: u32,
    ) -> Result<u32, DataFault> {
        let (end, misplaced) = match pdu.ttt {
            None if self.unsolicited_open => {
                (rules.first_burst_length.min(edtl), DataFault::Unsolicited)
            }
            None => return Err(DataFault::Unsolicited),
            Some(ttt) => (
                self.open_burst_end(ttt, key, rules)
                    .ok_or(DataFault::Sequence)?,
                DataFault::Sequence,
            ),
        };
        if pdu.data_sn != self.data_sn || pdu.buffer_offset != self.received {
            return Err(DataFault::Sequence);
        }
        match pdu.buffer_offset.checked_add(pdu.data_segment_length) {
            Some(reached) if reached > end => Err(misplaced),
            // "The F bit … for the last PDU of a sequence": the initiator ended the sequence with less data
            // than the R2T requested.
            Some(reached) if pdu.ttt.is_some() && pdu.is_final && reached < end => {
                Err(DataFault::Sequence)
            }
            Some(_) => Ok(pdu.buffer_offset),
            None => Err(DataFault::Sequence),
        }
    }

    /// Notes that the immediate data has arrived.
    pub(super) fn immediate_arrived(&mut self, length: u32) {
        debug_assert!(
            self.segment_pending && self.received == 0,
            "immediate data comes first, and once"
        );
        self.segment_pending = false;
        self.received = length;
    }

    /// Notes that the data segment of a Data-Out follows.
    pub(super) fn begin_segment(&mut self) {
        debug_assert!(!self.segment_pending, "one segment at a time");
        self.segment_pending = true;
    }

    /// Notes that the data of a Data-Out accepted by [`Inbound::check`] has arrived.
    pub(super) fn arrived(&mut self, length: u32, is_final: bool) {
        debug_assert!(self.segment_pending, "a segment ends that has not begun");
        self.segment_pending = false;
        self.received += length;
        self.data_sn = self.data_sn.next();
        if is_final {
            self.end_sequence(self.fulfilled < self.sent);
        }
    }

    /// Notes that the data of a Data-Out was dropped; it may still end its sequence.
    pub(super) fn dropped(&mut self, is_final: bool, is_solicited: bool) {
        self.segment_pending = false;
        if is_final {
            self.end_sequence(is_solicited);
        }
    }

    /// Records an error in the data. No more data is requested.
    pub(super) fn fail(&mut self, fault: DataFault) {
        self.fault = Some(fault);
        self.planned = self.sent;
    }

    /// Whether all announced or requested data has arrived or been dropped. An initiator that violates the
    /// rules may never end its sequences, so in that case only the segment being received counts.
    ///
    /// After a digest error, a target "MUST wait to receive all the data … before sending the SCSI Response"
    /// (section 7.8).
    pub(super) fn is_drained(&self) -> bool {
        debug_assert!(
            self.fulfilled <= self.sent && self.sent <= self.planned,
            "R2Ts are requested, sent and fulfilled in order"
        );
        let has_ended = !self.unsolicited_open && self.fulfilled >= self.sent;
        let breaks_rules = || {
            matches!(
                self.fault,
                Some(DataFault::Unsolicited | DataFault::Sequence)
            )
        };
        !self.segment_pending && (has_ended || breaks_rules())
    }

    /// Determines the next step.
    pub(super) fn next(&mut self, rules: &Parameters) -> NextStep {
        let Some(wanted) = self.wanted.filter(|_| self.fault.is_none()) else {
            return NextStep::Wait;
        };
        if self.complete || self.segment_pending || self.unsolicited_open {
            return NextStep::Wait;
        }
        if self.received >= wanted {
            self.complete = true;
            return NextStep::Complete;
        }
        if self.planned == 0 {
            self.burst_start = self.received;
        }
        let bursts = (wanted - self.burst_start).div_ceil(rules.max_burst_length.max(1));
        let allowed = self
            .fulfilled
            .saturating_add(u32::from(rules.max_outstanding_r2t.max(1)));
        let more = bursts.min(allowed).saturating_sub(self.planned);
        self.planned += more;
        if more == 0 {
            NextStep::Wait
        } else {
            NextStep::SendR2ts(more)
        }
    }

    /// The next R2T to send, if it is still needed.
    pub(super) fn send_r2t(&mut self, rules: &Parameters) -> Option<Burst> {
        if self.sent >= self.planned {
            return None;
        }
        let burst = self.burst(self.sent, rules)?;
        debug_assert!(
            burst.length > 0 && burst.offset >= self.received,
            "an R2T requests no data, or data that has arrived"
        );
        self.sent += 1;
        Some(burst)
    }

    /// Number of R2Ts sent, which is included in ExpDataSN of the response.
    pub(super) fn r2ts_sent(&self) -> u32 {
        self.sent
    }

    fn burst(&self, number: u32, rules: &Parameters) -> Option<Burst> {
        let offset = self
            .burst_start
            .checked_add(number.checked_mul(rules.max_burst_length)?)?;
        let length = self
            .wanted?
            .checked_sub(offset)?
            .min(rules.max_burst_length);
        Some(Burst {
            r2t_sn: number,
            offset,
            length,
        })
    }

    /// The end of the burst for which data with `ttt` is currently valid.
    fn open_burst_end(&self, ttt: Ttt, key: Key, rules: &Parameters) -> Option<u32> {
        if self.fulfilled >= self.sent
            || self.unsolicited_open
            || ttt != r2t_tag(key, self.fulfilled)
        {
            return None;
        }
        debug_assert!(
            self.burst_start <= self.received,
            "solicited data starts after the unsolicited data"
        );
        self.burst(self.fulfilled, rules)
            .map(|burst| burst.offset + burst.length)
    }

    fn end_sequence(&mut self, solicited: bool) {
        debug_assert!(self.fulfilled <= self.sent, "more R2Ts fulfilled than sent");
        self.data_sn = Sn(0);
        match solicited {
            true => self.fulfilled = self.fulfilled.saturating_add(1).min(self.sent),
            false => self.unsolicited_open = false,
        }
    }
}

/// The Target Transfer Tag of a task's R2T. Its low half is the task's index. The high half changes with
/// every R2T and every reuse of the index, so that late data of an ended task is not stored for its successor.
pub(super) fn r2t_tag(key: Key, r2t_sn: u32) -> Ttt {
    let order = key.generation.wrapping_mul(31).wrapping_add(r2t_sn) & 0x7fff;
    let tag = order << 16 | (key.index & 0xffff);
    Ttt::new(tag)
        .unwrap_or_else(|| unreachable!("bit 31 is clear, so this is not the reserved tag"))
}

// The response to a command: Data-In PDUs, then the status, which is sent with the last Data-In where this is
// allowed (RFC 7143 sections 11.4 and 11.7).

/// Expected data transfer lengths, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpectedLengths {
    pub(super) write: u32,
    pub(super) read: u32,
    pub(super) bidirectional: bool,
}

/// The driver's response, and the amount already sent.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) status: u8,
    /// Empty if there is none; an empty box owns no memory.
    pub(super) sense: Box<[u8]>,
    /// The acknowledgement of the status, if the driver requested one.
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
    /// It is the last, and carries the status.
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

    /// The next range; `None` if all data has been sent.
    pub(super) fn next_chunk(&mut self, limits: Limits, lengths: ExpectedLengths) -> Option<Chunk> {
        debug_assert!(
            self.sent <= self.data_in && self.data_in <= lengths.read,
            "more Data-In than expected"
        );
        debug_assert!(
            limits.segment > 0 && limits.burst > 0,
            "limits that permit nothing"
        );
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

    /// Whether the status is sent with the last Data-In. Section 11.7.3 allows this "if the command completed
    /// without an exception". A bidirectional command has two residuals, but a Data-In has only one residual
    /// field.
    fn rides_on_data(&self, lengths: ExpectedLengths) -> bool {
        self.status == GOOD && self.sense.is_empty() && !lengths.bidirectional
    }

    /// Number of Data-In PDUs sent.
    pub(super) fn data_sn(&self) -> u32 {
        self.data_sn
    }

    /// The residual of the written data if the command writes, otherwise of the read data.
    pub(super) fn residual(&self, lengths: ExpectedLengths) -> Residual {
        let edtl = if lengths.bidirectional || lengths.read == 0 {
            lengths.write
        } else {
            lengths.read
        };
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

/// The residual (section 11.4.5): the difference between the bytes that the command moves and the bytes that
/// the initiator expects.
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

/// The tasks of a session by their Initiator Task Tag.
#[derive(Debug, Default)]
pub(super) struct Tags(HashMap<u32, Key, BuildHasherDefault<TagHasher>>);

impl Tags {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn find(&self, itt: Itt) -> Option<Key> {
        self.0.get(&itt.get()).copied()
    }

    pub(super) fn insert(&mut self, itt: Itt, key: Key) {
        let before = self.0.insert(itt.get(), key);
        debug_assert!(before.is_none(), "tag {itt} names two tasks");
    }

    pub(super) fn remove(&mut self, itt: Itt) {
        self.0.remove(&itt.get());
    }
}

/// Hashes a tag with one multiplication. An initiator that chooses colliding tags slows down only the lookup
/// of its tasks, and the command window limits their number.
#[derive(Debug, Default)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    fn write_u32(&mut self, tag: u32) {
        let product = u128::from(self.0 ^ u64::from(tag)) * u128::from(GOLDEN);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// 2^64 divided by the golden ratio: Knuth's multiplicative hashing, which distributes consecutive values
/// evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    const READ: ExpectedLengths = ExpectedLengths {
        write: 0,
        read: 10_000,
        bidirectional: false,
    };

    #[test]
    fn data_is_cut_by_segments_and_bursts() {
        let mut answer = Outbound::new(0, &[], 10_000, 10_000, READ);
        let limits = Limits {
            segment: 3000,
            burst: 4096,
        };
        let chunks: Vec<_> = std::iter::from_fn(|| answer.next_chunk(limits, READ)).collect();
        let shape: Vec<_> = chunks
            .iter()
            .map(|c| (c.offset, c.length, c.is_final, c.with_status))
            .collect();
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
        let chunk = answer.next_chunk(
            Limits {
                segment: 8192,
                burst: 8192,
            },
            READ,
        );
        assert_eq!(
            chunk.map(|chunk| (chunk.is_final, chunk.with_status)),
            Some((true, false))
        );
    }

    #[test]
    fn more_data_than_expected_is_cut_and_told() {
        let mut answer = Outbound::new(0, &[], 12_000, 12_000, READ);
        let limits = Limits {
            segment: 1 << 20,
            burst: 1 << 20,
        };
        assert_eq!(
            answer.next_chunk(limits, READ).map(|chunk| chunk.length),
            Some(10_000)
        );
        assert_eq!(answer.residual(READ), Residual::Overflow(2000));
    }

    #[test]
    fn residuals_saturate() {
        assert_eq!(residual(u64::MAX, 1), Residual::Overflow(u32::MAX));
        assert_eq!(residual(0, u32::MAX), Residual::Underflow(u32::MAX));
    }
}
