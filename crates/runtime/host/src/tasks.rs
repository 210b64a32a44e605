//! The reactor's executor, for layers with background tasks.

use std::future::Future;
use std::pin::Pin;

use block::Spawner;

/// Spawns tasks on the reactor of the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReactorTasks;

impl Spawner for ReactorTasks {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) {
        // Detached: it runs without its handle.
        drop(reactor::spawn(task));
    }
}
