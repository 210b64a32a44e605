//! Data-In (RFC 7143 section 11.7).

use super::bhs::FINAL;
use super::{Bhs, Itt, Lun, Malformed, Opcode, Residual, Ttt};
use crate::serial::Sn;

/// A piece of a read's data. The last one may carry the command's status, and save a SCSI Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataIn {
    /// F: the last of its sequence (a sequence is at most MaxBurstLength long).
    pub is_final: bool,
    /// A: acknowledgement requested (ErrorRecoveryLevel above 0); LUN and TTT are then set.
    pub acknowledge: bool,
    /// S: the command's status, if this PDU ends the command.
    pub status: Option<DataInStatus>,
    /// The logical unit, if an acknowledgement is requested.
    pub lun: Lun,
    /// Initiator Task Tag of the task.
    pub itt: Itt,
    /// Target Transfer Tag for the acknowledgement, if requested.
    pub ttt: Option<Ttt>,
    /// ExpCmdSN.
    pub exp_cmd_sn: Sn,
    /// MaxCmdSN.
    pub max_cmd_sn: Sn,
    /// DataSN, from zero.
    pub data_sn: Sn,
    /// Bytes from the start of this command's data, not from the start of the LUN.
    pub buffer_offset: u32,
    /// Bytes of data, without padding.
    pub data_segment_length: u32,
}

/// Status that travels with the last data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataInStatus {
    /// SAM-5 status, without sense data.
    pub status: u8,
    /// StatSN.
    pub stat_sn: Sn,
    /// The residual.
    pub residual: Residual,
}

impl DataIn {
    /// Parses the header.
    #[inline]
    pub fn parse(bhs: &Bhs) -> Result<DataIn, Malformed> {
        bhs.expect(Opcode::DataIn)?;
        // Section 11.7.3: "If S is set to 1, the F bit MUST also be set to 1."
        if bhs.flag(STATUS) && !bhs.flag(FINAL) {
            return Err(Malformed::StatusWithoutFinal);
        }
        Ok(DataIn {
            is_final: bhs.flag(FINAL),
            acknowledge: bhs.flag(ACKNOWLEDGE),
            status: bhs.flag(STATUS).then(|| DataInStatus::parse(bhs)).transpose()?,
            lun: bhs.lun(),
            itt: bhs.itt()?,
            ttt: Ttt::new(bhs.u32(20)),
            exp_cmd_sn: Sn(bhs.u32(28)),
            max_cmd_sn: Sn(bhs.u32(32)),
            data_sn: Sn(bhs.u32(36)),
            buffer_offset: bhs.u32(40),
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::DataIn);
        bhs.set_u8(1, if self.is_final { FINAL } else { 0 } | if self.acknowledge { ACKNOWLEDGE } else { 0 });
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_lun(self.lun);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u32(20, Ttt::wire(self.ttt));
        bhs.set_u32(28, self.exp_cmd_sn.0);
        bhs.set_u32(32, self.max_cmd_sn.0);
        bhs.set_u32(36, self.data_sn.0);
        bhs.set_u32(40, self.buffer_offset);
        if let Some(status) = &self.status {
            debug_assert!(self.is_final);
            status.emit(&mut bhs);
        }
        bhs
    }
}

impl DataInStatus {
    fn parse(bhs: &Bhs) -> Result<DataInStatus, Malformed> {
        Ok(DataInStatus {
            status: bhs.u8(3),
            stat_sn: Sn(bhs.u32(24)),
            residual: Residual::parse(bhs.flag(OVERFLOW), bhs.flag(UNDERFLOW), bhs.u32(44))?,
        })
    }

    fn emit(&self, bhs: &mut Bhs) {
        let (flags, count) = self.residual.emit(OVERFLOW, UNDERFLOW);
        bhs.set_u8(1, bhs.u8(1) | STATUS | flags);
        bhs.set_u8(3, self.status);
        bhs.set_u32(24, self.stat_sn.0);
        bhs.set_u32(44, count);
    }
}

const ACKNOWLEDGE: u8 = 0x40;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const STATUS: u8 = 0x01;

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

    /// The end of an INQUIRY that had 36 bytes to send where 255 were expected.
    fn last() -> DataIn {
        DataIn {
            is_final: true,
            acknowledge: false,
            status: Some(DataInStatus { status: 0, stat_sn: Sn(7), residual: Residual::Underflow(219) }),
            lun: Lun(0),
            itt: Itt::new(0x11).expect("a tag"),
            ttt: None,
            exp_cmd_sn: Sn(6),
            max_cmd_sn: Sn(0x105),
            data_sn: Sn(0),
            buffer_offset: 0,
            data_segment_length: 36,
        }
    }

    #[test]
    fn golden() {
        let golden = "25830000 00000024 00000000 00000000 00000011 ffffffff
                      00000007 00000006 00000105 00000000 00000000 000000db";
        assert_golden(&last(), golden, DataIn::parse, DataIn::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::DataIn, DataIn::parse, DataIn::emit);
    }

    #[test]
    fn status_before_the_last_data_is_refused() {
        let bhs = altered(last().emit(), 1, STATUS);
        assert_eq!(DataIn::parse(&bhs), Err(Malformed::StatusWithoutFinal));
    }
}
