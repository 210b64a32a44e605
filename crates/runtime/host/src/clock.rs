//! The reactor's clock for layers that need time to pass, and the kernel's for who is told of its times.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use block::Sleeper;
use rustix::time::{ClockId, clock_gettime};

/// Sleeps on the reactor of the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReactorClock;

impl Sleeper for ReactorClock {
    fn now(&self) -> Instant {
        reactor::now()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move { reactor::sleep(duration).await })
    }
}

/// CLOCK_MONOTONIC, which other processes read too; an [`Instant`] keeps to itself what it is.
pub fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    // It starts at zero: neither part is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
