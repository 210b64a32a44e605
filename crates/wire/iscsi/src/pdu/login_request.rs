//! Login Request (RFC 7143 section 11.12). Its data segment is keys and values: [`crate::text`].

use num_enum::TryFromPrimitive;

use super::bhs::CONTINUE;
use super::{Bhs, Cid, Isid, Itt, Malformed, Opcode, Tsih};
use crate::serial::Sn;

/// Begins or continues a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// C: the text continues in the next request.
    pub continues: bool,
    /// CSG: the stage that this request belongs to.
    pub stage: Stage,
    /// T and NSG: the stage that the initiator is ready to move to, if it is.
    pub transit_to: Option<Stage>,
    /// Version-max.
    pub version_max: u8,
    /// Version-min.
    pub version_min: u8,
    /// ISID.
    pub isid: Isid,
    /// TSIH: zero for a new session.
    pub tsih: Tsih,
    /// Initiator Task Tag, the same in all requests of a login.
    pub itt: Itt,
    /// CID.
    pub cid: Cid,
    /// CmdSN of the first command; the same in all requests of a login.
    pub cmd_sn: Sn,
    /// ExpStatSN; in the first request, that of a lost connection being reinstated.
    pub exp_stat_sn: Sn,
    /// Text, in bytes without padding.
    pub data_segment_length: u32,
}

/// Stages of a login (section 11.12.3); number 2 is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, TryFromPrimitive)]
#[repr(u8)]
pub enum Stage {
    /// Authentication.
    SecurityNegotiation = 0,
    /// Negotiation of parameters.
    OperationalNegotiation = 1,
    /// Full feature phase.
    FullFeature = 3,
}

impl LoginRequest {
    /// Takes the header apart. The I bit is not looked at: a login request is immediate, whatever it says.
    pub fn parse(bhs: &Bhs) -> Result<LoginRequest, Malformed> {
        bhs.expect(Opcode::LoginRequest)?;
        let (stage, transit_to) = parse_stages(bhs)?;
        Ok(LoginRequest {
            continues: bhs.flag(CONTINUE),
            stage,
            transit_to,
            version_max: bhs.u8(2),
            version_min: bhs.u8(3),
            isid: Isid(bhs.bytes(8)),
            tsih: Tsih(bhs.u16(14)),
            itt: bhs.itt()?,
            cid: Cid(bhs.u16(20)),
            cmd_sn: Sn(bhs.u32(24)),
            exp_stat_sn: Sn(bhs.u32(28)),
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LoginRequest);
        bhs.set_immediate(true);
        bhs.set_u8(1, stage_flags(self.continues, self.stage, self.transit_to));
        bhs.set_u8(2, self.version_max);
        bhs.set_u8(3, self.version_min);
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_bytes(8, &self.isid.0);
        bhs.set_u16(14, self.tsih.0);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u16(20, self.cid.0);
        bhs.set_u32(24, self.cmd_sn.0);
        bhs.set_u32(28, self.exp_stat_sn.0);
        bhs
    }
}

/// CSG and, if T is set, NSG. "T=1 and C=1" contradict each other (section 11.12.2), and a login goes forward.
pub(super) fn parse_stages(bhs: &Bhs) -> Result<(Stage, Option<Stage>), Malformed> {
    let stage = Stage::try_from(bhs.u8(1) >> 2 & 3).map_err(|_| Malformed::ReservedStage)?;
    if stage == Stage::FullFeature {
        return Err(Malformed::BackwardStage);
    }
    if !bhs.flag(TRANSIT) {
        return Ok((stage, None));
    }
    let next = Stage::try_from(bhs.u8(1) & 3).map_err(|_| Malformed::ReservedStage)?;
    match (bhs.flag(CONTINUE), next > stage) {
        (true, _) => Err(Malformed::ContinueAndFinal),
        (false, false) => Err(Malformed::BackwardStage),
        (false, true) => Ok((stage, Some(next))),
    }
}

/// Byte 1 of login PDUs.
pub(super) fn stage_flags(continues: bool, stage: Stage, transit_to: Option<Stage>) -> u8 {
    let transit = transit_to.map_or(0, |next| TRANSIT | next as u8);
    transit | if continues { CONTINUE } else { 0 } | (stage as u8) << 2
}

const TRANSIT: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

    fn straight_to_full_feature() -> LoginRequest {
        LoginRequest {
            continues: false,
            stage: Stage::OperationalNegotiation,
            transit_to: Some(Stage::FullFeature),
            version_max: 0,
            version_min: 0,
            isid: Isid([0x80, 1, 2, 3, 4, 5]),
            tsih: Tsih::NEW,
            itt: Itt::new(1).expect("a tag"),
            cid: Cid(7),
            cmd_sn: Sn(1),
            exp_stat_sn: Sn(0),
            data_segment_length: 300,
        }
    }

    #[test]
    fn golden() {
        let golden = "43870000 0000012c 80010203 04050000 00000001 00070000
                      00000001 00000000 00000000 00000000 00000000 00000000";
        assert_golden(&straight_to_full_feature(), golden, LoginRequest::parse, LoginRequest::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::LoginRequest, LoginRequest::parse, LoginRequest::emit);
    }

    #[test]
    fn stages_only_go_forward() {
        let parse = |flags| LoginRequest::parse(&altered(straight_to_full_feature().emit(), 1, flags));
        assert_eq!(parse(0x84), Err(Malformed::BackwardStage));
        assert_eq!(parse(0x85), Err(Malformed::BackwardStage));
        assert_eq!(parse(0x8f), Err(Malformed::BackwardStage));
        assert_eq!(parse(0x0c), Err(Malformed::BackwardStage));
        assert_eq!(parse(0x86), Err(Malformed::ReservedStage));
        assert_eq!(parse(0x08), Err(Malformed::ReservedStage));
        assert_eq!(parse(0xc7), Err(Malformed::ContinueAndFinal));
    }
}
