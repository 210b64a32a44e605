//! NOP-In (RFC 7143 section 11.19). Its data segment is the ping data of the NOP-Out that it answers.

use super::{Bhs, Itt, Lun, Malformed, Opcode, TargetNumbers, Ttt};

/// A ping, the response to the initiator's ping, or an update of the command window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    /// A logical unit, to be repeated in the response, if one is requested.
    pub lun: Lun,
    /// Initiator Task Tag of the ping that this answers; none for a ping of the target.
    pub itt: Option<Itt>,
    /// The tag of the ping; none if no response is requested.
    pub ttt: Option<Ttt>,
    /// StatSN if it answers a ping; else the next StatSN, which is not consumed. ExpCmdSN and MaxCmdSN.
    pub numbers: TargetNumbers,
    /// Ping data, in bytes without padding.
    pub data_segment_length: u32,
}

impl NopIn {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<NopIn, Malformed> {
        bhs.expect(Opcode::NopIn)?;
        Ok(NopIn {
            lun: bhs.lun(),
            itt: Itt::new(bhs.itt_raw()),
            ttt: Ttt::new(bhs.u32(20)),
            numbers: bhs.numbers(),
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::NopIn);
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_lun(self.lun);
        bhs.set_u32(16, Itt::wire(self.itt));
        bhs.set_u32(20, Ttt::wire(self.ttt));
        bhs.set_numbers(self.numbers);
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{assert_any_header_holds, assert_golden};
    use super::*;
    use crate::serial::Sn;

    #[test]
    fn golden() {
        let ping = NopIn {
            lun: Lun(0),
            itt: None,
            ttt: Ttt::new(0x99),
            numbers: TargetNumbers { stat_sn: Sn(9), exp_cmd_sn: Sn(6), max_cmd_sn: Sn(0x105) },
            data_segment_length: 0,
        };
        let golden = "20800000 00000000 00000000 00000000 ffffffff 00000099
                      00000009 00000006 00000105 00000000 00000000 00000000";
        assert_golden(&ping, golden, NopIn::parse, NopIn::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::NopIn, NopIn::parse, NopIn::emit);
    }
}
