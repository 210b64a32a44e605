//! Somebody who carries out work that nobody waits for, handed to layers that need it: this crate has no executor.

use std::future::Future;
use std::pin::Pin;

/// Runs tasks on the thread that hands them over. The program's implementation is the reactor's executor.
pub trait Spawner: Send + Sync {
    /// Runs `task` to its end, or drops it with the thread's other tasks.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>);
}
