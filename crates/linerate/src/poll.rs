//! How long a reactor looks for events before it sleeps, as people write it: `50us`, or `always`.

use std::str::FromStr;
use std::time::Duration;

use crate::spec::{NotATime, Time};

/// The longest time to look before sleeping; [`reactor::Spin::ALWAYS`] for `always`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poll(pub(crate) Duration);

const ALWAYS: &str = "always";

impl Poll {
    /// A number of microseconds, or `always`: what `--poll-us` takes.
    pub(crate) fn of_microseconds(text: &str) -> Result<Poll, String> {
        if text == ALWAYS {
            return Ok(Poll(reactor::Spin::ALWAYS));
        }
        let microseconds: u32 =
            text.parse().map_err(|_| "write a whole number of microseconds, or `always`".to_owned())?;
        Ok(Poll(Duration::from_micros(microseconds.into())))
    }
}

impl FromStr for Poll {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Poll, NotATime> {
        match text {
            ALWAYS => Ok(Poll(reactor::Spin::ALWAYS)),
            time => Ok(Poll(time.parse::<Time>()?.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_or_always() {
        assert_eq!("50us".parse(), Ok(Poll(Duration::from_micros(50))));
        assert_eq!("always".parse(), Ok(Poll(reactor::Spin::ALWAYS)));
        assert!("often".parse::<Poll>().is_err());
        assert_eq!(Poll::of_microseconds("0"), Ok(Poll(Duration::ZERO)));
        assert_eq!(Poll::of_microseconds("always"), Ok(Poll(reactor::Spin::ALWAYS)));
        assert!(Poll::of_microseconds("50us").is_err());
    }
}
