//! NOP-Out (RFC 7143 section 11.18). Its data segment is ping data, for the target to send back.

use super::{Bhs, Itt, Lun, Malformed, Opcode, Ttt};
use crate::serial::Sn;

/// A ping, or the response to the target's ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    /// I: immediate delivery, outside the CmdSN order.
    pub immediate: bool,
    /// The LUN of the NOP-In that this answers, if it answers one.
    pub lun: Lun,
    /// The tag of the ping; none if no response is requested.
    pub itt: Option<Itt>,
    /// Target Transfer Tag of the NOP-In that this answers; none for a ping of the initiator.
    pub ttt: Option<Ttt>,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// Ping data, in bytes without padding.
    pub data_segment_length: u32,
}

impl NopOut {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<NopOut, Malformed> {
        bhs.expect(Opcode::NopOut)?;
        Ok(NopOut {
            immediate: bhs.immediate(),
            lun: bhs.lun(),
            itt: Itt::new(bhs.itt_raw()),
            ttt: Ttt::new(bhs.u32(20)),
            cmd_sn: Sn(bhs.u32(24)),
            exp_stat_sn: Sn(bhs.u32(28)),
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::NopOut);
        bhs.set_immediate(self.immediate);
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_lun(self.lun);
        bhs.set_u32(16, Itt::wire(self.itt));
        bhs.set_u32(20, Ttt::wire(self.ttt));
        bhs.set_u32(24, self.cmd_sn.0);
        bhs.set_u32(28, self.exp_stat_sn.0);
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{assert_any_header_holds, assert_golden};
    use super::*;

    #[test]
    fn golden() {
        let answer = NopOut {
            immediate: true,
            lun: Lun(0),
            itt: None,
            ttt: Ttt::new(0x99),
            cmd_sn: Sn(6),
            exp_stat_sn: Sn(9),
            data_segment_length: 0,
        };
        let golden = "40800000 00000000 00000000 00000000 ffffffff 00000099
                      00000006 00000009 00000000 00000000 00000000 00000000";
        assert_golden(&answer, golden, NopOut::parse, NopOut::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::NopOut, NopOut::parse, NopOut::emit);
    }
}
