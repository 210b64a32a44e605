//! The clock of a lab: nanoseconds since it was built.

use std::time::{Duration, Instant};

/// A clock that begins at 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now_ns(self) -> u64 {
        nanoseconds(self.0.elapsed())
    }
}

/// A time in nanoseconds: 584 years at most.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
