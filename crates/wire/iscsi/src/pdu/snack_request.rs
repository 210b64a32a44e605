//! SNACK Request (RFC 7143 section 11.16). At ErrorRecoveryLevel 0 a target rejects all of them.

use num_enum::TryFromPrimitive;

use super::bhs::FINAL;
use super::{Bhs, Itt, Lun, Malformed, Opcode};
use crate::serial::Sn;

/// Send that again; or: that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnackRequest {
    /// What is missing, or has arrived.
    pub kind: SnackKind,
    /// The LUN of the Data-In that asked for an acknowledgement.
    pub lun: Lun,
    /// The task; none for status and acknowledgements.
    pub itt: Option<Itt>,
    /// The Data-In's Target Transfer Tag, or the SNACK Tag, by kind; 0xffffffff for none.
    pub tag: u32,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// BegRun: the first missing number; acknowledgements: the next expected one.
    pub first: Sn,
    /// RunLength: how many; zero for all from there on.
    pub run_length: u32,
}

/// SNACK types (section 11.16.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromPrimitive)]
#[repr(u8)]
pub enum SnackKind {
    /// Data-In or R2T PDUs are missing.
    DataOrR2t = 0,
    /// Statuses are missing.
    Status = 1,
    /// Data-In PDUs have arrived.
    DataAck = 2,
    /// Data-In PDUs are missing, and may be cut anew.
    RData = 3,
}

impl SnackRequest {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<SnackRequest, Malformed> {
        bhs.expect(Opcode::SnackRequest)?;
        bhs.expect_no_data()?;
        Ok(SnackRequest {
            kind: SnackKind::try_from(bhs.u8(1) & KIND_MASK).map_err(|_| Malformed::ReservedSnackKind)?,
            lun: bhs.lun(),
            itt: Itt::new(bhs.itt_raw()),
            tag: bhs.u32(20),
            exp_stat_sn: Sn(bhs.u32(28)),
            first: Sn(bhs.u32(40)),
            run_length: bhs.u32(44),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::SnackRequest);
        bhs.set_u8(1, FINAL | self.kind as u8);
        bhs.set_lun(self.lun);
        bhs.set_u32(16, Itt::wire(self.itt));
        bhs.set_u32(20, self.tag);
        bhs.set_u32(28, self.exp_stat_sn.0);
        bhs.set_u32(40, self.first.0);
        bhs.set_u32(44, self.run_length);
        bhs
    }
}

const KIND_MASK: u8 = 0x0f;

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

    fn status_snack() -> SnackRequest {
        SnackRequest {
            kind: SnackKind::Status,
            lun: Lun(0),
            itt: None,
            tag: 0xffff_ffff,
            exp_stat_sn: Sn(9),
            first: Sn(9),
            run_length: 1,
        }
    }

    #[test]
    fn golden() {
        let golden = "10810000 00000000 00000000 00000000 ffffffff ffffffff
                      00000000 00000009 00000000 00000000 00000009 00000001";
        assert_golden(&status_snack(), golden, SnackRequest::parse, SnackRequest::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::SnackRequest, SnackRequest::parse, SnackRequest::emit);
    }

    #[test]
    fn reserved_types_are_refused() {
        let bhs = altered(status_snack().emit(), 1, FINAL | 4);
        assert_eq!(SnackRequest::parse(&bhs), Err(Malformed::ReservedSnackKind));
    }
}
