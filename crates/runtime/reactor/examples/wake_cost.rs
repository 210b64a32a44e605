//! The cost of the executor: nanoseconds per wake and poll of a task, and per timer set and cancelled.

use std::future::pending;
use std::time::{Duration, Instant};

use reactor::{Alone, block_on, spawn, timeout, yield_now};

const ROUNDS: u32 = 2_000_000;

fn main() {
    block_on(Alone::real_time(), async {
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
    println!(
        "{what}: {:.1} ns",
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    );
}
