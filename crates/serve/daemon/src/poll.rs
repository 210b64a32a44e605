//! How a reactor waits, as people write it: how long it looks for events before it sleeps (`50us`, or
//! `always`), and how long it lets them gather.

use std::str::FromStr;
use std::time::Duration;

use volume::spec::{NotATime, Time};

/// The longest time to look before sleeping; [`reactor::Spin::ALWAYS`] for `always`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll(pub Duration);

/// For how long events gather before a reactor looks for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather(pub Duration);

const ALWAYS: &str = "always";
/// A request waits this long at most for others: a disk's seek.
const GATHER_MAX: Duration = Duration::from_millis(10);

impl Poll {
    /// A number of microseconds, or `always`: what `--poll-us` takes.
    pub fn of_microseconds(text: &str) -> Result<Poll, String> {
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

impl Gather {
    /// A number of microseconds: what `--gather-us` takes.
    pub fn of_microseconds(text: &str) -> Result<Gather, String> {
        let microseconds: u32 =
            text.parse().map_err(|_| "write a whole number of microseconds".to_owned())?;
        Gather::new(Duration::from_micros(microseconds.into()))
    }

    fn new(span: Duration) -> Result<Gather, String> {
        if span <= GATHER_MAX {
            Ok(Gather(span))
        } else {
            Err("requests gather for at most 10 ms".to_owned())
        }
    }
}

impl FromStr for Gather {
    type Err = String;

    fn from_str(text: &str) -> Result<Gather, String> {
        Gather::new(text.parse::<Time>().map_err(|error| error.to_string())?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_gather_for_ten_milliseconds_at_most() {
        assert_eq!("10ms".parse(), Ok(Gather(GATHER_MAX)));
        assert!("11ms".parse::<Gather>().is_err() && Gather::of_microseconds("10001").is_err());
        assert_eq!(Gather::of_microseconds("200"), Ok(Gather(Duration::from_micros(200))));
    }

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
