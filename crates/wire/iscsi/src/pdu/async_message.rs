//! Asynchronous Message (RFC 7143 section 11.9). Its data segment is sense data for [`AsyncEvent::Scsi`].

use num_enum::{FromPrimitive, IntoPrimitive};

use super::{Bhs, Lun, Malformed, Opcode, TargetNumbers};

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMessage {
    /// The logical unit, for the events that concern one.
    pub lun: Lun,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: TargetNumbers,
    /// The event.
    pub event: AsyncEvent,
    /// The vendor's own code, for vendors' events.
    pub vendor_code: u8,
    /// Parameter1 to Parameter3: what they mean depends on the event (connection drops: CID, seconds to wait
    /// before reconnecting, seconds that the tasks are kept; logout request: seconds to the logout, third).
    pub parameters: [u16; 3],
    /// Sense data, in bytes without padding.
    pub data_segment_length: u32,
}

/// Event codes (section 11.9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum AsyncEvent {
    /// A SCSI event, with sense data.
    Scsi = 0,
    /// Log out this connection within Parameter3 seconds.
    LogoutRequested = 1,
    /// The connection named in Parameter1 will be dropped.
    ConnectionDropped = 2,
    /// All connections of the session will be dropped.
    SessionDropped = 3,
    /// Renegotiate parameters within Parameter3 seconds.
    NegotiationRequested = 4,
    /// The session's tasks on this logical unit are being terminated.
    TasksTerminated = 5,
    /// 255, or any undefined number.
    #[num_enum(catch_all)]
    Other(u8),
}

impl AsyncMessage {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<AsyncMessage, Malformed> {
        bhs.expect(Opcode::AsyncMessage)?;
        if bhs.itt_raw() != NO_TASK {
            return Err(Malformed::UnexpectedItt);
        }
        Ok(AsyncMessage {
            lun: bhs.lun(),
            numbers: bhs.numbers(),
            event: AsyncEvent::from(bhs.u8(36)),
            vendor_code: bhs.u8(37),
            parameters: [bhs.u16(38), bhs.u16(40), bhs.u16(42)],
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let [first, second, third] = self.parameters;
        let mut bhs = Bhs::new(Opcode::AsyncMessage);
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_lun(self.lun);
        bhs.set_u32(16, NO_TASK);
        bhs.set_numbers(self.numbers);
        bhs.set_u8(36, self.event.into());
        bhs.set_u8(37, self.vendor_code);
        bhs.set_u16(38, first);
        bhs.set_u16(40, second);
        bhs.set_u16(42, third);
        bhs
    }
}

/// Bytes 16 to 19: an event belongs to no task.
const NO_TASK: u32 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;
    use crate::serial::Sn;

    fn logout_requested() -> AsyncMessage {
        AsyncMessage {
            lun: Lun(0),
            numbers: TargetNumbers { stat_sn: Sn(9), exp_cmd_sn: Sn(6), max_cmd_sn: Sn(0x105) },
            event: AsyncEvent::LogoutRequested,
            vendor_code: 0,
            parameters: [0, 0, 10],
            data_segment_length: 0,
        }
    }

    #[test]
    fn golden() {
        let golden = "32800000 00000000 00000000 00000000 ffffffff 00000000
                      00000009 00000006 00000105 01000000 0000000a 00000000";
        assert_golden(&logout_requested(), golden, AsyncMessage::parse, AsyncMessage::emit);
    }

    #[test]
    fn any_header_holds() {
        let parse = |bhs: &Bhs| {
            let mut bhs = *bhs;
            bhs.set_u32(16, NO_TASK);
            AsyncMessage::parse(&bhs)
        };
        assert_any_header_holds(Opcode::AsyncMessage, parse, AsyncMessage::emit);
    }

    #[test]
    fn an_event_belongs_to_no_task() {
        let bhs = altered(logout_requested().emit(), 16, 0);
        assert_eq!(AsyncMessage::parse(&bhs), Err(Malformed::UnexpectedItt));
    }
}
