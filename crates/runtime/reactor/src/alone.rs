//! A world (runtime environment) without a network, for unit tests and for measurements of the code above it.
//!
//! The world has one of two clocks. *Virtual time* advances only in [`World::turn`]: the clock jumps to the
//! next timer without waiting. So a simulated half hour takes no real time, and tests do not depend on the
//! speed of the machine. *Real time* is the system's monotonic clock: the thread sleeps until the next timer,
//! and a turn does nothing while a task is ready. With either clock, a thread without a timer sleeps until
//! another thread unparks it. Streams and listeners are implemented by `host` and `sim`.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::stream::{Detached, Stream, StreamOptions};
use crate::world::{ListenOptions, Listener, Park, SharedWorld, Unpark, World};

/// A [`World`] without a network, for the thread that created it.
pub struct Alone {
    clock: Clock,
}

enum Clock {
    Virtual {
        now: Cell<Instant>,
        /// Virtual time that passes in each turn that does not wait for a timer.
        turn: Duration,
    },
    Real,
}

impl Alone {
    /// Creates a world with virtual time. A turn that does not wait takes a microsecond, so that even tasks
    /// that never wait reach their deadlines.
    pub fn virtual_time() -> SharedWorld {
        Alone::with(Clock::Virtual {
            now: Cell::new(Instant::now()),
            turn: Duration::from_micros(1),
        })
    }

    /// Creates a world with virtual time that advances only while all tasks wait, so measured durations are
    /// exactly those of the timers. A task that never waits does not reach its deadline.
    pub fn exact_virtual_time() -> SharedWorld {
        Alone::with(Clock::Virtual {
            now: Cell::new(Instant::now()),
            turn: Duration::ZERO,
        })
    }

    /// Creates a world with the system's monotonic clock.
    pub fn real_time() -> SharedWorld {
        Alone::with(Clock::Real)
    }

    fn with(clock: Clock) -> SharedWorld {
        Rc::new(Alone { clock })
    }
}

impl World for Alone {
    fn now(&self) -> Instant {
        match &self.clock {
            Clock::Virtual { now, .. } => now.get(),
            Clock::Real => Instant::now(),
        }
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

    fn turn(&self, park: Park) {
        match (&self.clock, park) {
            (Clock::Virtual { now, turn }, Park::No) => now.set(now.get() + *turn),
            (Clock::Virtual { now, .. }, Park::For(wait)) => now.set(now.get() + wait),
            (Clock::Real, Park::No) => {}
            (Clock::Real, Park::For(wait)) => thread::park_timeout(wait),
            (_, Park::Forever) => thread::park(),
        }
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        Arc::new(Sleeper(thread::current()))
    }
}

/// Unparks the thread that runs the world.
struct Sleeper(Thread);

impl Unpark for Sleeper {
    fn unpark(&self) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{block_on, now, yield_now};
    use crate::timer::sleep;

    #[test]
    fn in_exact_virtual_time_only_timers_take_time() {
        block_on(Alone::exact_virtual_time(), async {
            let start = now();
            for _ in 0..1000 {
                yield_now().await;
            }
            assert_eq!(now(), start);
            sleep(Duration::from_secs(1800)).await;
            assert_eq!(now() - start, Duration::from_secs(1800));
        });
    }

    #[test]
    fn another_thread_ends_a_turn_in_real_time() {
        const HOUR: Duration = Duration::from_secs(3600);
        let world = Alone::real_time();
        let (start, unpark) = (world.now(), world.unpark());
        let other = thread::spawn(move || unpark.unpark());
        world.turn(Park::For(HOUR));
        assert!(world.now() - start < HOUR);
        other.join().expect("it has unparked");
    }
}
