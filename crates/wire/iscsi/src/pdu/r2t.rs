//! Ready To Transfer (RFC 7143 section 11.8).

use std::num::NonZeroU32;

use super::{Bhs, Itt, Lun, Malformed, Opcode, TargetNumbers, Ttt};
use crate::serial::Sn;

/// Ready To Transfer: requests a part of a write's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// The logical unit, to be repeated in the data PDUs.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Target Transfer Tag, to be repeated in the data PDUs.
    pub ttt: Ttt,
    /// The next StatSN, which an R2T does not consume. ExpCmdSN and MaxCmdSN.
    pub numbers: TargetNumbers,
    /// R2TSN, from zero.
    pub r2t_sn: Sn,
    /// Bytes from the start of this command's data, not from the start of the LUN.
    pub buffer_offset: u32,
    /// Desired Data Transfer Length, at most MaxBurstLength.
    pub desired_data_transfer_length: NonZeroU32,
}

impl R2t {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<R2t, Malformed> {
        bhs.expect(Opcode::R2t)?;
        bhs.expect_no_data()?;
        Ok(R2t {
            lun: bhs.lun(),
            itt: bhs.itt()?,
            ttt: Ttt::new(bhs.u32(20)).ok_or(Malformed::ReservedTtt)?,
            numbers: bhs.numbers(),
            r2t_sn: Sn(bhs.u32(36)),
            buffer_offset: bhs.u32(40),
            desired_data_transfer_length: NonZeroU32::new(bhs.u32(44)).ok_or(Malformed::EmptyR2t)?,
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::R2t);
        bhs.set_lun(self.lun);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u32(20, self.ttt.get());
        bhs.set_numbers(self.numbers);
        bhs.set_u32(36, self.r2t_sn.0);
        bhs.set_u32(40, self.buffer_offset);
        bhs.set_u32(44, self.desired_data_transfer_length.get());
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

    fn r2t() -> R2t {
        R2t {
            lun: Lun(0),
            itt: Itt::new(0x11).expect("a tag"),
            ttt: Ttt::new(0x77).expect("a tag"),
            numbers: TargetNumbers { stat_sn: Sn(7), exp_cmd_sn: Sn(6), max_cmd_sn: Sn(0x105) },
            r2t_sn: Sn(1),
            buffer_offset: 0x1_0000,
            desired_data_transfer_length: NonZeroU32::new(0x4_0000).expect("not zero"),
        }
    }

    #[test]
    fn golden() {
        let golden = "31800000 00000000 00000000 00000000 00000011 00000077
                      00000007 00000006 00000105 00000001 00010000 00040000";
        assert_golden(&r2t(), golden, R2t::parse, R2t::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::R2t, R2t::parse, R2t::emit);
    }

    #[test]
    fn asking_for_nothing_is_refused() {
        let bhs = altered(r2t().emit(), 45, 0);
        assert_eq!(R2t::parse(&bhs), Err(Malformed::EmptyR2t));
    }

    #[test]
    fn an_r2t_without_a_name_is_refused() {
        let mut bhs = r2t().emit();
        bhs.set_u32(20, 0xffff_ffff);
        assert_eq!(R2t::parse(&bhs), Err(Malformed::ReservedTtt));
    }
}
