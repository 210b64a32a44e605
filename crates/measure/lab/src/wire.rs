//! The thread of a link: reads packets from the interface on either side and writes them to the other one
//! when they are due.
//!
//! It has real-time priority if permitted, and sleeps with nanosecond resolution: delays should be exact even
//! while programs keep all CPUs busy. While it passes on a packet, the receiving kernel's TCP works on this
//! thread, as it would in a network card's interrupt.

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

/// A link's thread and the state it shares with others. Dropping it cuts the link.
#[derive(Debug)]
pub(crate) struct Wire {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// From the first end to the second, and back.
    directions: [Mutex<LinkDirection>; 2],
    /// Set to end the thread.
    stop: AtomicBool,
    /// Becomes readable after that, to wake the thread.
    wake: OwnedFd,
}

impl Wire {
    /// Joins two interfaces.
    pub(crate) fn start(name: &str, taps: [Tap; 2], directions: [LinkDirection; 2]) -> io::Result<Wire> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared =
            Arc::new(Shared { directions: directions.map(Mutex::new), stop: AtomicBool::new(false), wake });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name(format!("wire {name}")).spawn(move || {
            Carrier { taps, clock: Clock::start(), scratch: vec![0; PACKET_BYTES_MAX] }.run(&for_thread)
        })?;
        Ok(Wire { shared, thread: Some(thread) })
    }

    /// One direction: 0 from the first end to the second, 1 back.
    pub(crate) fn link(&self, direction: usize) -> MutexGuard<'_, LinkDirection> {
        self.shared.link(direction)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        // An event counter accepts any total up to 2^64 - 2; this is the only write.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has already been printed
        }
    }
}

impl Shared {
    fn link(&self, direction: usize) -> MutexGuard<'_, LinkDirection> {
        self.directions[direction].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own state.
struct Carrier {
    taps: [Tap; 2],
    clock: Clock,
    scratch: Vec<u8>,
}

impl Carrier {
    fn run(mut self, shared: &Shared) {
        // Both increase precision; without them the lab works, and its counters show the added delay.
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

    /// Reads the packets that were sent, up to a batch: due packets have priority. Returns whether there were
    /// any.
    fn take_in(&mut self, link: &mut LinkDirection, direction: usize) -> bool {
        for taken in 0..BATCH {
            let Ok(bytes) = self.taps[direction].read(&mut self.scratch) else { return taken > 0 };
            link.receive(self.clock.now_ns(), &self.scratch[..bytes]);
        }
        true
    }

    /// Sleeps until a packet is due or can be read, or the thread is to end.
    fn sleep(&self, shared: &Shared, next_ns: Option<u64>) {
        let wait = next_ns.map(|due_ns| due_ns.saturating_sub(self.clock.now_ns()));
        let timeout = wait
            .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        let mut watched = [
            PollFd::from_borrowed_fd(shared.wake.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.taps[0].as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.taps[1].as_fd(), PollFlags::IN),
        ];
        // An interrupted sleep is a short one.
        let _ = rustix::event::poll(&mut watched, timeout.as_ref());
    }
}

/// A TCP segment with its headers has up to 64 KiB.
const PACKET_BYTES_MAX: usize = 80 << 10;
/// Packets from one side before the other gets its turn.
const BATCH: usize = 32;
