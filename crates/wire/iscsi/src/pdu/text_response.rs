//! Text Response (RFC 7143 section 11.11). Its data segment is keys and values: [`crate::text`].

use super::bhs::{CONTINUE, FINAL};
use super::{Bhs, Itt, Lun, Malformed, Opcode, TargetNumbers, Ttt};

/// Keys and values from the target, in full feature phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    /// F: the target has nothing more to say, and the exchange is over.
    pub is_final: bool,
    /// C: the text continues in the next response.
    pub continues: bool,
    /// A logical unit, for the initiator to repeat if the exchange goes on.
    pub lun: Lun,
    /// The exchange's name.
    pub itt: Itt,
    /// The tag to go on with; none if the exchange is over.
    pub ttt: Option<Ttt>,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: TargetNumbers,
    /// Text, in bytes without padding.
    pub data_segment_length: u32,
}

impl TextResponse {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<TextResponse, Malformed> {
        bhs.expect(Opcode::TextResponse)?;
        if bhs.flag(FINAL) && bhs.flag(CONTINUE) {
            return Err(Malformed::ContinueAndFinal);
        }
        Ok(TextResponse {
            is_final: bhs.flag(FINAL),
            continues: bhs.flag(CONTINUE),
            lun: bhs.lun(),
            itt: bhs.itt()?,
            ttt: Ttt::new(bhs.u32(20)),
            numbers: bhs.numbers(),
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::TextResponse);
        bhs.set_u8(1, if self.is_final { FINAL } else { 0 } | if self.continues { CONTINUE } else { 0 });
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_lun(self.lun);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u32(20, Ttt::wire(self.ttt));
        bhs.set_numbers(self.numbers);
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;
    use crate::serial::Sn;

    fn first_of_two() -> TextResponse {
        TextResponse {
            is_final: false,
            continues: true,
            lun: Lun(0),
            itt: Itt::new(3).expect("a tag"),
            ttt: Ttt::new(1),
            numbers: TargetNumbers { stat_sn: Sn(4), exp_cmd_sn: Sn(1), max_cmd_sn: Sn(0x100) },
            data_segment_length: 8192,
        }
    }

    #[test]
    fn golden() {
        let golden = "24400000 00002000 00000000 00000000 00000003 00000001
                      00000004 00000001 00000100 00000000 00000000 00000000";
        assert_golden(&first_of_two(), golden, TextResponse::parse, TextResponse::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::TextResponse, TextResponse::parse, TextResponse::emit);
    }

    #[test]
    fn text_that_goes_on_and_is_over_is_refused() {
        let bhs = altered(first_of_two().emit(), 1, FINAL | CONTINUE);
        assert_eq!(TextResponse::parse(&bhs), Err(Malformed::ContinueAndFinal));
    }
}
