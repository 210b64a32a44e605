//! Data-Out (RFC 7143 section 11.7).

use super::bhs::FINAL;
use super::{Bhs, Itt, Lun, Malformed, Opcode, Ttt};
use crate::serial::Sn;

/// A part of a write's data, unsolicited or requested by an R2T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    /// F: the last of its sequence: of the unsolicited data, or of the answer to one R2T.
    pub is_final: bool,
    /// The R2T's LUN, for solicited data.
    pub lun: Lun,
    /// Initiator Task Tag of the task.
    pub itt: Itt,
    /// Target Transfer Tag of the R2T; none for unsolicited data.
    pub ttt: Option<Ttt>,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// DataSN, from zero in each sequence.
    pub data_sn: Sn,
    /// Bytes from the start of this command's data, not from the start of the LUN.
    pub buffer_offset: u32,
    /// Bytes of data, without padding.
    pub data_segment_length: u32,
}

impl DataOut {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<DataOut, Malformed> {
        bhs.expect(Opcode::DataOut)?;
        Ok(DataOut {
            is_final: bhs.flag(FINAL),
            lun: bhs.lun(),
            itt: bhs.itt()?,
            ttt: Ttt::new(bhs.u32(20)),
            exp_stat_sn: Sn(bhs.u32(28)),
            data_sn: Sn(bhs.u32(36)),
            buffer_offset: bhs.u32(40),
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::DataOut);
        bhs.set_u8(1, if self.is_final { FINAL } else { 0 });
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_lun(self.lun);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u32(20, Ttt::wire(self.ttt));
        bhs.set_u32(28, self.exp_stat_sn.0);
        bhs.set_u32(36, self.data_sn.0);
        bhs.set_u32(40, self.buffer_offset);
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{assert_any_header_holds, assert_golden};
    use super::*;

    #[test]
    fn golden() {
        let data_out = DataOut {
            is_final: true,
            lun: Lun(0x0001_0000_0000_0000),
            itt: Itt::new(0x11).expect("a tag"),
            ttt: Ttt::new(0x77),
            exp_stat_sn: Sn(7),
            data_sn: Sn(2),
            buffer_offset: 0x4000,
            data_segment_length: 8192,
        };
        let golden = "05800000 00002000 00010000 00000000 00000011 00000077
                      00000000 00000007 00000000 00000002 00004000 00000000";
        assert_golden(&data_out, golden, DataOut::parse, DataOut::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::DataOut, DataOut::parse, DataOut::emit);
    }
}
