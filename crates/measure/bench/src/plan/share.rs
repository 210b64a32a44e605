//! Shares of a whole.

use serde::{Deserialize, Serialize};

/// A share in percent: 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Percent(u8);

impl Percent {
    /// Nothing.
    pub const NONE: Percent = Percent(0);
    /// Everything.
    pub const ALL: Percent = Percent(100);

    /// `None` above 100.
    pub fn new(percent: u8) -> Option<Percent> {
        (percent <= 100).then_some(Percent(percent))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Percent {
    type Error = &'static str;

    fn try_from(percent: u8) -> Result<Percent, &'static str> {
        Percent::new(percent).ok_or("a share is 0 to 100")
    }
}

impl From<Percent> for u8 {
    fn from(percent: Percent) -> u8 {
        percent.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_everything_is_no_share() {
        assert_eq!(Percent::new(101), None);
        assert_eq!(Percent::new(100), Some(Percent::ALL));
    }
}
