//! The reactor's executor for layers that have work which nobody waits for.

use std::future::Future;
use std::pin::Pin;

use block::Spawner;

/// Runs tasks in the reactor of the thread that hands them over.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReactorTasks;

impl Spawner for ReactorTasks {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) {
        // Nobody waits for it: it runs on without its handle.
        drop(reactor::spawn(task));
    }
}
