//! The executor of the layers that need one: this crate has none.

use std::future::Future;
use std::pin::Pin;

/// Spawns tasks on the calling thread. The program implements it by the reactor's executor.
pub trait Spawner: Send + Sync {
    /// Runs `task` to its end, or drops it with the thread's other tasks.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>);
}
