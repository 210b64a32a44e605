//! Data of a write: which PDU is valid next, and what to request (RFC 7143 sections 4.2.5.2, 11.7 and 11.8).
//!
//! ```text
//!   0            immediate       unsolicited        burst_start                          wanted   EDTL
//!   | data with the command | Data-Out, TTT=none | R2T 0, MaxBurst | R2T 1, MaxBurst | rest |      |
//!   '------------ at most FirstBurstLength ------'
//! ```
//!
//! DataPDUInOrder and DataSequenceInOrder are Yes, so the offset of the next byte is determined, however many
//! R2Ts are outstanding.

use super::event::DataFault;
use crate::negotiate::Parameters;
use crate::pdu::{DataOut, ScsiCommand, Ttt};
use crate::serial::Sn;
use crate::slab::Key;

/// State of a write's data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inbound {
    /// Bytes that the driver accepts; `None` until it calls `expect_data`.
    wanted: Option<u32>,
    /// All bytes before this offset have arrived.
    received: u32,
    /// Immediate data are still being received.
    immediate_pending: bool,
    /// Unsolicited Data-Out PDUs are still to come.
    unsolicited_open: bool,
    /// Start of the solicited data.
    burst_start: u32,
    /// R2Ts by number: below `done` fulfilled, below `sent` sent, below `asked` to be sent.
    done: u32,
    sent: u32,
    asked: u32,
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
    /// All data have arrived.
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
    /// Checks a command header against the rules for unsolicited data.
    pub(super) fn new(command: &ScsiCommand, rules: &Parameters) -> Inbound {
        let immediate = command.data_segment_length;
        let most = rules.first_burst_length.min(command.expected_data_transfer_length);
        let allowed = immediate == 0 || (command.write && rules.immediate_data && immediate <= most);
        let fault = !allowed || (!command.is_final && rules.initial_r2t);
        Inbound {
            immediate_pending: immediate > 0 && !fault,
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

    /// Whether the driver may accept data from this offset on. For immediate data it has not decided yet.
    pub(super) fn takes_from(&self, offset: u32) -> bool {
        self.wanted.is_none_or(|wanted| offset < wanted)
    }

    /// The driver accepts this many bytes.
    pub(super) fn expect(&mut self, wanted: u32) {
        self.wanted = Some(wanted);
    }

    /// The offset of a Data-Out, if it is the one valid next.
    pub(super) fn check(
        &self,
        pdu: &DataOut,
        key: Key,
        rules: &Parameters,
        edtl: u32,
    ) -> Result<u32, DataFault> {
        let (end, misplaced) = match pdu.ttt {
            None if self.unsolicited_open => (rules.first_burst_length.min(edtl), DataFault::Unsolicited),
            None => return Err(DataFault::Unsolicited),
            Some(ttt) => {
                (self.open_burst_end(ttt, key, rules).ok_or(DataFault::Sequence)?, DataFault::Sequence)
            }
        };
        if pdu.data_sn != self.data_sn || pdu.buffer_offset != self.received {
            return Err(DataFault::Sequence);
        }
        match pdu.buffer_offset.checked_add(pdu.data_segment_length) {
            Some(reached) if reached > end => Err(misplaced),
            // "The F bit … for the last PDU of a sequence": an R2T answered by less than it requested.
            Some(reached) if pdu.ttt.is_some() && pdu.is_final && reached < end => Err(DataFault::Sequence),
            Some(_) => Ok(pdu.buffer_offset),
            None => Err(DataFault::Sequence),
        }
    }

    /// The immediate data have arrived.
    pub(super) fn immediate_arrived(&mut self, length: u32) {
        self.immediate_pending = false;
        self.received += length;
    }

    /// The data of a Data-Out that [`Inbound::check`] accepted have arrived.
    pub(super) fn arrived(&mut self, length: u32, is_final: bool) {
        self.received += length;
        self.data_sn = self.data_sn.next();
        if is_final {
            self.end_sequence(self.done < self.sent);
        }
    }

    /// A Data-Out whose data are dropped; it may still end its sequence.
    pub(super) fn dropped(&mut self, pdu: &DataOut) {
        if pdu.is_final {
            self.end_sequence(pdu.ttt.is_some());
        }
    }

    /// An error in the data: no more is requested.
    pub(super) fn fail(&mut self, fault: DataFault) {
        self.fault = Some(fault);
        self.immediate_pending = false;
        self.asked = self.sent;
    }

    /// Whether all data announced or requested have arrived or been dropped.
    pub(super) fn is_drained(&self) -> bool {
        !self.unsolicited_open && !self.immediate_pending && self.done >= self.sent
    }

    /// Determines the next step.
    pub(super) fn next(&mut self, rules: &Parameters) -> NextStep {
        let Some(wanted) = self.wanted.filter(|_| self.fault.is_none()) else { return NextStep::Wait };
        if self.complete || self.immediate_pending || self.unsolicited_open {
            return NextStep::Wait;
        }
        if self.received >= wanted {
            self.complete = true;
            return NextStep::Complete;
        }
        if self.asked == 0 {
            self.burst_start = self.received;
        }
        let bursts = (wanted - self.burst_start).div_ceil(rules.max_burst_length.max(1));
        let allowed = self.done.saturating_add(u32::from(rules.max_outstanding_r2t.max(1)));
        let more = bursts.min(allowed).saturating_sub(self.asked);
        self.asked += more;
        if more == 0 { NextStep::Wait } else { NextStep::SendR2ts(more) }
    }

    /// The next R2T to send, if it is still needed.
    pub(super) fn send_r2t(&mut self, rules: &Parameters) -> Option<Burst> {
        if self.sent >= self.asked {
            return None;
        }
        let burst = self.burst(self.sent, rules)?;
        self.sent += 1;
        Some(burst)
    }

    /// R2Ts sent, which ExpDataSN of the response counts.
    pub(super) fn r2ts_sent(&self) -> u32 {
        self.sent
    }

    fn burst(&self, number: u32, rules: &Parameters) -> Option<Burst> {
        let offset = self.burst_start.checked_add(number.checked_mul(rules.max_burst_length)?)?;
        let length = self.wanted?.checked_sub(offset)?.min(rules.max_burst_length);
        Some(Burst { r2t_sn: number, offset, length })
    }

    /// The end of the burst that `ttt` may bring data for now.
    fn open_burst_end(&self, ttt: Ttt, key: Key, rules: &Parameters) -> Option<u32> {
        if self.done >= self.sent || self.unsolicited_open || ttt != r2t_tag(key, self.done) {
            return None;
        }
        self.burst(self.done, rules).map(|burst| burst.offset + burst.length)
    }

    fn end_sequence(&mut self, solicited: bool) {
        self.data_sn = Sn(0);
        match solicited {
            true => self.done = self.done.saturating_add(1).min(self.sent),
            false => self.unsolicited_open = false,
        }
    }
}

/// The Target Transfer Tag of a task's R2T. Its low half is the task's index; the high half changes with
/// every R2T and every reuse of the index, so that late data of an ended task are not stored for its
/// successor.
pub(super) fn r2t_tag(key: Key, r2t_sn: u32) -> Ttt {
    let order = key.generation.wrapping_mul(31).wrapping_add(r2t_sn) & 0x7fff;
    let tag = order << 16 | (key.index & 0xffff);
    Ttt::new(tag).unwrap_or_else(|| unreachable!("bit 31 is clear, so this is not the reserved tag"))
}
