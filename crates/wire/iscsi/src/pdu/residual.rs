//! Residual counts (RFC 7143 section 11.4.5).

use super::Malformed;

/// The difference between Expected Data Transfer Length and what the device had to transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// The expected length was transferred.
    #[default]
    None,
    /// Overflow: bytes not transferred because the initiator expected fewer.
    Overflow(u32),
    /// Underflow: bytes expected and not transferred.
    Underflow(u32),
}

impl Residual {
    /// From an overflow bit, an underflow bit and a count.
    pub(super) fn parse(overflow: bool, underflow: bool, count: u32) -> Result<Residual, Malformed> {
        match (overflow, underflow) {
            (false, false) => Ok(Residual::None),
            (true, false) => Ok(Residual::Overflow(count)),
            (false, true) => Ok(Residual::Underflow(count)),
            (true, true) => Err(Malformed::ContradictoryResidual),
        }
    }

    /// The flag bits, given the two bits to choose from, and the count.
    pub(super) fn emit(self, overflow: u8, underflow: u8) -> (u8, u32) {
        match self {
            Residual::None => (0, 0),
            Residual::Overflow(count) => (overflow, count),
            Residual::Underflow(count) => (underflow, count),
        }
    }
}
