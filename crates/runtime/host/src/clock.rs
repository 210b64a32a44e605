//! The reactor's clock, for layers of block devices that sleep.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use block::Sleeper;

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
