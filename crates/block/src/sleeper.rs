//! Something to wait on, handed to layers that need time to pass: this crate knows no clock.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Lets time pass. The program's implementation is the reactor's clock, that of tests a virtual one.
pub trait Sleeper: Send + Sync {
    /// Ends after `duration`.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()>>>;
}
