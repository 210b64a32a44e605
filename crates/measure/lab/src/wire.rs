//! The thread of a link. It reads packets from the interface on either side, and writes each to the other
//! interface when it is due.
//!
//! The thread has real-time priority if permitted, and sleeps with nanosecond resolution, so that delays are
//! exact even if programs keep all CPUs busy. When it passes on a packet, the receiving kernel's TCP code
//! runs on this thread, as it would in a network card's interrupt.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use host::tap::Tap;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::pipe::{Clock, LinkDirection};

/// The thread of a link, and the state that it shares with other threads. Dropping this cuts the link.
#[derive(Debug)]
pub(crate) struct Wire {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The direction from the first end to the second, and the opposite direction.
    directions: [Mutex<LinkDirection>; 2],
    /// Tells the thread to end.
    stop: AtomicBool,
    /// Becomes readable after `stop` has been set, which wakes the thread.
    wake: OwnedFd,
}

impl Wire {
    /// Connects two interfaces.
    pub(crate) fn start(
        name: &str,
        taps: [Tap; 2],
        directions: [LinkDirection; 2],
    ) -> io::Result<Wire> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared {
            directions: directions.map(Mutex::new),
            stop: AtomicBool::new(false),
            wake,
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(format!("wire {name}"))
            .spawn(move || {
                Carrier {
                    taps,
                    clock: Clock::start(),
                    scratch: vec![0; PACKET_BYTES_MAX],
                }
                .run(&for_thread)
            })?;
        Ok(Wire {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns one direction: 0 is from the first end to the second, 1 the opposite direction.
    pub(crate) fn link(&self, direction: usize) -> MutexGuard<'_, LinkDirection> {
        self.shared.link(direction)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        // An event counter accepts any total up to 2^64 - 2, and this is the only write.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has already been printed
        }
    }
}

impl Shared {
    fn link(&self, direction: usize) -> MutexGuard<'_, LinkDirection> {
        self.directions[direction]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state that only the thread uses.
struct Carrier {
    taps: [Tap; 2],
    clock: Clock,
    scratch: Vec<u8>,
}

impl Carrier {
    fn run(mut self, shared: &Shared) {
        // Both calls increase the precision. Without them, the lab also works, and its counters show the
        // added delay.
        let _ = host::threads::run_at_once();
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while !shared.stop.load(Relaxed) {
            let mut busy = false;
            let mut next_ns: Option<u64> = None;
            for direction in 0..2 {
                let mut link = shared.link(direction);
                busy |= self.deliver(&mut link, direction);
                busy |= self.take_in(&mut link, direction);
                next_ns = [next_ns, link.next_due_ns()].into_iter().flatten().min();
            }
            if !busy {
                self.sleep(shared, next_ns);
            }
        }
    }

    /// Delivers the packets that are due. Returns whether there were any.
    fn deliver(&self, link: &mut LinkDirection, direction: usize) -> bool {
        let mut any = false;
        while let Some(packet) = link.leave(self.clock.now_ns()) {
            any = true;
            if self.taps[1 - direction].write(&packet.bytes).is_err() {
                link.refused(&packet);
            }
        }
        any
    }

    /// Reads packets from a sender, up to the size of a batch, because due packets have priority. Returns
    /// whether there were any.
    fn take_in(&mut self, link: &mut LinkDirection, direction: usize) -> bool {
        for taken in 0..BATCH {
            let Ok(bytes) = self.taps[direction].read(&mut self.scratch) else {
                return taken > 0;
            };
            link.receive(self.clock.now_ns(), &self.scratch[..bytes]);
        }
        true
    }

    /// Sleeps until a packet is due or can be read, or until the thread has to end.
    fn sleep(&self, shared: &Shared, next_ns: Option<u64>) {
        let wait = next_ns.map(|due_ns| due_ns.saturating_sub(self.clock.now_ns()));
        let timeout = wait.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        let mut watched = [
            PollFd::from_borrowed_fd(shared.wake.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.taps[0].as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.taps[1].as_fd(), PollFlags::IN),
        ];
        // If the sleep is interrupted, it is only shorter.
        let _ = rustix::event::poll(&mut watched, timeout.as_ref());
    }
}

/// The size of the buffer for a packet. A TCP segment with its headers has up to 64 KiB.
const PACKET_BYTES_MAX: usize = 80 << 10;
/// Maximum number of packets from one side before the other side gets its turn.
const BATCH: usize = 32;
