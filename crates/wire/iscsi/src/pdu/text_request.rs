//! Text Request (RFC 7143 section 11.10). Its data segment is keys and values: [`crate::text`].

use super::bhs::{CONTINUE, FINAL};
use super::{Bhs, Itt, Lun, Malformed, Opcode, Ttt};
use crate::serial::Sn;

/// Keys and values from the initiator, in full feature phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// I: immediate delivery, outside the CmdSN order.
    pub immediate: bool,
    /// F: the initiator has nothing more to say.
    pub is_final: bool,
    /// C: the text continues in the next request.
    pub continues: bool,
    /// The LUN of the response that this goes on from, if it goes on from one.
    pub lun: Lun,
    /// The exchange's name.
    pub itt: Itt,
    /// The tag of the response that this goes on from; none begins a new exchange.
    pub ttt: Option<Ttt>,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// Text, in bytes without padding.
    pub data_segment_length: u32,
}

impl TextRequest {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<TextRequest, Malformed> {
        bhs.expect(Opcode::TextRequest)?;
        if bhs.flag(FINAL) && bhs.flag(CONTINUE) {
            return Err(Malformed::ContinueAndFinal);
        }
        Ok(TextRequest {
            immediate: bhs.immediate(),
            is_final: bhs.flag(FINAL),
            continues: bhs.flag(CONTINUE),
            lun: bhs.lun(),
            itt: bhs.itt()?,
            ttt: Ttt::new(bhs.u32(20)),
            cmd_sn: Sn(bhs.u32(24)),
            exp_stat_sn: Sn(bhs.u32(28)),
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::TextRequest);
        bhs.set_immediate(self.immediate);
        bhs.set_u8(1, if self.is_final { FINAL } else { 0 } | if self.continues { CONTINUE } else { 0 });
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_lun(self.lun);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u32(20, Ttt::wire(self.ttt));
        bhs.set_u32(24, self.cmd_sn.0);
        bhs.set_u32(28, self.exp_stat_sn.0);
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

    fn send_targets() -> TextRequest {
        TextRequest {
            immediate: true,
            is_final: true,
            continues: false,
            lun: Lun(0),
            itt: Itt::new(3).expect("a tag"),
            ttt: None,
            cmd_sn: Sn(1),
            exp_stat_sn: Sn(4),
            data_segment_length: 16,
        }
    }

    #[test]
    fn golden() {
        let golden = "44800000 00000010 00000000 00000000 00000003 ffffffff
                      00000001 00000004 00000000 00000000 00000000 00000000";
        assert_golden(&send_targets(), golden, TextRequest::parse, TextRequest::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::TextRequest, TextRequest::parse, TextRequest::emit);
    }

    #[test]
    fn text_that_goes_on_and_is_over_is_refused() {
        let bhs = altered(send_targets().emit(), 1, FINAL | CONTINUE);
        assert_eq!(TextRequest::parse(&bhs), Err(Malformed::ContinueAndFinal));
    }
}
