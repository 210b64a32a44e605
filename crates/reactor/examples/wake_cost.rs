//! What the executor costs: nanoseconds per wake and poll of a task, and per timer set and cancelled.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reactor::{
    Detached, ListenOptions, Listener, Park, Stream, StreamOptions, Unpark, World, block_on, spawn, timeout,
    yield_now,
};

/// A world in which nothing happens and a turn costs nothing.
struct Still;

impl Unpark for Still {
    fn unpark(&self) {}
}

impl World for Still {
    fn now(&self) -> Instant {
        Instant::now()
    }
    fn listen(&self, _: SocketAddr, _: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn connect(&self, _: SocketAddr, _: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn adopt(&self, _: Detached) -> io::Result<Box<dyn Stream>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn turn(&self, _: Park) {}
    fn unpark(&self) -> Arc<dyn Unpark> {
        Arc::new(Still)
    }
}

const ROUNDS: u32 = 2_000_000;

fn main() {
    block_on(Rc::new(Still), async {
        for tasks in [1u32, 32, 1024] {
            let start = Instant::now();
            let running: Vec<_> = (0..tasks)
                .map(|_| {
                    spawn(async move {
                        for _ in 0..ROUNDS / tasks {
                            yield_now().await;
                        }
                    })
                })
                .collect();
            for task in running {
                task.await;
            }
            report(&format!("wake and poll, {tasks} tasks"), start);
        }
        let start = Instant::now();
        for _ in 0..ROUNDS {
            spawn(async {}).await;
        }
        report("spawn, run and join", start);
        let start = Instant::now();
        for _ in 0..ROUNDS {
            timeout(Duration::from_secs(30), yield_now()).await.ok();
        }
        report("yield under a timeout (2 clock readings)", start);
        spawn(pending::<()>());
    });
}

fn report(what: &str, start: Instant) {
    println!("{what}: {:.1} ns", start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
}
